#include "base/link_state.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/socket_address.h"
#include "base/socket_io.h"

namespace tcpx {

Result<LinkWatch> LinkWatch::create() {
  UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("create socket to watch network links", errno);
  return LinkWatch(std::move(socket));
}

Result<std::shared_ptr<const LinkWatch>> LinkWatch::shared() {
  // Never destroyed: connections may be made until the process ends.
  struct Known {
    Mutex mutex;
    std::map<ino_t, std::weak_ptr<const LinkWatch>> watches TCPX_GUARDED_BY(mutex);  // by inode number of the namespace
  };
  static Known& known = *new Known;
  struct stat space {};
  if (::stat("/proc/thread-self/ns/net", &space) != 0) space.st_ino = 0;  // unknown: assume that there is only one namespace
  const MutexLock lock(known.mutex);
  // The kernel reuses an inode number only after the namespace is gone, and the watch's socket keeps its namespace alive.
  std::weak_ptr<const LinkWatch>& place = known.watches[space.st_ino];
  if (auto watch = place.lock()) return watch;
  TCPX_ASSIGN_OR_RETURN(auto made, create());
  const auto watch = std::make_shared<const LinkWatch>(std::move(made));
  place = watch;
  return watch;
}

LinkState LinkWatch::state(const std::string& interface) const {
  ifreq request{};
  // A truncated name could be another interface's.
  if (interface.size() >= sizeof request.ifr_name) return LinkState::kUnknown;
  interface.copy(request.ifr_name, interface.size());
  if (::ioctl(socket_.get(), SIOCGIFFLAGS, &request) != 0) return LinkState::kUnknown;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0 ? LinkState::kUp : LinkState::kDown;
}

std::string interface_of_socket(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) return {};
  const auto own = SocketAddress::from(reinterpret_cast<const sockaddr*>(&name), length);
  if (!own.is_ok()) return {};
  std::string found;
  (void)for_each_address([&](const ifaddrs& entry, const SocketAddress& address) {
    if (address.host() == own->host()) found = entry.ifa_name;
    return !found.empty();
  });
  return found;
}

}  // namespace tcpx
