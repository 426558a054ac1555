// Addresses of this host for one test: some where somebody may listen, and some that answer nobody.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/socket_address.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "tests/support/ok.h"

namespace tcpx::testing {

inline SocketAddress at(const std::string& host, uint16_t port = 1) {
  return must(resolve(host, port)).front();
}

/// A loopback address of this process alone, so that no other test has it.
inline std::string own_host(int number) {
  return concat("127.", number, '.', (::getpid() >> 8) & 0xff, '.', (::getpid() & 0xff) | 1);
}

/// Listens, and answers nobody: its backlog is full, so that the kernel drops who comes.
class DeadAddress {
 public:
  explicit DeadAddress(const std::string& host, uint16_t port = 0) : listener_(must(listen_tcp(at(host, port), 0))) {
    while (crowd_.empty() || is_connected(crowd_.back())) crowd_.push_back(must(begin_connect(address())));
  }
  SocketAddress address() const { return must(local_address(listener_.get())); }

 private:
  static bool is_connected(const UniqueFd& fd) {
    return wait_for(fd.get(), POLLOUT, Deadline::after(std::chrono::milliseconds(100))).is_ok();
  }

  UniqueFd listener_;
  std::vector<UniqueFd> crowd_;
};

}  // namespace tcpx::testing
