#include "net/vendor_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/socket_address.h"
#include "base/unique_fd.h"

namespace tcpx {
namespace {

// tcpxHandle (google/nccl-plugin-gpudirecttcpx, 4b8ea7f: src/common.h): offsets of its two listening addresses, each a union of
// sockaddr_in and sockaddr_in6.
constexpr size_t kDataAddressOff = 0;
constexpr size_t kControlAddressOff = 48;
static_assert(kControlAddressOff + sizeof(sockaddr_in6) <= sizeof(Handle::bytes));

using Addresses = std::set<std::string>;

Addresses addresses_in(const Handle& handle) {
  Addresses addresses;
  for (const size_t offset : {kDataAddressOff, kControlAddressOff}) {
    sockaddr_storage storage{};
    std::memcpy(&storage, handle.bytes.data() + offset, sizeof(sockaddr_in6));
    const auto address = SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage), sizeof(sockaddr_in6));
    if (address.is_ok() && address->port() != 0) addresses.insert(address->to_string());
  }
  return addresses;
}

using Name = int (*)(int, sockaddr*, socklen_t*) noexcept;

bool is_one_of(const Addresses& addresses, int fd, Name name) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (name(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return false;
  const auto address = SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage), length);
  return address.is_ok() && addresses.contains(address->to_string());
}

bool listens(int fd) {
  int value = 0;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value != 0;
}

std::optional<uint64_t> socket_inode(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  return info.st_ino;
}

struct Found {
  std::vector<VendorSocket> connected, listening;
};

Found find(const Handle& handle, Name name) {
  Found found;
  const Addresses addresses = addresses_in(handle);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), &::closedir);
  if (directory == nullptr || addresses.empty()) return found;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view text = entry->d_name;
    int fd = -1;
    if (std::from_chars(text.data(), text.data() + text.size(), fd).ec != std::errc()) continue;
    const auto inode = socket_inode(fd);
    if (inode && is_one_of(addresses, fd, name)) (listens(fd) ? found.listening : found.connected).push_back({fd, *inode});
  }
  return found;
}

/// A descriptor of our own for the same socket; empty when the number has been reused.
UniqueFd still_the_same(const VendorSocket& socket) {
  if (socket_inode(socket.fd) != socket.inode) return UniqueFd();
  UniqueFd own(::fcntl(socket.fd, F_DUPFD_CLOEXEC, 0));
  if (own && socket_inode(own.get()) != socket.inode) own.reset();
  return own;
}

}  // namespace

std::vector<VendorSocket> accepted_sockets(const Handle& handle) {
  return find(handle, &::getsockname).connected;
}

std::vector<VendorSocket> connected_sockets(const Handle& handle) {
  return find(handle, &::getpeername).connected;
}

void shut_down(const std::vector<VendorSocket>& sockets) {
  for (const VendorSocket& socket : sockets) {
    if (const UniqueFd own = still_the_same(socket)) ::shutdown(own.get(), SHUT_RDWR);
  }
}

std::vector<VendorSocket> shut_down_listener(const Handle& handle) {
  Found found = find(handle, &::getsockname);
  shut_down(found.listening);
  shut_down(found.connected);
  // Once more for sockets accepted in between. The ports may be another listener's by now, but its thread accepts nothing that
  // soon: the plugin waits 100 ms before each socket.
  const auto is_known = [&](const VendorSocket& socket) {
    const auto same = [&](const VendorSocket& other) { return other.inode == socket.inode; };
    return std::any_of(found.listening.begin(), found.listening.end(), same) ||
           std::any_of(found.connected.begin(), found.connected.end(), same);
  };
  std::vector<VendorSocket> late = accepted_sockets(handle);
  std::erase_if(late, is_known);
  shut_down(late);
  found.connected.insert(found.connected.end(), late.begin(), late.end());
  return found.connected;
}

void close_forgotten(const std::vector<VendorSocket>& sockets) {
  for (const VendorSocket& socket : sockets) {
    if (socket_inode(socket.fd) == socket.inode) ::close(socket.fd);
  }
}

}  // namespace tcpx
