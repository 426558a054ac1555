#include "net/devmem/led_listener.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string_view>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "net/devmem/netdev.h"

namespace tcpx::devmem {
namespace {

// torvalds/linux: include/uapi/asm-generic/socket.h, since 5.1 and 5.14. Headers of older systems lack them.
constexpr int kSoBindToIfindex = 62;
constexpr int kSoNetnsCookie = 71;

Status refusal(std::string why) {
  return Status(Code::kInvalidArgument, "look at a listener", std::move(why));
}

template <class Value>
std::optional<Value> option(int socket, int name) {
  Value value{};
  socklen_t length = sizeof value;
  if (::getsockopt(socket, SOL_SOCKET, name, &value, &length) != 0 || length != sizeof value) return std::nullopt;
  return value;
}

Result<bool> has_address(const std::string& interface, const std::string& host) {
  bool found = false;
  TCPX_RETURN_IF_ERROR(for_each_address([&](const ifaddrs& entry, const SocketAddress& address) {
    const std::string_view label = entry.ifa_name;
    return found = label.substr(0, label.find(':')) == interface && address.host() == host;
  }));
  return found;
}

}  // namespace

Result<SocketAddress> address_of_listener(int listener, const std::string& interface) {
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, interface_index(interface));
  const auto domain = option<int>(listener, SO_DOMAIN);
  if ((domain != AF_INET && domain != AF_INET6) || option<int>(listener, SO_TYPE) != SOCK_STREAM ||
      option<int>(listener, SO_PROTOCOL) != IPPROTO_TCP)
    return refusal("this is no TCP socket");
  if (option<int>(listener, SO_ACCEPTCONN) != 1) return refusal("this socket does not listen");
  const UniqueFd own(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto here = option<uint64_t>(own.get(), kSoNetnsCookie);
  if (!here || option<uint64_t>(listener, kSoNetnsCookie) != here)
    return refusal("this socket is of another network namespace, or Linux is older than 5.14");
  const auto bound = option<int>(listener, kSoBindToIfindex);
  if (!bound || (*bound != 0 && static_cast<uint32_t>(*bound) != index))
    return refusal("this socket is bound to another interface");
  TCPX_ASSIGN_OR_RETURN(const SocketAddress local, local_address(listener));
  TCPX_ASSIGN_OR_RETURN(const bool is_there, has_address(interface, local.host()));
  if (!is_there)
    return refusal(concat(local.to_string(), " is at no address of ", interface, ": a wildcard leads packets of others"));
  return local;
}

}  // namespace tcpx::devmem
