#include "programs/unpack/unpack_method.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace tcpx {
namespace {

constexpr auto kTicketTime = std::chrono::seconds(60);

class KernelMethod final : public UnpackMethod {
 public:
  KernelMethod(std::string name, std::unique_ptr<UnpackLauncher> launcher)
      : UnpackMethod(std::move(name)), launcher_(std::move(launcher)) {}

  Status run(StreamView stream) override {
    TCPX_ASSIGN_OR_RETURN(ticket_, launcher_->launch(workload().blocks(), stream));
    return Status::ok();
  }
  std::optional<double> own_seconds() override {
    const Duration before = launcher_->stats().device_time;
    if (!launcher_->wait(ticket_, Deadline::after(kTicketTime)).is_ok()) return std::nullopt;
    return std::chrono::duration<double>(launcher_->stats().device_time - before).count();
  }

 private:
  const std::unique_ptr<UnpackLauncher> launcher_;
  UnpackTicket ticket_{};
};

class UnpackerMethod final : public UnpackMethod {
 public:
  UnpackerMethod(std::string name, std::unique_ptr<Unpacker> unpacker)
      : UnpackMethod(std::move(name)), unpacker_(std::move(unpacker)) {}

  Status run(StreamView) override {
    const auto begin = std::chrono::steady_clock::now();
    const Deadline deadline = Deadline::after(kTicketTime);
    std::span<const DescriptorBlock> left = workload().blocks();
    Result<UnpackTicket> last = UnpackTicket{};
    while (!left.empty()) {
      const std::span<const DescriptorBlock> batch = left.first(std::min(left.size(), kMaxBatchBlocks));
      last = unpacker_->submit(batch);
      if (last.is_ok()) {
        left = left.subspan(batch.size());
      } else if (last.status().code() != Code::kExhausted || deadline.expired()) {
        return last.status();
      }
    }
    for (;;) {
      TCPX_ASSIGN_OR_RETURN(const bool done, unpacker_->query(*last));
      if (done) break;
      if (deadline.expired()) return Status(Code::kTimeout, "wait for unpacker", name());
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return Status::ok();
  }
  std::optional<double> own_seconds() override { return seconds_; }
  bool host_bound() const override { return true; }

 private:
  const std::unique_ptr<Unpacker> unpacker_;
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<UnpackMethod> make_kernel_method(std::string name, std::unique_ptr<UnpackLauncher> launcher) {
  return std::make_unique<KernelMethod>(std::move(name), std::move(launcher));
}

std::unique_ptr<UnpackMethod> make_unpacker_method(std::string name, std::unique_ptr<Unpacker> unpacker) {
  return std::make_unique<UnpackerMethod>(std::move(name), std::move(unpacker));
}

}  // namespace tcpx
