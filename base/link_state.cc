#include "base/link_state.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/socket_io.h"

namespace tcpx {

Result<LinkWatch> LinkWatch::create() {
  UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("create socket to watch network links", errno);
  return LinkWatch(std::move(socket));
}

LinkState LinkWatch::state(const std::string& interface) const {
  ifreq request{};
  // A name cut to fit could be another interface's.
  if (interface.size() >= sizeof request.ifr_name) return LinkState::kUnknown;
  interface.copy(request.ifr_name, interface.size());
  if (::ioctl(socket_.get(), SIOCGIFFLAGS, &request) != 0) return LinkState::kUnknown;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0 ? LinkState::kUp : LinkState::kDown;
}

}  // namespace tcpx
