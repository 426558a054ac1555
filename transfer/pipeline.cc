#include "transfer/pipeline.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/flight_scope.h"
#include "base/log.h"
#include "base/text.h"
#include "tcpx/help.h"

namespace tcpx {
namespace {

// A half that need not wait for its peer still reads the link, but only every so many calls, because reading costs a system call.
constexpr uint32_t kLookAtPeerEvery = 32;
constexpr std::string_view kPeerNic = ", which the two halves talk over";

Status check(const std::vector<ChannelParts>& channels, const PipelineMeans& means, const PipelineOptions& options) {
  const auto refuse = [](std::string why) { return Status(Code::kInvalidArgument, "create connection", std::move(why)); };
  if (channels.empty() || channels.size() > kMaxChannels)
    return refuse(concat(channels.size(), " channels, must be 1 to ", kMaxChannels));
  for (const ChannelParts& parts : channels) {
    if (parts.comm.direction() != channels.front().comm.direction()) return refuse("channels of both directions");
  }
  if (channels.size() > 1 && means.peer == nullptr) return refuse("several channels and no way to talk to the peer");
  const uint32_t depth = channels.front().comm.plugin().queue_depth();
  if (options.limits.window > depth)
    return refuse(concat("window of ", options.limits.window, ", must be 1 to ", depth, name_in_detail(Hint::kTooManyRequests)));
  if (options.limits.peer_gone_tests < 2) return refuse("fewer than 2 peer-gone tests");
  if (options.max_transfers == 0) return refuse("room for no transfer");
  if (options.sender_places && options.failover) return refuse("with failover the receiver places chunks");
  return ChunkPlan::make(0, options.chunk_bytes, options.longest_chunk_bytes).status();
}

ChannelLimits limits_for(const PipelineOptions& options, const Pipeline* pipeline) {
  ChannelLimits limits = options.limits;
  limits.connection = pipeline;
  return limits;
}

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::create(std::vector<ChannelParts> channels, PipelineMeans means, const Clock& clock,
                                                   const PipelineOptions& options) {
  TCPX_RETURN_IF_ERROR(check(channels, means, options));
  return std::unique_ptr<Pipeline>(new Pipeline(std::move(channels), std::move(means), clock, options));
}

Result<std::unique_ptr<Pipeline>> Pipeline::create(Comm comm, const ReceiveParts& receive, const Clock& clock,
                                                   const PipelineOptions& options) {
  std::vector<ChannelParts> channels;
  channels.push_back({.comm = std::move(comm), .receive = receive});
  return create(std::move(channels), {}, clock, options);
}

Pipeline::Pipeline(std::vector<ChannelParts> channels, PipelineMeans means, const Clock& clock, const PipelineOptions& options)
    : options_(options),
      peer_(std::move(means.peer)),
      peer_nic_(std::move(means.peer_nic)),
      clock_(clock),
      channels_(std::move(channels), clock, limits_for(options, this)),
      transfers_(options.max_transfers),
      dispatcher_(ChunkDispatcher::create({.channels = channels_,
                                           .transfers = transfers_,
                                           .peer = peer_.get(),
                                           .chunk_bytes = options.chunk_bytes,
                                           .longest_chunk_bytes = options.longest_chunk_bytes,
                                           .failover = options.failover,
                                           .sender_places = options.sender_places})),
      nics_(std::move(means.link_is_down), channels_.size() + 1, clock.now()),
      losses_(channels_.size()) {
  now_ = last_advance_ = clock_.now();
  if (peer_ != nullptr) peer_->deliver_to(this);
}

Pipeline::~Pipeline() {
  if (pending() == 0 && status_.is_ok()) {
    (void)close();  // an error has been logged where it was first seen
  } else {
    fail(Status(Code::kInvalidArgument, "destroy connection", concat(pending(), " transfers are pending")));
    while (!channels_.all_closed()) {
      if (!progress()) std::this_thread::yield();
    }
  }
  if (peer_ != nullptr) peer_->deliver_to(nullptr);
}

Result<RegisteredMemory> Pipeline::register_memory(void* data, size_t bytes, MemoryType type) {
  return register_with([&](Registrations& memory) { return memory.add(data, bytes, type); });
}

Result<RegisteredMemory> Pipeline::register_list(const std::shared_ptr<const RangeList>& list) {
  return register_with([&](Registrations& memory) { return memory.add(list); });
}

template <class Add>
Result<RegisteredMemory> Pipeline::register_with(Add add) {
  if (!status_.is_ok()) return status_;
  if (closed_) return Status(Code::kInvalidArgument, "register memory", "the connection is closed");
  const auto tell = [this] { return told_at_exit(); };
  const FlightScope scope(tell);
  return add(channels_.memory());
}

Status Pipeline::deregister_memory(const RegisteredMemory& memory) {
  const auto refuse = [](const char* why) { return Status(Code::kInvalidArgument, "deregister memory", why); };
  if (!channels_.memory().holds(memory)) return refuse("the memory is not registered with this connection");
  if (transfers_.any_pending([&](const Transfer& transfer) { return transfer.spec.memory.slot == memory.slot; }))
    return refuse("a pending transfer uses the memory");
  return channels_.memory().remove(memory);
}

// The report for the case that the plugin exits the process (base/flight_scope.h).
std::string Pipeline::told_at_exit() const {
  return pending() > 0 || in_flight() > 0 ? flight_record() : std::string();
}

Result<TransferId> Pipeline::submit(const TransferSpec& spec) {
  if (!status_.is_ok()) return status_;
  const auto refuse = [](std::string why) { return Status(Code::kInvalidArgument, "submit transfer", std::move(why)); };
  if (closed_) return refuse("the connection is closed");
  TCPX_ASSIGN_OR_RETURN(const auto plan,
                        ChunkPlan::make(spec.bytes, options_.chunk_bytes, options_.longest_chunk_bytes, channels_.size()));
  const size_t room = spec.unwanted ? plan[0].bytes : spec.bytes;
  if (spec.offset > spec.memory.bytes || room > spec.memory.bytes - spec.offset)
    return refuse(concat(room, " bytes at ", spec.offset, " of a registration of ", spec.memory.bytes, " bytes"));
  if (!channels_.memory().reaches(spec.memory, spec.offset + room))
    return refuse("the memory is not registered with this connection");
  if (spec.tag < 0) return refuse(concat("tag ", spec.tag));
  const auto id = transfers_.add(spec, plan);
  if (!id.is_ok()) return id;
  if (pending() == 1) last_advance_ = clock_.now();
  if (Status told = dispatcher_->submitted(*id); !told.is_ok()) fail(std::move(told));  // fails the transfer, not this call
  return id;
}

bool Pipeline::progress() {
  const auto tell = [this] { return told_at_exit(); };
  const FlightScope scope(tell);
  now_ = clock_.now();
  bool advanced = has_peer() && pump_link();
  if (status_.is_ok()) {
    look_at_nics();
    advanced |= post();
  }
  for (size_t i = 0; i < channels_.size(); ++i) advanced |= progress_channel(i);
  check_stall(advanced);
  if (!status_.is_ok() && channels_.all_closed()) {
    if (pending() > 0) fail_pending();
    nics_.stop();
  }
  return advanced;
}

bool Pipeline::pump_link() {
  if (!status_.is_ok() && channels_.all_closed()) return false;
  if (status_.is_ok() && !dispatcher_->waits_for_peer() && ++calls_since_pump_ < kLookAtPeerEvery) return false;
  calls_since_pump_ = 0;
  const Result<bool> more = peer_->pump();
  // While no transfer is pending, the end of the link does not fail the pipeline: the link's next user will see it.
  if (pending() > 0 && !more.is_ok()) fail(more.status());
  if (pending() > 0 && more.is_ok() && !*more && dispatcher_->needs_peer())
    fail(Status(Code::kProtocol, "wait for the peer", "the peer has finished, this end has not"));
  return std::exchange(heard_, false);
}

bool Pipeline::post() {
  const Result<bool> posted = dispatcher_->post(now_);
  if (!posted.is_ok()) fail(posted.status());
  return !posted.is_ok() || *posted;
}

bool Pipeline::progress_channel(size_t index) {
  const Channel::Progress step = channels_.progress(index);
  if (!step.finished.empty()) {
    if (Status counted = dispatcher_->finished(index, step.finished, now_); !counted.is_ok()) fail(std::move(counted));
  }
  if (!channels_[index].status().is_ok()) take_failure(index);
  return step.advanced;
}

void Pipeline::on_peer_message(PeerMessage type, std::span<const std::byte> payload) {
  if (!status_.is_ok()) return;
  heard_ = true;
  Status taken = type == PeerMessage::kChannelDown ? take_channel_down(payload) : dispatcher_->take(type, payload);
  if (!taken.is_ok()) fail(std::move(taken));
}

Status Pipeline::take_channel_down(std::span<const std::byte> payload) {
  TCPX_ASSIGN_OR_RETURN(const auto down, decode_channel_down(payload, static_cast<uint32_t>(channels_.size())));
  if (channels_[down.channel].status().is_ok()) {
    losses_[down.channel].told_by_peer = true;
    channels_[down.channel].fail(down.reason);
  }
  return Status::ok();
}

TransferAnswer Pipeline::poll(TransferId id) {
  return transfers_.poll(id, status_);
}

Status Pipeline::close() {
  if (!status_.is_ok()) return status_;
  if (pending() > 0) return Status(Code::kInvalidArgument, "close connection", concat(pending(), " transfers are pending"));
  if (!closed_ && log_enabled(LogLevel::kDebug)) {
    uint64_t bytes = 0;
    for (const ChannelCounters& channel : counters()) bytes += channel.bytes;
    log(LogLevel::kDebug, "closing the ", name_of(direction()), " connection: All bytes: ", bytes);
  }
  closed_ = true;
  return channels_.close();
}

std::string Pipeline::flight_record() const {
  if (!has_peer()) return channels_[0].flight_record();
  std::string text = concat(pending(), " transfers pending", dispatcher_->waiting());
  for (size_t i = 0; i < channels_.size(); ++i) {
    text += concat("\n", channels_.label(i), channels_[i].status().is_ok() ? "" : " (failed)", dispatcher_->waiting_for(i), ": ",
                   channels_[i].flight_record());
  }
  return text;
}

// One check is enough to fail a channel when others can take over. Without the interface of the peer link, nothing can be granted
// any more.
void Pipeline::look_at_nics() {
  if (pending() == 0 || !nics_.due(now_)) return;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (!channels_[i].status().is_ok()) continue;
    const auto tolerance = fails_over() && channels_.open() > 1 ? NicWatch::Tolerance::kNone : NicWatch::Tolerance::kBrief;
    Status lost = nics_.look(i, channels_.nic(i), "", tolerance);
    if (!lost.is_ok()) channels_[i].fail(std::move(lost));
  }
  if (!has_peer()) return;
  Status lost = nics_.look(channels_.size(), peer_nic_, kPeerNic, NicWatch::Tolerance::kBrief);
  if (!lost.is_ok()) fail(std::move(lost));
}

Status Pipeline::first_nic_down() const {
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (Status down = nics_.down(channels_.nic(i), ""); !down.is_ok()) return channels_.labelled(i, down);
  }
  return has_peer() ? nics_.down(peer_nic_, kPeerNic) : Status::ok();
}

// The error with which the pipeline fails when a channel has failed. The channel's own error may not be the cause: the peer may
// have noticed first that an interface is down, and closed its comms.
Status Pipeline::meaning_of(size_t index) const {
  const Status& reason = channels_[index].status();
  Status down = reason.code() == Code::kPeerGone ? first_nic_down() : Status::ok();
  return down.is_ok() ? channels_.labelled(index, reason) : down;
}

// Tells the peer once that the channel has failed. Without failover the pipeline fails; with it, other channels take over the
// chunks.
void Pipeline::take_failure(size_t index) {
  const Channel& channel = channels_[index];
  Loss& loss = losses_[index];
  if (!std::exchange(loss.taken, true)) {
    if (peer_ != nullptr && !loss.told_by_peer) {
      std::array<std::byte, kMaxPeerMessageBytes> text;
      (void)peer_->post(PeerMessage::kChannelDown,
                        encode_channel_down(text, {.channel = static_cast<uint32_t>(index), .reason = channel.status()}));
    }
    const size_t open = channels_.open();
    if (status_.is_ok() && (!fails_over() || open == 0)) {
      fail(meaning_of(index));
    } else if (status_.is_ok()) {
      log(LogLevel::kWarning, name_of(direction()), " connection goes on over ", open, " of ", channels_.size(),
          " channels: ", channels_.labelled(index, channel.status()).to_string());
    }
  }
  if (!status_.is_ok() || !channel.closed() || std::exchange(loss.dispatched, true)) return;
  if (channel.abandoned()) {
    fail(channel.status());  // its chunks cannot go elsewhere while something may write to their memory
  } else {
    dispatcher_->lost(index);
  }
}

void Pipeline::fail(Status reason) {
  if (!status_.is_ok()) return;
  status_ = std::move(reason);
  channels_.fail(status_);
}

// Each channel notices by itself when its chunks in flight do not move. This check is for transfers that wait for the other half.
// With failover it allows twice the time, because the other half may first wait for a channel to fail before it grants its chunks
// again.
void Pipeline::check_stall(bool advanced) {
  if (advanced || pending() == 0 || in_flight() > 0) last_advance_ = now_;
  const Duration limit = options_.limits.stall_limit * (fails_over() ? 2 : 1);
  if (!status_.is_ok() || now_ - last_advance_ < limit) return;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - last_advance_).count();
  Status status(Code::kTimeout, concat(name_of(direction()), " transfer"), concat("no word from the peer for ", ms, " ms"));
  log(LogLevel::kError, status.to_string(), "; ", flight_record());
  fail(std::move(status));
}

void Pipeline::fail_pending() {
  if (channels_.any_abandoned()) {
    status_ = Status(status_.code(), status_.operation(),
                     status_.detail() + "; the plugin or copies of received data may still be running", status_.domain(),
                     status_.native());
  }
  transfers_.fail_pending();
}

}  // namespace tcpx
