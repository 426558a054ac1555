#include "device/resident_copier.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace tcpx {
namespace {

uint32_t load_number(uint32_t& number) {
  return std::atomic_ref<uint32_t>(number).load(std::memory_order_acquire);
}

// Tag in the upper half, as TaggedWord lies in memory.
uint64_t& whole(TaggedWord& word) {
  return reinterpret_cast<uint64_t&>(word);
}

}  // namespace

Result<std::unique_ptr<ResidentCopier>> ResidentCopier::create(int device, MemoryOps& memory) {
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer shared, memory.allocate_mapped(device, sizeof(ResidentMemory)));
  TCPX_ASSIGN_OR_RETURN(Stream stream, Stream::create());
  return std::unique_ptr<ResidentCopier>(new ResidentCopier(memory, std::move(shared), std::move(stream)));
}

ResidentCopier::~ResidentCopier() {
  drain();
}

void ResidentCopier::drain() const {
  const CaptureGuard captures;
  // The kernel leaves by itself. A broken context answers at once.
  [[maybe_unused]] const cudaError_t drained = cudaStreamSynchronize(stream_.view().get());
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
}

bool ResidentCopier::has_left() const {
  return load_number(shared().gone) == launch_;
}

bool ResidentCopier::is_serving() const {
  return launch_ != 0 && next_ - oldest_ < kResidentBoxes && load_number(shared().started) == launch_ && !has_left();
}

ResidentMode ResidentCopier::mode_of(const CopySegment& segment) const {
  static_assert(kMostBytesInRequest <= kMostBytesInAnswer);
  // Each of these queries is a driver call: 0.15 us, of memory of another process 0.6.
  if (segment.bytes > kMostBytesInAnswer) return ResidentMode::kCopy;
  if (memory_.is_device_memory(segment.from)) {
    return memory_.is_device_memory(segment.to) ? ResidentMode::kCopy : ResidentMode::kInAnswer;
  }
  return segment.bytes <= kMostBytesInRequest ? ResidentMode::kInRequest : ResidentMode::kCopy;
}

uint32_t ResidentCopier::post(const CopySegment& segment, bool between_gpus) {
  const ResidentMode mode = between_gpus ? ResidentMode::kCopy : mode_of(segment);
  posted_[next_ % kResidentBoxes] = Posted{segment, mode};
  std::array<uint32_t, kResidentWords> data{};
  const auto to = reinterpret_cast<uintptr_t>(segment.to);
  const auto from = reinterpret_cast<uintptr_t>(segment.from);
  data[0] = static_cast<uint32_t>(to);
  data[1] = static_cast<uint32_t>(to >> 32);
  data[2] = static_cast<uint32_t>(from);
  data[3] = static_cast<uint32_t>(from >> 32);
  data[4] = static_cast<uint32_t>(segment.bytes);
  data[5] = static_cast<uint32_t>(mode);
  if (mode == ResidentMode::kInRequest) std::memcpy(data.data() + kRequestHeaderWords, segment.from, segment.bytes);
  ResidentBox& box = shared().boxes[next_ % kResidentBoxes];
  for (size_t i = 0; i < data.size(); ++i) {
    // Pairs with the kernel's fence: orders the host's writes into `from`, and GPU work that it saw end, before the request.
    std::atomic_ref<uint64_t>(whole(box.request[i])).store(data[i] | uint64_t{next_} << 32, std::memory_order_release);
  }
  return next_++;
}

bool ResidentCopier::take_oldest() {
  const Posted& posted = posted_[oldest_ % kResidentBoxes];
  if (posted.mode != ResidentMode::kInAnswer) return static_cast<int32_t>(load_number(shared().done) - oldest_) >= 0;
  ResidentBox& box = shared().boxes[oldest_ % kResidentBoxes];
  std::array<uint32_t, kResidentWords> data{};
  for (size_t i = 0; i * sizeof(uint32_t) < posted.segment.bytes; ++i) {
    const uint64_t word = std::atomic_ref<uint64_t>(whole(box.answer[i])).load(std::memory_order_acquire);
    if (word >> 32 != oldest_) return false;
    data[i] = static_cast<uint32_t>(word);
  }
  std::memcpy(posted.segment.to, data.data(), posted.segment.bytes);
  return true;
}

Result<ResidentCopier::Answer> ResidentCopier::poll() {
  // Checked first: a request not done once the kernel has left never will be.
  const bool left = has_left();
  const bool done = take_oldest();
  if (!done && !left) {
    if (++asked_ % kAskEvery == 0) TCPX_RETURN_IF_ERROR(stream_.view().health());
    return Answer::kPending;
  }
  ++oldest_;
  return done ? Answer::kDone : Answer::kLost;
}

Result<bool> ResidentCopier::start(TimePoint now) {
  if (next_ != oldest_ || (launch_ != 0 && !has_left())) return false;
  const auto patience = std::chrono::nanoseconds(kPatience), life = std::chrono::nanoseconds(kLife);
  const ResidentLaunch launch{.memory = reinterpret_cast<ResidentMemory*>(shared_.device()),
                              .launch = launch_ + 1,
                              .request = next_,
                              .patience_ns = static_cast<uint64_t>(patience.count()),
                              .life_ns = static_cast<uint64_t>(life.count())};
  TCPX_RETURN_IF_ERROR(cuda_status(launch_resident_copier(launch, stream_.view().get()), "launch resident copier"));
  ++launch_;
  launched_at_ = now;
  return true;
}

}  // namespace tcpx
