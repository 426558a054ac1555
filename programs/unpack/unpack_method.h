// Ways to gather the fragments of a workload, as bench_unpack times them: ours, the ceiling, and the others there are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device/unpack_launcher.h"
#include "programs/unpack/baseline_kernels.h"
#include "programs/unpack/unpack_workload.h"
#include "rx/unpacker.h"

namespace tcpx {

class UnpackMethod {
 public:
  virtual ~UnpackMethod() = default;

  /// As it stands in the tables.
  const std::string& name() const { return name_; }
  /// Once per workload, not timed: the preparations that a user of this method would keep. The workload outlives its use.
  virtual Status prepare(const UnpackWorkload& workload) {
    workload_ = &workload;
    return Status::ok();
  }
  /// Enqueues the gather on `stream`.
  virtual Status run(StreamView stream) = 0;
  /// Seconds of the last finished run as the method measured them itself, because its host work before the first operation does
  /// not count; none: the caller's events stand right around run.
  virtual std::optional<double> own_seconds() { return std::nullopt; }
  /// Enqueuing takes so long on the host that it cannot be hidden behind other work of the GPU.
  virtual bool host_bound() const { return false; }
  /// True when the gathered bytes can be right: false for the contiguous copy, which moves other bytes of the same number.
  virtual bool gathers() const { return true; }

 protected:
  explicit UnpackMethod(std::string name) : name_(std::move(name)) {}
  const UnpackWorkload& workload() const { return *workload_; }

 private:
  const std::string name_;
  const UnpackWorkload* workload_ = nullptr;
};

/// One copy of contiguous bytes between any two memories.
Status copy_contiguously(std::byte* to, const std::byte* from, uint64_t bytes, StreamView stream);

/// The unpack kernel as UnpackLauncher launches it, with the list in mapped pinned memory. The launcher must be a profiling one:
/// its own events stand right around the kernel, behind the host's work on the list, which bench_unpack measures apart.
std::unique_ptr<UnpackMethod> make_kernel_method(std::string name, std::unique_ptr<UnpackLauncher> launcher);
/// Any Unpacker, by the host's clock from the first submit to the last ticket done.
std::unique_ptr<UnpackMethod> make_unpacker_method(std::string name, std::unique_ptr<Unpacker> unpacker);

/// The ceilings and the other ways there are (unpack_baselines.cc). All on the current device.
std::unique_ptr<UnpackMethod> make_contiguous_copy();
std::unique_ptr<UnpackMethod> make_copy_per_fragment();
std::unique_ptr<UnpackMethod> make_cub_batch();
std::unique_ptr<UnpackMethod> make_warp_loop(WarpLoop kind, uint32_t blocks);

}  // namespace tcpx
