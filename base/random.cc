#include "base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "base/socket_io.h"

namespace tcpx {

Status fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    if (n < 0 && errno != EINTR) return system_error("ask for random numbers", errno);
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Status::ok();
}

Result<uint64_t> random_id() {
  uint64_t id = 0;
  while (id == 0) TCPX_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&id, 1))));
  return id;
}

}  // namespace tcpx
