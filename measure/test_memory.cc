#include "measure/test_memory.h"

#include <cstring>
#include <utility>

#include "base/text.h"
#include "measure/pattern.h"
#include "tcpx/help.h"

namespace tcpx {
namespace {

constexpr uint64_t kBlankSeed = UINT64_MAX;
constexpr int kBlankByte = 0xEE;

}  // namespace

Result<TestMemory> TestMemory::create(MemoryOps& memory, MemoryType type, int gpu, uint64_t bytes) {
  const uint64_t rounded = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  TCPX_ASSIGN_OR_RETURN(auto buffer,
                        type == MemoryType::kCuda ? memory.allocate_device(gpu, rounded) : memory.allocate_mapped(gpu, rounded));
  if (std::byte* const host = buffer.host(); host != nullptr) {
    // The first touch of a page is a fault, which is not what is to be measured.
    for (uint64_t at = 0; at < rounded; at += kPageBytes) host[at] = std::byte{};
    return TestMemory(type, std::move(buffer), nullptr);
  }
  TCPX_ASSIGN_OR_RETURN(auto on_gpu, GpuPattern::create(gpu, memory));
  return TestMemory(type, std::move(buffer), std::move(on_gpu));
}

Status TestMemory::fill(uint64_t off, uint64_t bytes, uint64_t seed, uint64_t stream_off) {
  if (bytes == 0) return Status::ok();
  if (on_gpu_) return on_gpu_->fill(buffer_.device() + off, bytes, seed, stream_off);
  fill_pattern({buffer_.host() + off, bytes}, seed, stream_off);
  return Status::ok();
}

Status TestMemory::blank(uint64_t off, uint64_t bytes) {
  if (bytes == 0) return Status::ok();
  if (on_gpu_) return on_gpu_->fill(buffer_.device() + off, bytes, kBlankSeed, off);
  std::memset(buffer_.host() + off, kBlankByte, bytes);
  return Status::ok();
}

Result<PatternCheck> TestMemory::check(uint64_t off, uint64_t bytes, uint64_t seed, uint64_t stream_off) {
  if (bytes == 0) return PatternCheck();
  if (on_gpu_) return on_gpu_->check(buffer_.device() + off, bytes, seed, stream_off);
  return check_pattern({buffer_.host() + off, bytes}, seed, stream_off);
}

Status TestMemory::verify(uint64_t off, uint64_t bytes, uint64_t seed, uint64_t stream_off) {
  if (!on_gpu_) return verify_pattern({buffer_.host() + off, bytes}, seed, stream_off);  // which says what the byte is, too
  TCPX_ASSIGN_OR_RETURN(const PatternCheck found, check(off, bytes, seed, stream_off));
  if (found.wrong == 0) return Status::ok();
  return Status(Code::kMismatch, "verify data",
                concat(found.wrong, " of ", bytes, " bytes differ, the first at ", found.first_wrong,
                       name_in_detail(Hint::kConsumedEarly)));
}

}  // namespace tcpx
