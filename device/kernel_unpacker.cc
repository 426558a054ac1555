#include "device/unpacker_factory.h"

#include <utility>

#include "base/log.h"
#include "device/ticket_ring.h"
#include "device/unpack_launcher.h"

namespace tcpx {
namespace {

class KernelUnpacker final : public Unpacker {
 public:
  KernelUnpacker(std::unique_ptr<UnpackLauncher> launcher, bool log_totals)
      : launcher_(std::move(launcher)), log_totals_(log_totals) {}
  ~KernelUnpacker() override {
    if (log_totals_) log(LogLevel::kNotice, "unpack kernel: ", to_text(launcher_->stats()));
  }

  const char* name() const override { return "kernel"; }

  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    TCPX_RETURN_IF_ERROR(check_batch(blocks.size()));
    return launcher_->launch(blocks);
  }

  Result<bool> query(UnpackTicket ticket) override { return launcher_->query(ticket); }

 private:
  const std::unique_ptr<UnpackLauncher> launcher_;
  const bool log_totals_;
};

}  // namespace

Result<std::unique_ptr<Unpacker>> make_kernel_unpacker(int device, MemoryOps& memory) {
  TCPX_ASSIGN_OR_RETURN(UnpackLauncher::Config config, UnpackLauncher::Config::from_environment());
  const bool log_totals = config.log_launches;
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<UnpackLauncher> launcher, UnpackLauncher::create(device, memory, std::move(config)));
  return std::unique_ptr<Unpacker>(std::make_unique<KernelUnpacker>(std::move(launcher), log_totals));
}

}  // namespace tcpx
