#include "endpoint/peer_operations.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tcpx {
namespace {

constexpr size_t kCrowdedBytes = kMaxBacklogBytes / 4;

}  // namespace

// @param busy set to a slot whose memory the application's GPU still uses; the returned ranges do not count then
// @param counted gets the slots whose uses are counted, each once
Result<std::vector<HeldRange>> PeerOperations::look_up(const WireArray<WireRange>& wanted, bool writes,
                                                       std::optional<SlotId>& busy, std::vector<SlotId>& counted) const {
  std::vector<HeldRange> ranges;
  ranges.reserve(wanted.size());
  std::optional<HeldRange> advertised;  // of the slot before: the next range is often another part of it
  SlotId slot;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const WireRange range = wanted[i];
    if (!advertised || range.slot != slot) {
      bool counts = false;
      TCPX_ASSIGN_OR_RETURN(advertised, link_.shared.memory.look_up(link_.id, range.slot, writes, &counts));
      slot = range.slot;
      if (counts) counted.push_back(slot);
      if (!advertised) {
        busy = slot;
        return ranges;
      }
    }
    if (range.offset > advertised->bytes || range.bytes > advertised->bytes - range.offset)
      return part_of(*advertised, range.offset, range.bytes).status();
    std::byte* const data = advertised->data + range.offset;
    if (range.bytes == 0) continue;
    if (!ranges.empty() && &ranges.back().region() != &advertised->region())
      TCPX_RETURN_IF_ERROR(check_mix("look up remote ranges", ranges.front().region(), advertised->region()));
    ranges.emplace_back(advertised->region(), data, range.bytes, std::move(advertised->use));  // for the first of its slot
  }
  std::sort(counted.begin(), counted.end());
  counted.erase(std::unique(counted.begin(), counted.end()), counted.end());
  return ranges;
}

// Refuses the operation if `result` is an error, and gives back its part of the window. @return nullopt: refused
template <class T>
std::optional<T> PeerOperations::or_refuse(Result<T> result, uint64_t operation, const Charge& charge) {
  if (result.is_ok()) return std::move(result).value();
  link_.refuse(operation, charge, result.status());
  return std::nullopt;
}

Status PeerOperations::on(const FrameHeader& header, std::span<const std::byte> payload) {
  TCPX_ASSIGN_OR_RETURN(const auto busy, take(header, payload, false));
  if (busy) {
    held_up_.push_back({header, {payload.begin(), payload.end()}, *busy});
    held_up_.back().header.flags &= static_cast<uint16_t>(~kBegunFlag);  // those bytes have gone by
  }
  return Status::ok();
}

Result<std::optional<SlotId>> PeerOperations::take(const FrameHeader& header, std::span<const std::byte> payload, bool counted) {
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::kWrite:
      return take<WriteFrame>(header, payload, counted);
    case FrameType::kWriteData:
      return take<WriteDataFrame>(header, payload, counted);
    default:
      return take<ReadFrame>(header, payload, counted);
  }
}

template <class Frame>
Result<std::optional<SlotId>> PeerOperations::take(const FrameHeader& header, std::span<const std::byte> payload, bool counted) {
  constexpr bool kReads = Frame::kType == FrameType::kRead;
  Frame frame;
  TCPX_RETURN_IF_ERROR(decode(header, payload, frame));
  uint64_t answer_bytes = 0;
  if constexpr (kReads) {
    if (is_short(frame)) answer_bytes = frame.bytes;
    if (reads_.contains(frame.operation)) return unexpected(frame, "asked for before");
  }
  const Charge charge = charge_of(frame, answer_bytes);
  if (!counted) TCPX_RETURN_IF_ERROR(link_.count(frame.kType, frame.operation, charge));
  std::optional<SlotId> busy;
  std::vector<SlotId> counts;
  auto looked_up = look_up(frame.ranges, !kReads, busy, counts);
  if constexpr (Frame::kType == FrameType::kWrite) {
    if (frame.begun && !link_.eager) return unexpected(frame, kNotEager);
    TCPX_RETURN_IF_ERROR(link_.lanes.check(frame.offers, frame.bytes));
  }
  if (looked_up.is_ok() && !busy) {
    if constexpr (kReads) {
      if (!is_short(frame) && !link_.lanes.is_ready_to_offer(*looked_up, packing_of(frame, *looked_up)))
        busy = frame.ranges[0].slot;
    } else if constexpr (Frame::kType == FrameType::kWrite) {
      // A write that has begun cannot wait, because others come behind it.
      if (!frame.begun && !link_.lanes.is_ready_to_take(*looked_up, frame.packing)) busy = frame.ranges[0].slot;
    }
    // Last, because a frame that waits is taken again.
    if (!busy && !counts.empty()) {
      if (const Status spent = link_.shared.memory.spend(counts); !spent.is_ok()) looked_up = spent;
    }
  }
  if constexpr (Frame::kType == FrameType::kWrite) {
    if (frame.begun && frame.bytes > 0 && (busy || !looked_up.is_ok())) {
      let_go_by(frame, busy ? Charge{} : charge);
      if (!looked_up.is_ok()) {
        link_.answer(frame.operation, looked_up.status());
        return std::optional<SlotId>();
      }
    }
  }
  if (!looked_up.is_ok()) {
    link_.refuse(frame.operation, charge, looked_up.status());
    return busy;
  }
  if (!busy) TCPX_RETURN_IF_ERROR(begin(frame, std::move(*looked_up), charge));
  if (!busy && counts.empty()) lease(frame.ranges);
  return busy;
}

// A slot that has been used once will be used again.
void PeerOperations::lease(const WireArray<WireRange>& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const SlotId slot = ranges[i].slot;
    if (i == 0 || slot != ranges[i - 1].slot) link_.lanes.lease(link_.shared.memory, link_.id, slot);
  }
}

void PeerOperations::let_go_by(const WriteFrame& frame, const Charge& charge) {
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i < frame.ranges.size(); ++i) {
    if (frame.ranges[i].bytes > 0) lengths.push_back(frame.ranges[i].bytes);
  }
  link_.let_go_by(frame.operation, frame.bytes, frame.packing, std::move(lengths), charge);
}

bool PeerOperations::begin_held_up() {
  bool advanced = false;
  std::optional<SlotId> busy;  // slot found busy last: many frames may name one slot, and each question is a call of the driver
  // Taken out first, because an operation that begins may break the link.
  for (HeldUp& frame : std::exchange(held_up_, {})) {
    if (busy != frame.by) {
      const auto taken = take(frame.header, frame.payload, true);
      link_.break_with(taken.status());
      busy = taken.is_ok() ? *taken : std::nullopt;
      advanced |= !busy;
      if (!busy) continue;
      frame.by = *busy;
    }
    held_up_.push_back(std::move(frame));
  }
  return advanced;
}

Status PeerOperations::begin(const WriteFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge) {
  if (ranges.empty()) return unexpected(frame, "an empty write that is not inline");
  auto job = std::make_unique<PeerJob>(frame.operation, std::move(ranges), frame.bytes, charge);
  job->notify = message_of(frame.notify, link_.id);
  GoFrame go{.operation = frame.operation};
  const Status taken = link_.lanes.take(job->held, frame.offers, frame.packing, go);
  if (frame.begun && taken.is_ok() && go.packing == frame.packing) {
    job->packing = go.packing;
    link_.lanes.receive_begun(std::move(job));
    return Status::ok();
  }
  if (frame.begun) let_go_by(frame, taken.is_ok() ? Charge{} : charge);
  if (!taken.is_ok()) {
    frame.begun ? link_.answer(frame.operation, taken) : link_.refuse(frame.operation, charge, taken);
    return Status::ok();
  }
  link_.lanes.receive(std::move(job), frame.offers, go);
  return Status::ok();
}

Status PeerOperations::begin(const WriteDataFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge) {
  ++link_.stats.inline_received;
  link_.stats.bytes_received += frame.data.size();
  Delivery delivery{.notify = message_of(frame.notify, link_.id), .charge = charge, .answers = frame.operation};
  if (!is_on_gpu(ranges)) {
    if (const Status written = scatter(ranges, frame.data); !written.is_ok()) {
      link_.refuse(frame.operation, charge, written);
    } else {
      link_.deliver(std::move(delivery));
    }
    return Status::ok();
  }
  queue({.number = frame.operation, .ranges = std::move(ranges), .delivery = std::move(delivery), .charge = {}}, true,
        frame.data);
  return Status::ok();
}

Status PeerOperations::begin(const ReadFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge) {
  if (!is_short(frame) || link_.lanes.beats_frames(ranges)) return begin_long(frame, std::move(ranges), charge);
  if (!is_on_gpu(ranges)) {
    if (const auto data = or_refuse(gather(ranges, room_), frame.operation, charge); data) {
      answer_read(frame.operation, *data);
      link_.give_back(charge);
    }
    return Status::ok();
  }
  queue({.number = frame.operation, .ranges = std::move(ranges), .delivery = {}, .charge = charge}, false, {});
  return Status::ok();
}

Packing PeerOperations::packing_of(const ReadFrame& frame, std::span<const HeldRange> ranges) const {
  const Packing preferred = preferred_packing(ranges, frame.bytes);
  return link_.eager && frame.packing != preferred ? Packing::kPacked : preferred;
}

Status PeerOperations::begin_long(const ReadFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge) {
  if (link_.eager) {
    const auto prepared = or_refuse(link_.lanes.prepare_send(ranges, packing_of(frame, ranges)), frame.operation, charge);
    if (!prepared) return Status::ok();
    auto job = std::make_unique<PeerJob>(frame.operation, std::move(ranges), frame.bytes, charge);
    job->packing = *prepared;
    link_.stream->send(ReadyFrame{.operation = frame.operation, .bytes = frame.bytes, .packing = *prepared, .begun = true});
    link_.lanes.send_begun(std::move(job));
    return Status::ok();
  }
  // No window bounds the Ready frames with their offers, so a peer that asks for much and reads little gets it over the network.
  const bool crowded = link_.stream->backlog() >= kCrowdedBytes;
  const OfferName name{.operation = frame.operation, .of_read = true};
  const auto offer = or_refuse(link_.lanes.offer(name, ranges, frame.bytes, !crowded), frame.operation, charge);
  if (!offer) return Status::ok();
  auto job = std::make_unique<PeerJob>(frame.operation, std::move(ranges), frame.bytes, charge);
  job->ways = offer->ways;
  reads_.emplace(frame.operation, std::move(job));
  link_.stream->send(
      ReadyFrame{.operation = frame.operation, .bytes = frame.bytes, .packing = offer->packing, .offers = offer->others});
  return Status::ok();
}

Status PeerOperations::on(const GoFrame& frame) {
  const auto found = reads_.find(frame.operation);
  if (found == reads_.end()) return unexpected(frame, "no such read");
  const std::string_view objection = link_.lanes.objection_to(frame, found->second->held, found->second->ways);
  if (!objection.empty()) return unexpected(frame, objection);
  std::unique_ptr<PeerJob> job = std::move(found->second);
  reads_.erase(found);
  link_.lanes.send(std::move(job), frame);
  return Status::ok();
}

bool PeerOperations::cancel_read(uint64_t number) {
  const auto found = reads_.find(number);
  if (found == reads_.end()) return false;
  link_.give_back(found->second->charge);
  reads_.erase(found);
  return true;
}

void PeerOperations::cancel_write(uint64_t number) {
  const auto found = std::find_if(held_up_.begin(), held_up_.end(), [number](const HeldUp& frame) {
    return static_cast<FrameType>(frame.header.type) == FrameType::kWrite && frame.header.operation == number;
  });
  if (found == held_up_.end()) return;
  WriteFrame frame;
  link_.break_with(decode(found->header, found->payload, frame));
  const Charge charge = charge_of(frame);
  held_up_.erase(found);
  link_.refuse(number, charge, Status(Code::kCancelled, "write", "given up by the writer"));
}

Status PeerOperations::drop_write(uint64_t number) {
  const auto job = link_.take_awaited_write(number);
  if (job == nullptr) return unexpected(FrameType::kCancel, number, "no write waits for its begin");
  link_.refuse(number, job->charge, Status(Code::kCancelled, "write", "given up by the writer"));
  return Status::ok();
}

void PeerOperations::answer_read(uint64_t number, std::span<const std::byte> data) {
  link_.stream->send(ReadDataFrame{.operation = number, .data = data});
  ++link_.stats.inline_sent;
  link_.stats.bytes_sent += data.size();
}

void PeerOperations::queue(Copying copying, bool writes, std::span<const std::byte> data) {
  const std::span<const HeldRange> ranges = copying.ranges;  // stay where they are when `copying` is moved
  if (writes) {
    copies_.push_write(std::move(copying), ranges, data);
  } else {
    copies_.push_read(std::move(copying), ranges);
  }
  link_.break_with(copies_.start());
}

bool PeerOperations::progress() {
  bool advanced = !held_up_.empty() && !link_.has_failed() && begin_held_up();
  advanced |= copies_.end_those_done(
      link_.has_failed(), [this](const Status& copied) { end_copy(copied); }, [] {});
  link_.break_with(copies_.start());
  return advanced;
}

void PeerOperations::end_copy(const Status& copied) {
  Copying& copying = copies_.front();
  if (!copied.is_ok()) return link_.break_with(copied);
  if (copies_.front_writes()) return link_.deliver(std::move(copying.delivery));
  if (!link_.has_failed()) answer_read(copying.number, copies_.front_bytes());
  link_.give_back(copying.charge);
}

void PeerOperations::end_moved(PeerJob& job, bool received) {
  const bool was_refused = job.ranges.empty();
  if (job.status.is_ok() && !was_refused) (received ? link_.stats.bytes_received : link_.stats.bytes_sent) += job.bytes;
  if (!received || was_refused) return link_.give_back(job.charge);  // a read ends at the peer by its own lane
  if (!job.status.is_ok()) return link_.refuse(job.number, job.charge, job.status);
  link_.deliver({.notify = std::move(job.notify), .charge = job.charge, .answers = job.number});
}

bool PeerOperations::serves(MemoryId region) const {
  return std::any_of(reads_.begin(), reads_.end(), [region](const auto& entry) { return uses(entry.second->held, region); }) ||
         copies_.any_of([region](const Copying& copy) { return uses(copy.ranges, region); });
}

}  // namespace tcpx
