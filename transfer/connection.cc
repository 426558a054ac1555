#include "transfer/connection.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/flight_scope.h"
#include "base/log.h"
#include "base/text.h"
#include "tcpx/help.h"

namespace tcpx {
namespace {

// One registration each. Below what an int holds, which is all that plugins of version 7 take.
constexpr size_t kRegistrationStride = size_t{1} << 30;
// A chunk that begins in one stride may end in the next, so each registration reaches a chunk further; and a page, because
// strides count from the memory's begin, and registrations of GPU memory from the begin of its first page.
constexpr size_t kRegistrationOverlap = kMaxRequestBytes + kPageBytes;

// Which of the registrations of `memory` a chunk at `off` belongs to; nothing at the very end belongs to the last.
size_t registration_of(const RegisteredMemory& memory, size_t off) {
  return (off < memory.bytes || off == 0 ? off : off - 1) / kRegistrationStride;
}

// The lowest 31 bits: a tag is an int and not negative.
int plugin_tag(uint64_t tag) {
  return static_cast<int>(tag & 0x7fffffff);
}

Status check(const std::vector<ChannelParts>& channels, const ConnectionLinks& links, const ConnectionOptions& options) {
  const auto refuse = [](std::string why) { return Status(Code::kInvalidArgument, "create connection", std::move(why)); };
  if (channels.empty() || channels.size() > kMaxChannels)
    return refuse(concat(channels.size(), " channels, must be 1 to ", kMaxChannels));
  for (const ChannelParts& parts : channels) {
    if (parts.comm.direction() != channels.front().comm.direction()) return refuse("channels of both directions");
  }
  if (channels.size() > 1 && links.peer == nullptr) return refuse("several channels and no link to the peer");
  if (options.limits.window < 1 || options.limits.window > kQueueDepth)
    return refuse(
        concat("window of ", options.limits.window, ", must be 1 to ", kQueueDepth, name_in_detail(Hint::kTooManyRequests)));
  if (options.limits.peer_gone_tests < 2) return refuse("fewer than 2 peer-gone tests");
  if (options.max_transfers == 0) return refuse("room for no transfer");
  return ChunkPlan::make(0, options.chunk_bytes).status();
}

}  // namespace

Connection::Path::Path(ChannelParts parts, const Clock& clock, const ChannelLimits& limits)
    : nic(std::move(parts.nic)),
      device_handle(std::move(parts.device_handle)),
      channel(std::move(parts.comm), parts.receive, clock, limits) {}

Result<std::unique_ptr<Connection>> Connection::create(std::vector<ChannelParts> channels, ConnectionLinks links,
                                                       const Clock& clock, const ConnectionOptions& options) {
  TCPX_RETURN_IF_ERROR(check(channels, links, options));
  return std::unique_ptr<Connection>(new Connection(std::move(channels), std::move(links), clock, options));
}

Result<std::unique_ptr<Connection>> Connection::create(Comm comm, const ReceiveParts& receive, const Clock& clock,
                                                       const ConnectionOptions& options) {
  std::vector<ChannelParts> channels;
  channels.push_back({.comm = std::move(comm), .receive = receive});
  return create(std::move(channels), {}, clock, options);
}

Connection::Connection(std::vector<ChannelParts> channels, ConnectionLinks links, const Clock& clock,
                       const ConnectionOptions& options)
    : direction_(channels.front().comm.direction()),
      options_(options),
      links_(std::move(links)),
      clock_(clock),
      router_(channels.size()),
      transfers_(options.max_transfers) {
  options_.limits.connection = this;
  for (ChannelParts& parts : channels) paths_.push_back(std::make_unique<Path>(std::move(parts), clock, options_.limits));
  now_ = last_advance_ = next_link_look_ = clock_.now();
  if (links_.peer != nullptr) links_.peer->deliver_to(this);
}

Connection::~Connection() {
  if (pending_ == 0 && status_.is_ok()) {
    (void)close();  // logged where it was first seen
  } else {
    fail(Status(Code::kInvalidArgument, "destroy connection", concat(pending_, " transfers are pending")));
    while (!all_closed()) {
      if (!progress()) std::this_thread::yield();
    }
  }
  if (links_.peer != nullptr) links_.peer->deliver_to(nullptr);
}

Result<RegisteredMemory> Connection::register_memory(void* data, size_t bytes, MemoryType type) {
  if (!status_.is_ok()) return status_;
  if (closed_) return Status(Code::kInvalidArgument, "register memory", "the connection is closed");
  const auto tell = [this] { return told_at_exit(); };
  const FlightScope scope(tell);
  auto* const begin = static_cast<std::byte*>(data);
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(generations_.size()));
    generations_.push_back(0);
    for (const auto& path : paths_) path->memory.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  const RegisteredMemory memory{begin, bytes, type, slot, generations_[slot]};
  // Pages may hold a neighbour's bytes too; what a transfer may touch is compared with the memory, in `submit`.
  const Pages pages = type == MemoryType::kCuda ? whole_pages(data, bytes) : Pages{begin, bytes};
  size_t off = 0;
  do {
    const size_t part = std::min(pages.bytes - off, kRegistrationStride + kRegistrationOverlap);
    for (const auto& path : paths_) {
      std::optional<MemoryHandle> handle;
      if (path->channel.status().is_ok()) {
        const auto registered = path->channel.comm().register_memory(pages.begin + off, part, type);
        if (!registered.is_ok()) {
          (void)let_go(memory);  // the first error wins
          return registered.status();
        }
        handle = *registered;
      }
      path->memory[slot].push_back(handle);
    }
    off += kRegistrationStride;
  } while (off < pages.bytes);
  return memory;
}

bool Connection::is_registered(const RegisteredMemory& memory) const {
  return memory.slot < generations_.size() && generations_[memory.slot] == memory.generation &&
         !paths_.front()->memory[memory.slot].empty();
}

Status Connection::deregister_memory(const RegisteredMemory& memory) {
  const auto refuse = [](const char* why) { return Status(Code::kInvalidArgument, "deregister memory", why); };
  if (!is_registered(memory)) return refuse("the memory is not registered with this connection");
  if (pending_ > 0 && std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
        return transfer.state == TransferState::kPending && transfer.spec.memory.slot == memory.slot;
      })) {
    return refuse("a pending transfer uses the memory");
  }
  return let_go(memory);
}

// Deregisters what there is of the memory, whatever the plugin says, and frees its slot.
Status Connection::let_go(const RegisteredMemory& memory) {
  Status first;
  for (const auto& path : paths_) {
    for (const auto& handle : path->memory[memory.slot]) {
      if (!handle || !path->channel.comm().is_open()) continue;
      Status status = path->channel.comm().deregister_memory(*handle);
      if (first.is_ok()) first = std::move(status);
    }
    path->memory[memory.slot].clear();
  }
  ++generations_[memory.slot];
  free_slots_.push_back(memory.slot);
  return first;
}

// In case the plugin ends the process (base/flight_scope.h).
std::string Connection::told_at_exit() const {
  return pending_ > 0 || in_flight() > 0 ? flight_record() : std::string();
}

Result<TransferId> Connection::submit(const TransferSpec& spec) {
  if (!status_.is_ok()) return status_;
  if (closed_) return Status(Code::kInvalidArgument, "submit transfer", "the connection is closed");
  if (spec.offset > spec.memory.bytes || spec.bytes > spec.memory.bytes - spec.offset) {
    return Status(Code::kInvalidArgument, "submit transfer",
                  concat(spec.bytes, " bytes at ", spec.offset, " of a registration of ", spec.memory.bytes, " bytes"));
  }
  if (!is_registered(spec.memory) ||
      registration_of(spec.memory, spec.offset + spec.bytes) >= paths_.front()->memory[spec.memory.slot].size())
    return Status(Code::kInvalidArgument, "submit transfer", "the memory is not registered with this connection");
  if (spec.tag < 0) return Status(Code::kInvalidArgument, "submit transfer", concat("tag ", spec.tag));
  const auto plan = ChunkPlan::make(spec.bytes, options_.chunk_bytes);
  if (!plan.is_ok()) return plan.status();
  Transfer& transfer = slot(next_id_);
  if (transfer.state != TransferState::kUnknown) {
    return Status(Code::kExhausted, "submit transfer", concat(transfers_.size(), " transfers have not been polled to their end"));
  }
  transfer = {.id = TransferId{next_id_},
              .state = TransferState::kPending,
              .spec = spec,
              .plan = *plan,
              .first_tag = next_tag_ + static_cast<uint64_t>(spec.tag)};
  next_tag_ += (plan->count() + kTagsPerTransfer - 1) / kTagsPerTransfer * kTagsPerTransfer;
  if (pending_++ == 0) last_advance_ = clock_.now();
  const TransferId id{next_id_++};
  if (acknowledges() && direction_ == Direction::kSend) {
    std::array<std::byte, kMaxPeerMessageBytes> text;
    tell(FrameType::kSubmitted, encode_transfer_number(text, static_cast<uint64_t>(id)));  // a failure is the transfer's
  }
  return id;
}

bool Connection::progress() {
  const auto tell = [this] { return told_at_exit(); };
  const FlightScope scope(tell);
  now_ = clock_.now();
  bool advanced = false;
  if (grants()) advanced |= pump_link();
  if (status_.is_ok()) {
    look_at_links();
    advanced |= !grants() ? post_in_order() : direction_ == Direction::kRecv ? post_and_grant() : post_granted();
  }
  for (size_t i = 0; i < paths_.size(); ++i) advanced |= progress_path(i);
  check_stall(advanced);
  if (!status_.is_ok() && all_closed()) {
    if (pending_ > 0) fail_pending();
    links_.link_is_down = nullptr;  // which may hold a descriptor
  }
  return advanced;
}

bool Connection::progress_path(size_t index) {
  Path& path = *paths_[index];
  const Channel::Progress step = path.channel.progress();
  for (const ChunkEnd& end : step.finished) {
    ++path.chunks;
    path.bytes += end.bytes;
    if (grants() && direction_ == Direction::kRecv) router_.delivered(index, end.bytes, now_);
    count_finished(end);
  }
  if (!path.channel.status().is_ok()) take_failure(index);
  return step.advanced;
}

// With one channel, chunks meet in the order of posting at both ends.
bool Connection::post_in_order() {
  bool advanced = false;
  while (placing_id_ < next_id_) {
    Transfer& transfer = slot(placing_id_);
    if (!try_post(0, transfer, transfer.placed_chunks)) break;
    advanced = true;
    if (++transfer.placed_chunks == transfer.plan.count()) ++placing_id_;
  }
  return advanced;
}

bool Connection::try_post(size_t index, Transfer& transfer, uint64_t number) {
  Path& path = *paths_[index];
  const Chunk chunk = transfer.plan[number];
  const TransferSpec& spec = transfer.spec;
  const size_t off = spec.offset + chunk.offset;
  // A channel that had failed when the memory was registered has no handle for it, and takes nothing.
  const auto handle = path.memory[spec.memory.slot][registration_of(spec.memory, off)].value_or(MemoryHandle{});
  if (!path.channel.try_post({.transfer = transfer.id,
                              .chunk = chunk,
                              .data = spec.memory.data + off,
                              .memory = handle,
                              .tag = plugin_tag(transfer.first_tag + number)})) {
    return false;
  }
  ++transfer.outstanding;
  return true;
}

void Connection::count_finished(const ChunkEnd& end) {
  Transfer& transfer = slot(static_cast<uint64_t>(end.transfer));
  require(transfer.id == end.transfer && transfer.state == TransferState::kPending,
          "a chunk finishes while its transfer is pending");
  ++transfer.finished_chunks;
  transfer.finished_bytes += end.bytes;
  --transfer.outstanding;
  end_if_complete(transfer);
}

void Connection::end_if_complete(Transfer& transfer) {
  if (acknowledges() && direction_ == Direction::kSend) {
    if (!transfer.acknowledged || transfer.outstanding > 0) return;
    transfer.finished_bytes = transfer.plan.transfer_bytes();
  } else {
    if (transfer.finished_chunks < transfer.plan.count()) return;
    if (acknowledges()) acknowledge(transfer);
  }
  transfer.state = TransferState::kDone;
  --pending_;
}

TransferAnswer Connection::poll(TransferId id) {
  Transfer& transfer = slot(static_cast<uint64_t>(id));
  if (transfer.id != id || transfer.state == TransferState::kUnknown) return {};
  // What was sent twice counts once.
  TransferAnswer answer{.state = transfer.state,
                        .status = Status::ok(),
                        .bytes_done = std::min(transfer.finished_bytes, transfer.plan.transfer_bytes())};
  if (transfer.state == TransferState::kFailed) answer.status = status_;
  if (transfer.state != TransferState::kPending) transfer.state = TransferState::kUnknown;
  return answer;
}

Status Connection::close() {
  if (!status_.is_ok()) return status_;
  if (pending_ > 0) return Status(Code::kInvalidArgument, "close connection", concat(pending_, " transfers are pending"));
  if (!closed_ && log_enabled(LogLevel::kDebug)) {
    uint64_t bytes = 0;
    for (const auto& path : paths_) bytes += path->bytes;
    log(LogLevel::kDebug, "closing the ", name_of(direction_), " connection: All bytes: ", bytes);
  }
  closed_ = true;
  Status first;
  for (const auto& path : paths_) {
    if (!path->channel.status().is_ok()) continue;  // lost earlier; said then
    Status status = path->channel.close();
    if (first.is_ok()) first = std::move(status);
  }
  return first;
}

uint64_t Connection::in_flight() const {
  uint64_t sum = 0;
  for (const auto& path : paths_) sum += path->channel.in_flight();
  return sum;
}

bool Connection::all_closed() const {
  return std::all_of(paths_.begin(), paths_.end(), [](const auto& path) { return path->channel.closed(); });
}

std::vector<ChannelCounters> Connection::counters() const {
  std::vector<ChannelCounters> all;
  for (const auto& path : paths_) {
    all.push_back(
        {.nic = path->nic, .bytes = path->bytes, .chunks = path->chunks, .open = !closed_ && path->channel.status().is_ok()});
  }
  return all;
}

std::string Connection::flight_record() const {
  if (!grants()) return paths_.front()->channel.flight_record();
  std::string text = concat(pending_, " transfers pending");
  for (uint64_t id = placing_id_; direction_ == Direction::kRecv && id < next_id_ && id < placing_id_ + 4; ++id) {
    const Transfer& transfer = transfers_[id % transfers_.size()];
    text += concat("\ntransfer ", id, ": ", transfer.placed_chunks, " of ", transfer.plan.count(), " chunks granted");
  }
  if (!lost_.empty()) text += concat("\n", lost_.size(), " chunks of failed channels wait for another one");
  for (size_t i = 0; i < paths_.size(); ++i) {
    const Path& path = *paths_[i];
    text += concat("\n", label(i), path.channel.status().is_ok() ? "" : " (failed)");
    if (direction_ == Direction::kSend) text += concat(", ", path.granted.size(), " chunks granted and not posted");
    text += concat(": ", path.channel.flight_record());
  }
  return text;
}

}  // namespace tcpx
