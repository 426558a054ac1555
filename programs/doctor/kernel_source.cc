#include "programs/doctor/kernel_source.h"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>

#include "base/socket_io.h"

namespace tcpx::doctor {
namespace {

constexpr std::chrono::milliseconds kLoopbackTime{500};
constexpr int kOptionBytes = 4;
// IORING_REGISTER_ZCRX_IFQ (Linux: include/uapi/linux/io_uring.h, 6.15).
constexpr unsigned kRegisterReceiveQueue = 32;

struct Connection {
  UniqueFd listener, client;
};

std::optional<Connection> connect_to_self() {
  auto listener = listen_tcp(SocketAddress::loopback(0), 1);
  if (!listener.is_ok()) return std::nullopt;
  const auto address = local_address(listener->get());
  if (!address.is_ok()) return std::nullopt;
  auto client = connect_tcp(*address, Deadline::after(kLoopbackTime));
  if (!client.is_ok()) return std::nullopt;
  return Connection{std::move(*listener), std::move(*client)};
}

class ThisKernel final : public KernelSource {
 public:
  std::optional<int> set_option_error(int option) const override {
    const auto connection = connect_to_self();
    if (!connection) return std::nullopt;
    const std::array<std::byte, kOptionBytes> zeros{};
    return ::setsockopt(connection->client.get(), SOL_SOCKET, option, zeros.data(), zeros.size()) == 0 ? 0 : errno;
  }

  RingReceive ring_receive() const override {
    io_uring_params parameters{};
    // What zcrx asks of its ring; to a ring without it every answer is EINVAL.
    parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQE32;
    const UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &parameters)));
    // EINVAL: a kernel that does not know these flags is older than zcrx.
    if (!ring) return errno == EINVAL ? RingReceive::kAbsent : RingReceive::kRefused;
    // The pointer leads nowhere, so that nothing can be registered. A kernel with zcrx answers EFAULT, or EPERM to who may not
    // use it; one without says EINVAL or EOPNOTSUPP.
    void* const nowhere = reinterpret_cast<void*>(uintptr_t{1});
    (void)::syscall(SYS_io_uring_register, ring.get(), kRegisterReceiveQueue, nowhere, 1);
    return errno == EFAULT || errno == EPERM ? RingReceive::kPresent : RingReceive::kAbsent;
  }

  std::optional<uint64_t> open_files() const override {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
    return limit.rlim_cur;
  }
};

}  // namespace

std::unique_ptr<KernelSource> make_kernel_source() {
  return std::make_unique<ThisKernel>();
}

}  // namespace tcpx::doctor
