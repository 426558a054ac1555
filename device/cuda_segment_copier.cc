#include "device/cuda_memory_ops.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/byte_sum.h"
#include "base/clock.h"
#include "base/text.h"
#include "device/flagged_stream.h"
#include "device/gpu_presence.h"
#include "device/list_ring.h"
#include "device/resident_copier.h"
#include "device/segment_launch.h"
#include "device/sum_launch.h"
#include "device/ticket_ring.h"

namespace tcpx {
namespace {

constexpr size_t kInFlight = 64;
/// Longest copy that does not queue behind longer ones; NVLink moves so much in 12 us.
constexpr uint64_t kUrgentBytes = 4u << 20;
static_assert(kUrgentBytes >= ResidentCopier::kMostBytes);
/// Warps that a long submit is spread over, and least bytes for each.
constexpr uint64_t kManyPieces = 2048;
constexpr uint64_t kLeastPieceBytes = 4096;
/// Blocks that a long checksum is spread over, and least bytes for each, so that its threads have enough to do beside adding up what each
/// has. Longer pieces are slower: 128 MiB, copied over NVLink and summed, take 376 us in pieces of 16 KiB, 386 of 64 (two H200s).
constexpr uint64_t kManySums = 8192;
constexpr uint64_t kLeastSumBytes = 16 * 1024;
constexpr size_t kMostPieces = kMaxCopySegments + kManySums;
/// Two of the largest submits, with a list of copies and one of sums: one is written while the other is read.
constexpr size_t kListCapacity = 2 * 2 * kMostPieces;

struct Shape {
  size_t segments = 0;  // that are not empty
  uint64_t bytes = 0, longest = 0;
  CopySegment only{};  // the last of them
};

Shape shape_of(std::span<const CopySegment> segments) {
  Shape shape;
  for (const CopySegment& segment : segments) {
    if (segment.bytes == 0) continue;
    ++shape.segments;
    shape.bytes += segment.bytes;
    shape.longest = std::max(shape.longest, segment.bytes);
    shape.only = segment;
  }
  return shape;
}

// The lists of checksums lie where those of copies do.
static_assert(sizeof(SumPiece) == sizeof(KernelSegment) && alignof(SumPiece) == alignof(KernelSegment));
static_assert(kSumThreads == ByteSumKey::kBlockWords);

/// The share of a warp or a block, `many` of which there are: pieces begin at multiples of 128 in their segment, so that they keep its
/// place in cache lines.
uint64_t piece_bytes(uint64_t bytes, uint64_t many, uint64_t least) {
  return std::max(least, (bytes / many + 127) / 128 * 128);
}

size_t count_pieces(std::span<const CopySegment> segments, const Shape& shape, uint64_t piece) {
  if (shape.longest <= piece) return shape.segments;
  size_t count = 0;
  for (const CopySegment& segment : segments) {
    // Many are short, and a division takes as long as everything else.
    count += segment.bytes <= piece ? static_cast<size_t>(segment.bytes != 0) : (segment.bytes - 1) / piece + 1;
  }
  return count;
}

/// @param list room for count_pieces.
void write_pieces(std::span<const CopySegment> segments, uint64_t piece, KernelSegment* list) {
  for (const CopySegment& segment : segments) {
    for (uint64_t at = 0; at < segment.bytes; at += piece) {
      *list++ = KernelSegment{segment.to + at, segment.from + at, std::min<uint64_t>(piece, segment.bytes - at)};
    }
  }
}

/// @param targets sums what is at the `to` of segments, else at `from` @param position in the string of the first byte
/// @param list room for count_pieces
void write_sum_pieces(std::span<const CopySegment> segments, bool targets, uint64_t piece, uint64_t position, SumPiece* list) {
  for (const CopySegment& segment : segments) {
    const std::byte* const data = targets ? segment.to : segment.from;
    for (uint64_t at = 0; at < segment.bytes; at += piece) {
      const uint64_t bytes = std::min<uint64_t>(piece, segment.bytes - at);
      *list++ = SumPiece{data + at, position, bytes};
      position += bytes;
    }
  }
}

SumFactors factors_of(const ByteSumKey& key, uint64_t string_bytes) {
  SumFactors factors;
  for (size_t word = 0; word < kSumThreads; ++word) factors.in_block[word] = key.power_in_block(word);
  std::copy(key.squares().begin(), key.squares().end(), factors.squares);
  factors.words = words_up_to(string_bytes);
  return factors;
}

// Many segments are one kernel launch, whose list lies in mapped memory. One segment goes to the copy engine, or, if it is short,
// to a resident kernel that is running; the second short one within kPatience starts such a kernel for the next ones. There are
// two, so that one is running when the other's life ends. Kernels of two submits run at once: the blocks of the second take the places
// that the last ones of the first leave empty. What is to be summed as well is copied by a kernel, whatever it is: the copy engine would
// leave a second one to wait for.
class CudaSegmentCopier final : public SegmentCopier {
 public:
  using Residents = std::array<std::unique_ptr<ResidentCopier>, 2>;
  using Streams = std::array<FlaggedStream, 4>;
  CudaSegmentCopier(Streams streams, MemoryBuffer lists, MemoryBuffer totals, MemoryBuffer sums, Residents residents)
      : lists_(std::move(lists)),
        totals_(std::move(totals)),
        sums_(std::move(sums)),
        residents_(std::move(residents)),
        streams_(std::move(streams)) {}
  ~CudaSegmentCopier() override { drain(); }

  Result<CopyTicket> submit(std::span<const CopySegment> segments) override { return submit(segments, false); }
  Result<CopyTicket> submit_between_gpus(std::span<const CopySegment> segments) override { return submit(segments, true); }

  Result<CopyTicket> submit_sum(const ByteSumKey& key, std::span<const CopySegment> segments, uint64_t& sum) override {
    TCPX_RETURN_IF_ERROR(check(segments));
    const CaptureGuard captures;
    const Shape shape = shape_of(segments);
    return begin_sum(segments, {.key = key, .begin = 0, .total = shape.bytes}, shape, false, sum);
  }

  Result<CopyTicket> submit_summed(std::span<const CopySegment> segments, const SumPlace& place, uint64_t& part) override {
    TCPX_RETURN_IF_ERROR(check(segments));
    const CaptureGuard captures;
    return begin_sum(segments, place, shape_of(segments), true, part);
  }

  Result<bool> query(CopyTicket ticket) override {
    return tickets_.query(UnpackTicket{static_cast<uint64_t>(ticket)}, [this](size_t slot) -> Result<bool> {
      Result<bool> done = is_done(&works_[slot]);
      if (!done.is_ok()) drain();
      if (!done.is_ok() || !*done) return done;
      collect(slot);
      list_ring_.release(works_[slot].list_held);
      return done;
    });
  }

  // Work with a stream of its own, or with a kernel that is running, does not end in the order of submission.
  Result<bool> query_alone(CopyTicket ticket) override {
    const Result<bool> in_order = query(ticket);
    if (!in_order.is_ok() || *in_order) return in_order;
    const size_t slot = static_cast<uint64_t>(ticket) % kInFlight;
    Work& work = works_[slot];
    if (work.way == Way::kStream && work.stream < kUrgent) return false;
    const Result<bool> done = is_done(&work);
    if (!done.is_ok()) return fail(done.status());
    if (!*done) return false;
    work.way = Way::kNothing;
    collect(slot);
    return true;
  }

 private:
  enum class Way { kNothing, kStream, kResident };
  /// The work of a slot's ticket.
  struct Work {
    Way way = Way::kNothing;
    size_t stream = 0;  // kStream: of streams_
    uint32_t mark = 0;  // kStream
    size_t list_held = 0;
    size_t resident = 0;    // kResident: index of the copier
    CopySegment segment{};  // kResident
    uint64_t* sum = nullptr;  // where its checksum goes; null: there is none, or it has been collected
  };
  // Indices of streams_, behind the two of long copies: short copies, and sums of what somebody else copies.
  static constexpr size_t kUrgent = 2, kSums = 3;

  Status check(std::span<const CopySegment> segments) const {
    TCPX_RETURN_IF_ERROR(tickets_.ready());
    if (segments.size() <= kMaxCopySegments) return Status::ok();
    return Status(Code::kInvalidArgument, "copy segments", concat(segments.size(), ", at most ", kMaxCopySegments));
  }

  Result<CopyTicket> submit(std::span<const CopySegment> segments, bool between_gpus) {
    TCPX_RETURN_IF_ERROR(check(segments));
    const CaptureGuard captures;
    const Shape shape = shape_of(segments);
    Work& work = works_[tickets_.next_slot()];
    work = Work{};
    Status started = Status::ok();
    if (shape.segments == 1) {
      started = shape.bytes <= ResidentCopier::kMostBytes ? start_short(shape.only, between_gpus, &work)
                                                          : start_copy(shape.only, &work);
    } else if (shape.segments != 0) {
      const uint64_t piece = piece_bytes(shape.bytes, kManyPieces, kLeastPieceBytes);
      const size_t count = count_pieces(segments, shape, piece);
      TCPX_ASSIGN_OR_RETURN(const ListStretch stretch, list_ring_.take(count));
      work.list_held = stretch.held;
      write_pieces(segments, piece, reinterpret_cast<KernelSegment*>(lists_.host()) + stretch.first);
      started = start_kernel(stretch.first, static_cast<uint32_t>(count), &work);
    }
    if (!started.is_ok()) return fail(std::move(started));
    return CopyTicket{static_cast<uint64_t>(tickets_.push())};
  }

  Status start_short(const CopySegment& segment, bool between_gpus, Work* work) {
    const TimePoint now = Clock::steady().now();
    const bool often = now - newest_short_ < ResidentCopier::kPatience;
    newest_short_ = now;
    for (const size_t which : {newest_, 1 - newest_}) {
      if (!residents_[which]->is_serving()) continue;
      residents_[which]->post(segment, between_gpus);
      *work = Work{.way = Way::kResident, .resident = which, .segment = segment};
      // After the post, so that this message does not wait for the launch.
      return residents_[newest_]->is_old(now) ? call_in(1 - newest_, now) : Status::ok();
    }
    TCPX_RETURN_IF_ERROR(start_copy(segment, work));
    return often ? call_in(newest_, now) : Status::ok();
  }

  Status call_in(size_t which, TimePoint now) {
    const Result<bool> launched = residents_[which]->start(now);
    if (launched.is_ok() && *launched) newest_ = which;
    return launched.status();
  }

  Status start_copy(const CopySegment& segment, Work* work) {
    // Short ones do not queue behind long ones.
    const size_t stream = segment.bytes <= kUrgentBytes ? kUrgent : 0;
    const cudaError_t error =
        cudaMemcpyAsync(segment.to, segment.from, segment.bytes, cudaMemcpyDefault, streams_[stream].stream().get());
    TCPX_RETURN_IF_ERROR(cuda_status(error, "start copy of a segment"));
    return mark(stream, work);
  }

  Status start_kernel(size_t first, uint32_t count, Work* work) {
    next_kernels_ = 1 - next_kernels_;
    const auto* const list = reinterpret_cast<const KernelSegment*>(lists_.device()) + first;
    const cudaError_t error = launch_copy_segments(list, count, streams_[next_kernels_].stream().get());
    TCPX_RETURN_IF_ERROR(cuda_status(error, "launch segment kernel"));
    return mark(next_kernels_, work);
  }

  /// @param copies sums what it has copied, else the sources
  Result<CopyTicket> begin_sum(std::span<const CopySegment> segments, const SumPlace& place, const Shape& shape, bool copies,
                               uint64_t& sum) {
    const uint64_t piece = piece_bytes(shape.bytes, kManySums, kLeastSumBytes);
    const size_t count = count_pieces(segments, shape, piece);
    const bool is_whole = shape.segments == 1;
    TCPX_ASSIGN_OR_RETURN(const ListStretch room, list_ring_.take(is_whole ? 0 : copies ? 2 * count : count));
    const size_t slot = tickets_.next_slot();
    Work& work = works_[slot];
    work = Work{.list_held = room.held, .sum = &sum};
    sum_in(slot) = 0;
    SumList list{.pieces = reinterpret_cast<const SumPiece*>(lists_.device()) + room.first,
                 .count = static_cast<uint32_t>(count),
                 .piece_bytes = 0,
                 .whole = {},
                 .segments = reinterpret_cast<const KernelSegment*>(lists_.device()) + room.first + count,
                 .from = shape.only.from,
                 .total = reinterpret_cast<SumTotal*>(totals_.device()) + slot,
                 .sum = reinterpret_cast<uint64_t*>(sums_.device()) + slot};
    if (is_whole) {
      list.piece_bytes = static_cast<uint32_t>(piece);
      list.whole = {copies ? shape.only.to : shape.only.from, place.begin, shape.bytes};
    } else {
      write_sum_pieces(segments, copies, piece, place.begin, reinterpret_cast<SumPiece*>(lists_.host()) + room.first);
      if (copies) write_pieces(segments, piece, reinterpret_cast<KernelSegment*>(lists_.host()) + room.first + count);
    }
    size_t stream = kSums;
    if (copies) stream = shape.bytes <= kUrgentBytes ? kUrgent : next_kernels_ = 1 - next_kernels_;
    if (count != 0) {
      const cudaError_t error =
          launch_sum_pieces(list, copies, factors_of(place.key, place.total), streams_[stream].stream().get());
      Status started = cuda_status(error, "launch checksum kernel");
      if (started.is_ok()) started = mark(stream, &work);
      if (!started.is_ok()) return fail(std::move(started));
    }
    return CopyTicket{static_cast<uint64_t>(tickets_.push())};
  }

  uint64_t& sum_in(size_t slot) { return reinterpret_cast<uint64_t*>(sums_.host())[slot]; }
  void collect(size_t slot) {
    if (uint64_t* const sum = std::exchange(works_[slot].sum, nullptr)) *sum = sum_in(slot);
  }

  Status mark(size_t stream, Work* work) {
    TCPX_ASSIGN_OR_RETURN(const uint32_t mark, streams_[stream].mark());
    work->way = Way::kStream;
    work->stream = stream;
    work->mark = mark;
    return Status::ok();
  }

  Result<bool> is_done(Work* work) {
    switch (work->way) {
      case Way::kNothing:
        return true;
      case Way::kStream:
        return streams_[work->stream].has_reached(work->mark);
      case Way::kResident:
        break;
    }
    TCPX_ASSIGN_OR_RETURN(const ResidentCopier::Answer answer, residents_[work->resident]->poll());
    if (answer != ResidentCopier::Answer::kLost) return answer == ResidentCopier::Answer::kDone;
    TCPX_RETURN_IF_ERROR(start_copy(work->segment, work));
    return false;
  }

  Status fail(Status error) {
    drain();
    return tickets_.fail(std::move(error));
  }

  void drain() const {
    for (const FlaggedStream& stream : streams_) stream.drain();
    for (const auto& resident : residents_) resident->drain();
  }

  TicketRing tickets_{kInFlight, "copies"};
  std::array<Work, kInFlight> works_;  // by slot of tickets_
  const MemoryBuffer lists_;           // entries of list_ring_: KernelSegment, SumPiece
  const MemoryBuffer totals_, sums_;   // by slot of tickets_: SumTotal, and what became of it
  ListRing list_ring_{kListCapacity};
  TimePoint newest_short_{};
  size_t newest_ = 0;  // of residents_, the one launched last
  const Residents residents_;
  Streams streams_;
  size_t next_kernels_ = 0;  // of streams_, the one that the last kernel went to
};

Status load_copy_kernels(int device) {
  cudaError_t loaded = load_segment_kernels();
  if (loaded == cudaSuccess) loaded = load_sum_kernels();
  if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorUnsupportedPtxVersion) {
    return Status(Code::kUnsupported, "make segment copier",
                  concat("this build has no kernel for GPU ", device, " (", cudaGetErrorName(loaded), ")"), Domain::kCuda,
                  static_cast<int32_t>(loaded));
  }
  return cuda_status(loaded, "load segment kernels");
}

}  // namespace

Result<std::unique_ptr<SegmentCopier>> make_cuda_segment_copier(int device, MemoryOps& memory) {
  const Result<int>& count = gpu_count();
  if (!count.is_ok()) return count.status();
  if (device < 0 || device >= *count) {
    return Status(Code::kInvalidArgument, "make segment copier", concat("no GPU ", device, ": there are ", *count));
  }
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
  TCPX_RETURN_IF_ERROR(load_copy_kernels(device));
  TCPX_ASSIGN_OR_RETURN(FlaggedStream first, FlaggedStream::create(device, memory));
  TCPX_ASSIGN_OR_RETURN(FlaggedStream second, FlaggedStream::create(device, memory));
  TCPX_ASSIGN_OR_RETURN(FlaggedStream urgent, FlaggedStream::create(device, memory));
  TCPX_ASSIGN_OR_RETURN(FlaggedStream summing, FlaggedStream::create(device, memory));
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer lists, memory.allocate_mapped(device, kListCapacity * sizeof(KernelSegment)));
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer totals, memory.allocate_device(device, kInFlight * sizeof(SumTotal)));
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer sums, memory.allocate_mapped(device, kInFlight * sizeof(uint64_t)));
  CudaSegmentCopier::Residents residents;
  for (auto& resident : residents) {
    TCPX_ASSIGN_OR_RETURN(resident, ResidentCopier::create(device, memory));
  }
  return std::unique_ptr<SegmentCopier>(std::make_unique<CudaSegmentCopier>(
      CudaSegmentCopier::Streams{std::move(first), std::move(second), std::move(urgent), std::move(summing)}, std::move(lists),
      std::move(totals), std::move(sums), std::move(residents)));
}

}  // namespace tcpx
