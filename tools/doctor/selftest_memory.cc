#include "tools/doctor/selftest_memory.h"

#include <algorithm>
#include <span>

#include "base/text.h"
#include "measure/pattern.h"

namespace tcpx::doctor {

Result<SelftestMemory> SelftestMemory::create(uint64_t bytes, int gpu_idx) {
  SelftestMemory made;
  made.memory_ = make_machine_memory_ops();
  made.gpu_idx_ = std::min(gpu_idx, made.memory_->device_count() - 1);
  auto buffer = made.memory_->allocate_device(made.gpu_idx_, bytes);
  if (!buffer.is_ok()) return buffer.status();
  made.buffer_ = std::move(*buffer);
  if (made.memory_->has_gpu()) {
    auto pattern = GpuPattern::create(made.gpu_idx_, *made.memory_);
    if (!pattern.is_ok()) return pattern.status();
    made.pattern_ = std::move(*pattern);
  }
  return made;
}

Status SelftestMemory::fill(uint64_t seed) {
  if (pattern_ != nullptr) return pattern_->fill(buffer_.device(), buffer_.size(), seed);
  fill_pattern(std::span(buffer_.host(), buffer_.size()), seed);
  return Status::ok();
}

Status SelftestMemory::verify(uint64_t seed) {
  if (pattern_ == nullptr) return verify_pattern(std::span<const std::byte>(buffer_.host(), buffer_.size()), seed);
  const Result<PatternCheck> check = pattern_->check(buffer_.device(), buffer_.size(), seed);
  if (!check.is_ok()) return check.status();
  if (check->wrong == 0) return Status::ok();
  return Status(Code::kMismatch, "compare with the pattern",
                concat(check->wrong, " of ", buffer_.size(), " bytes differ, the first at ", check->first_wrong));
}

}  // namespace tcpx::doctor
