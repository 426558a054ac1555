#include "device/unpacker_factory.h"

#include <string_view>

#include "base/environment.h"
#include "base/text.h"
#include "device/gpu_presence.h"
#include "device/ticket_ring.h"

namespace tcpx {
namespace {

/// ok when kernels and device copies can work on `memory`.
Status need_gpu(std::string_view kind, const MemoryOps& memory) {
  if (memory.has_gpu()) return Status::ok();
  const Result<int>& gpus = gpu_count();
  const std::string reason = gpus.is_ok() ? "host memory stands in for device memory here" : gpus.status().detail();
  return Status(Code::kUnsupported, concat("make unpacker ", kind),
                concat(reason, "; use ", environment_info(Variable::kUnpackImpl).name, "=host (or auto)"));
}

class NoUnpacker final : public Unpacker {
 public:
  const char* name() const override { return "none"; }

  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    TCPX_RETURN_IF_ERROR(check_batch(blocks.size()));
    return UnpackTicket{++last_ticket_};
  }

  Result<bool> query(UnpackTicket) override { return true; }

 private:
  uint64_t last_ticket_ = 0;
};

}  // namespace

Result<std::unique_ptr<Unpacker>> make_unpacker(UnpackKind kind, int device, MemoryOps& memory) {
  switch (kind) {
    case UnpackKind::kAuto:
      return make_unpacker(memory.has_gpu() ? UnpackKind::kKernel : UnpackKind::kHost, device, memory);
    case UnpackKind::kKernel:
      TCPX_RETURN_IF_ERROR(need_gpu("kernel", memory));
      return make_kernel_unpacker(device, memory);
    case UnpackKind::kD2d:
      TCPX_RETURN_IF_ERROR(need_gpu("d2d", memory));
      return make_d2d_unpacker(device);
    case UnpackKind::kHost:
      return make_host_unpacker(device, memory);
    case UnpackKind::kNone:
      return Status(Code::kBadConfig, "make unpacker",
                    concat(environment_info(Variable::kUnpackImpl).name,
                           "=none leaves the data where it arrives; only test_tcpx_perf takes it"));
  }
  return Status(Code::kInvalidArgument, "make unpacker", concat("no kind ", static_cast<int>(kind)));
}

std::unique_ptr<Unpacker> make_no_unpacker() {
  return std::make_unique<NoUnpacker>();
}

}  // namespace tcpx
