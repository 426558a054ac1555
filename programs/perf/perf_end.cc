// The client says how many transfers come next; both ends fill what they will send, meet at a barrier, move the data, and compare
// what they received. Only the moving is timed.
#include "programs/perf/perf_end.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/text.h"
#include "device/gpu_pattern.h"
#include "measure/message_plan.h"
#include "measure/plain_text.h"
#include "measure/resources.h"
#include "transfer/run.h"

namespace tcpx::perf {
namespace {

// Of what the ends exchange.
constexpr int kProtocolVersion = 4;
constexpr std::string_view kMustMatch[] = {"perf protocol", "layer",   "mode",     "first size", "last size",  "factor",
                                           "iterations",    "warm-up", "duration", "channels",   "chunk bytes"};

// All slots of one direction: enough for the caches to be of no help, little enough to be filled and compared in no time.
constexpr uint64_t kSlotsOnGpu = uint64_t{2} << 30;
constexpr uint64_t kSlotsOnHost = uint64_t{512} << 20;

// Moving, filling and comparing go at this rate at least.
constexpr uint64_t kSlowestBytesPerMs = 50'000;

Result<uint64_t> number_of(const Parameters& parameters, const std::string& name) {
  uint64_t number = 0;
  const auto found = parameters.find(name);
  if (found != parameters.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  return Status(Code::kProtocol, "agree with the peer", concat('\'', name, "' is missing or malformed"));
}

/// Text of the peer that will be printed here.
Result<std::string> text_of(const Parameters& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  if (found != parameters.end() && is_plain_text(found->second)) return found->second;
  return Status(Code::kProtocol, "agree with the peer", concat('\'', name, "' is missing or not plain text"));
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    words.emplace_back(list.substr(0, comma));
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return words;
}

}  // namespace

PerfEnd::PerfEnd(const EndPlace& place, PerfListener listener)
    : place_(place),
      options_(place.options),
      listener_(std::move(listener)),
      mover_(options_.layer == Layer::kPipeline ? make_pipeline_mover(place) : make_layer_mover(place)) {}

Deadline PerfEnd::data_deadline(uint64_t bytes) const {
  return Deadline::after(options_.timeout + std::chrono::milliseconds(bytes / kSlowestBytesPerMs));
}

// Half of what is free, for all that this machine's ends need of that kind of memory.
Result<uint64_t> PerfEnd::room_per_direction() const {
  TCPX_ASSIGN_OR_RETURN(const uint64_t free_bytes, place_.on_gpu() ? free_gpu_bytes(place_.gpu) : free_host_bytes());
  const bool shared = options_.role == PerfRole::kLoopback && (!place_.on_gpu() || place_.endpoint.memory->device_count() == 1);
  const uint64_t directions = (place_.sends() && place_.receives() ? 2 : 1) * (shared ? 2 : 1);
  return free_bytes / 2 / directions;
}

Status PerfEnd::agree(BootstrapChannel& channel) {
  TCPX_ASSIGN_OR_RETURN(const uint64_t room, room_per_direction());
  std::string nics;
  for (const std::string& nic : mover_->nics()) nics += concat(nics.empty() ? "" : ",", nic);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.duration).count();
  const bool by_count = options_.duration <= Duration::zero();
  const Parameters mine = {{"perf protocol", std::to_string(kProtocolVersion)},
                           {"layer", name_of(options_.layer)},
                           {"mode", title_of(options_.mode)},
                           {"first size", std::to_string(options_.sizes.min_bytes)},
                           {"last size", std::to_string(options_.sizes.max_bytes)},
                           {"factor", std::to_string(options_.sizes.factor)},
                           {"iterations", by_count ? std::to_string(options_.iterations) : "by time"},
                           {"warm-up", std::to_string(options_.warm_up)},
                           {"duration", concat(ms, " ms")},
                           {"channels", std::to_string(mover_->channels())},
                           {"chunk bytes", std::to_string(options_.pipeline.chunk_bytes)},
                           {"room", std::to_string(room)},
                           {"slot room", std::to_string(std::min(room, place_.on_gpu() ? kSlotsOnGpu : kSlotsOnHost))},
                           {"verified", verified() ? "yes" : "no"},
                           {"nics", nics},
                           {"unpack", mover_->unpack()},
                           {"about", mover_->describe()}};
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.exchange_parameters(mine, kMustMatch, place_.deadline()));
  slot_room_ = number_of(mine, "slot room").value();
  largest_ = room;
  return take_peer(theirs);
}

Status PerfEnd::take_peer(const Parameters& theirs) {
  const Result<uint64_t> room = number_of(theirs, "room"), slot_room = number_of(theirs, "slot room");
  if (!room.is_ok()) return room.status();
  if (!slot_room.is_ok()) return slot_room.status();
  const bool less_here = largest_ <= *room;
  largest_ = std::min(largest_, *room);
  slot_room_ = std::min(slot_room_, *slot_room);
  if (options_.sizes.max_bytes > largest_) {
    return {Code::kExhausted, "allocate memory",
            concat("a transfer of ", options_.sizes.max_bytes, " bytes; the ", less_here == is_server() ? "server" : "client",
                   " has room for ", largest_, " in each direction (half of what is free)")};
  }
  const auto nics = text_of(theirs, "nics"), about = text_of(theirs, "about"), verified = text_of(theirs, "verified"),
             unpack_there = text_of(theirs, "unpack");
  for (const auto* text : {&nics, &about, &verified, &unpack_there}) {
    if (!text->is_ok()) return text->status();
  }
  head_.version = TCPX_VERSION;
  head_.layer = options_.layer;
  head_.mode = options_.mode;
  head_.server = is_server() ? mover_->describe() : *about;
  head_.client = is_server() ? *about : mover_->describe();
  head_.unpack = is_server() ? mover_->unpack() : *unpack_there;
  head_.nics = is_server() ? mover_->nics() : words_of(*nics);
  head_.channels = mover_->channels();
  head_.chunk_bytes = options_.pipeline.chunk_bytes;
  head_.warm_up = options_.warm_up;
  head_.iterations = options_.iterations;
  head_.duration = options_.duration;
  head_.verified = this->verified() && *verified == "yes";
  return Status::ok();
}

Status PerfEnd::run(BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(agree(channel));
  TCPX_RETURN_IF_ERROR(mover_->open(channel, slot_room_));
  listener_.on_begin(head_);
  for (const uint64_t bytes : sizes_of(options_.sizes)) {
    TCPX_ASSIGN_OR_RETURN(const EndRow mine, measure(channel, bytes));
    TCPX_ASSIGN_OR_RETURN(const auto received, channel.exchange_parameters(encode_row(mine), {}, data_deadline(bytes)));
    TCPX_ASSIGN_OR_RETURN(const EndRow theirs, decode_row(received));
    listener_.on_row(is_server() ? make_row(options_.mode, bytes, mine, theirs) : make_row(options_.mode, bytes, theirs, mine));
  }
  // Nobody closes before both have all they wanted (13, 36).
  TCPX_RETURN_IF_ERROR(channel.barrier(place_.deadline()));
  return mover_->close();
}

Result<EndRow> PerfEnd::measure(BootstrapChannel& channel, uint64_t bytes) {
  EndRow row;
  row.verified = verified();
  RoundTimes times;
  const Status status = run_rounds(channel, bytes, row, times);
  set_times(row, std::move(times.samples_ns));
  row.busy_ns = times.busy_ns;
  row.cpu_ns = times.cpu_ns;
  row.nics = std::move(times.nics);
  if (status.is_ok()) return row;
  unfinished_ = std::move(row);
  unfinished_bytes_ = bytes;
  return status;
}

Status PerfEnd::run_rounds(BootstrapChannel& channel, uint64_t bytes, EndRow& row, RoundTimes& times) {
  uint64_t warmed_up = 0, timed = 0;
  TimePoint timed_since = Clock::steady().now();
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const NextRound next, agree_on_round(channel, next_round(bytes, warmed_up, timed, timed_since), bytes));
    if (next.transfers == 0) return Status::ok();
    const RoundPlan plan{.ping_pong = options_.mode == PerfMode::kLatency,
                         .begins = !is_server(),
                         .bytes = bytes,
                         .stride = slot_stride(bytes),
                         .transfers = next.transfers};
    TCPX_RETURN_IF_ERROR(mover_->fill(plan, ++round_));
    // The peer may still be filling.
    TCPX_RETURN_IF_ERROR(channel.barrier(data_deadline(bytes * next.transfers)));
    RoundTimes ignored;
    TCPX_RETURN_IF_ERROR(run_one(channel, plan, next.timed, next.timed ? times : ignored));
    TCPX_RETURN_IF_ERROR(mover_->verify(plan, round_, row));
    if (next.timed && timed == 0) timed_since = Clock::steady().now();
    (next.timed ? timed : warmed_up) += next.transfers;
  }
}

PerfEnd::NextRound PerfEnd::next_round(uint64_t bytes, uint64_t warmed_up, uint64_t timed, TimePoint timed_since) const {
  const uint32_t slots = slots_in(slot_room_, bytes);
  const auto up_to = [&](uint64_t left) { return static_cast<uint32_t>(std::min<uint64_t>(slots, left)); };
  if (warmed_up < options_.warm_up) return {up_to(options_.warm_up - warmed_up), false};
  if (options_.duration <= Duration::zero()) return {up_to(options_.iterations - timed), true};
  const bool over = timed > 0 && Clock::steady().now() - timed_since >= options_.duration;
  return {over ? 0 : slots, true};
}

Result<PerfEnd::NextRound> PerfEnd::agree_on_round(BootstrapChannel& channel, const NextRound& mine, uint64_t bytes) {
  const uint32_t slots = slots_in(slot_room_, bytes);
  const Parameters parameters = {{"transfers", std::to_string(mine.transfers)}, {"timed", mine.timed ? "1" : "0"}};
  // The peer may still be receiving and comparing the round before.
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.exchange_parameters(parameters, {}, data_deadline(bytes * slots * 2)));
  if (!is_server()) return mine;
  const auto transfers = theirs.find("transfers"), timed = theirs.find("timed");
  NextRound next;
  if (transfers != theirs.end() && timed != theirs.end()) {
    const std::string& text = transfers->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), next.transfers);
    next.timed = timed->second == "1";
    if (error == std::errc() && end == text.data() + text.size() && next.transfers <= slots) return next;
  }
  return Status(Code::kProtocol, "agree on a round", "the client's plan is missing or malformed");
}

Status PerfEnd::run_one(BootstrapChannel& channel, const RoundPlan& plan, bool timed, RoundTimes& times) {
  const uint64_t done_before = times.samples_ns.size(), busy_before = times.busy_ns;
  const TimePoint begin = Clock::steady().now();
  const auto on_tick = [&](uint32_t done) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::steady().now() - begin).count();
    listener_.on_progress({plan.bytes, timed, done_before + done, busy_before + static_cast<uint64_t>(elapsed)});
    return channel.peer_status();
  };
  const RoundWait wait{.deadline = data_deadline(plan.bytes * plan.transfers), .stop = &place_.stop, .on_tick = on_tick};
  const Status status = mover_->run(plan, wait, times);
  if (status.is_ok()) listener_.on_progress({plan.bytes, timed, times.samples_ns.size(), times.busy_ns});
  return status.is_ok() ? status : peers_reason(channel, status);
}

}  // namespace tcpx::perf
