// Bootstrap channels over a pair of sockets, in one process.
#pragma once

#include <atomic>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/ok.h"
#include "tests/support/socket_pair.h"
#include "tests/support/threads.h"
#include "tests/support/whole_frame.h"
#include "wire/bootstrap_channel.h"

namespace tcpx::testing {

inline BootstrapChannel channel_on(UniqueFd fd, const std::atomic<bool>* stop = nullptr) {
  return {std::move(fd), SocketAddress::loopback(1), "test", stop};
}

struct Ends {
  BootstrapChannel a, b;
};
inline Ends two_ends() {
  Sockets sockets = unix_pair();
  return {channel_on(std::move(sockets.a)), channel_on(std::move(sockets.b))};
}

/// A channel whose other end is a bare socket.
struct HalfChannel {
  BootstrapChannel channel;
  UniqueFd peer;
};
inline HalfChannel half_channel(const std::atomic<bool>* stop = nullptr) {
  Sockets sockets = unix_pair();
  return {channel_on(std::move(sockets.a), stop), std::move(sockets.b)};
}

inline std::vector<Handle> some_handles(size_t count) {
  std::vector<Handle> handles(count);
  for (size_t i = 0; i < count; ++i) handles[i].bytes.fill(static_cast<std::byte>(i + 1));
  return handles;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace tcpx::testing
