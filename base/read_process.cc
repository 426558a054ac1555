#include "base/read_process.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace tcpx {
namespace {

constexpr __u32 kTrace = CAP_TO_MASK(CAP_SYS_PTRACE);

}  // namespace

// The C library has no function for that, and libcap would be one more library to install.
WithoutTracingRight::WithoutTracingRight() {
  if (::syscall(SYS_capget, &header_, sets_.data()) != 0) return;
  __u32& effective = sets_[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective;
  if ((effective & kTrace) == 0) return;
  effective &= ~kTrace;
  given_up_ = ::syscall(SYS_capset, &header_, sets_.data()) == 0;
  effective |= kTrace;
}

WithoutTracingRight::~WithoutTracingRight() {
  const int error = errno;
  if (given_up_) (void)::syscall(SYS_capset, &header_, sets_.data());
  errno = error;
}

ssize_t read_process(pid_t process, std::span<const iovec> to, std::span<const iovec> from) {
  const WithoutTracingRight without;
  return ::process_vm_readv(process, to.data(), to.size(), from.data(), from.size(), 0);
}

ssize_t write_process(pid_t process, std::span<const iovec> to, std::span<const iovec> from) {
  const WithoutTracingRight without;
  return ::process_vm_writev(process, from.data(), from.size(), to.data(), to.size(), 0);
}

bool can_be_read(const void* data, size_t bytes) {
  if (bytes == 0) return true;
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(data));
  std::array<std::byte, 2> room{};
  const std::array<iovec, 1> to{iovec{room.data(), room.size()}};
  const std::array<iovec, 2> ends{iovec{begin, 1}, iovec{begin + bytes - 1, 1}};
  return read_process(::getpid(), to, ends) == 2;
}

}  // namespace tcpx
