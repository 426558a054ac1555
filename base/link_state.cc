#include "base/link_state.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "base/socket_address.h"
#include "base/socket_io.h"

namespace tcpx {

Result<LinkWatch> LinkWatch::create() {
  UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("create socket to watch network links", errno);
  return LinkWatch(std::move(socket));
}

LinkState LinkWatch::state(const std::string& interface) const {
  ifreq request{};
  // A truncated name could be another interface's.
  if (interface.size() >= sizeof request.ifr_name) return LinkState::kUnknown;
  interface.copy(request.ifr_name, interface.size());
  if (::ioctl(socket_.get(), SIOCGIFFLAGS, &request) != 0) return LinkState::kUnknown;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0 ? LinkState::kUp : LinkState::kDown;
}

namespace {

// Calls visit(name, address) for every IP address of this machine until it returns true.
template <class Visit>
void for_each_address(Visit visit) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const bool v6 = entry->ifa_addr->sa_family == AF_INET6;
    const auto address = SocketAddress::from(entry->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (address.is_ok() && visit(std::string(entry->ifa_name), *address)) return;
  }
}

}  // namespace

std::string interface_of_socket(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) return {};
  const auto own = SocketAddress::from(reinterpret_cast<const sockaddr*>(&name), length);
  if (!own.is_ok()) return {};
  std::string found;
  for_each_address([&](const std::string& interface, const SocketAddress& address) {
    if (address.host() == own->host()) found = interface;
    return !found.empty();
  });
  return found;
}

std::string address_of_interface(const std::string& interface) {
  std::string v4, v6;
  for_each_address([&](const std::string& name, const SocketAddress& address) {
    if (name != interface) return false;
    if (address.family() == AF_INET) v4 = address.host();
    if (address.family() == AF_INET6 && !address.host().starts_with("fe80")) v6 = address.host();
    return !v4.empty();
  });
  return v4.empty() ? v6 : v4;
}

}  // namespace tcpx
