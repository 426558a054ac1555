#include "net/vendor_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/socket_address.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace tcpx {
namespace {

// tcpxHandle (google/nccl-plugin-gpudirecttcpx, 4b8ea7f: src/common.h): offsets of its two listening addresses, each a union of
// sockaddr_in and sockaddr_in6.
constexpr size_t kDataAddressOff = 0;
constexpr size_t kControlAddressOff = 48;
static_assert(kControlAddressOff + sizeof(sockaddr_in6) <= sizeof(Handle::bytes));

/// "" for none.
std::string address_in(const Handle& handle, size_t offset) {
  sockaddr_storage storage{};
  std::memcpy(&storage, handle.bytes.data() + offset, sizeof(sockaddr_in6));
  const auto address = SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage), sizeof(sockaddr_in6));
  return address.is_ok() && address->port() != 0 ? address->to_string() : "";
}

using Name = int (*)(int, sockaddr*, socklen_t*) noexcept;

/// "" for none.
std::string address_of(int fd, Name name) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (name(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "";
  const auto address = SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage), length);
  return address.is_ok() ? address->to_string() : "";
}

bool listens(int fd) {
  int value = 0;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value != 0;
}

// By its link, "socket:[number]": fstat(2) would ask the server of a file, which may never answer.
std::optional<uint64_t> socket_inode(int fd) {
  constexpr std::string_view kBegin = "socket:[";
  std::array<char, 64> link;
  const ssize_t length = ::readlink(concat("/proc/self/fd/", fd).c_str(), link.data(), link.size());
  const std::string_view text(link.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
  uint64_t inode = 0;
  if (!text.starts_with(kBegin) ||
      std::from_chars(text.data() + kBegin.size(), text.data() + text.size(), inode).ec != std::errc())
    return std::nullopt;
  return inode;
}

struct Found {
  std::vector<VendorSocket> connected, listening;
};

Found find(const Handle& handle, Name name) {
  Found found;
  const std::string data = address_in(handle, kDataAddressOff), control = address_in(handle, kControlAddressOff);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), &::closedir);
  if (directory == nullptr || (data.empty() && control.empty())) return found;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view text = entry->d_name;
    int fd = -1;
    if (std::from_chars(text.data(), text.data() + text.size(), fd).ec != std::errc()) continue;
    const auto inode = socket_inode(fd);
    const std::string address = inode ? address_of(fd, name) : "";
    if (address.empty() || (address != data && address != control)) continue;
    (listens(fd) ? found.listening : found.connected).push_back({.fd = fd, .inode = *inode, .is_data = address == data});
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

void shut_down(const std::vector<VendorSocket>& sockets, int how) {
  for (const VendorSocket& socket : sockets) {
    if (const UniqueFd own = still_the_same(socket)) ::shutdown(own.get(), how);
  }
}

}  // namespace

std::vector<VendorSocket> accepted_sockets(const Handle& handle) {
  return find(handle, &::getsockname).connected;
}

std::vector<VendorSocket> connected_sockets(const Handle& handle) {
  return find(handle, &::getpeername).connected;
}

void shut_down(const std::vector<VendorSocket>& sockets) {
  shut_down(sockets, SHUT_RDWR);
}

std::vector<VendorSocket> shut_down_listener(const Handle& handle) {
  Found found = find(handle, &::getsockname);
  shut_down(found.listening);
  shut_down(found.connected, SHUT_RD);
  // Once more for sockets accepted in between. The ports may be another listener's by now, but its thread accepts nothing that
  // soon: the plugin waits 100 ms before each socket.
  const auto is_known = [&](const VendorSocket& socket) {
    const auto same = [&](const VendorSocket& other) { return other.inode == socket.inode; };
    return std::any_of(found.listening.begin(), found.listening.end(), same) ||
           std::any_of(found.connected.begin(), found.connected.end(), same);
  };
  std::vector<VendorSocket> late = accepted_sockets(handle);
  std::erase_if(late, is_known);
  shut_down(late, SHUT_RD);
  found.connected.insert(found.connected.end(), late.begin(), late.end());
  return found.connected;
}

bool have_peers(const std::vector<VendorSocket>& sockets) {
  return std::all_of(sockets.begin(), sockets.end(), [](const VendorSocket& socket) {
    const UniqueFd own = still_the_same(socket);
    return !socket.is_data || !own || !address_of(own.get(), &::getpeername).empty();
  });
}

void close_forgotten(const std::vector<VendorSocket>& sockets) {
  for (const VendorSocket& socket : sockets) {
    if (socket_inode(socket.fd) == socket.inode) ::close(socket.fd);
  }
}

}  // namespace tcpx
