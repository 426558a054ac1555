#include "base/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <cstring>
#include <memory>

#include "base/text.h"

namespace tcpx {

Result<SocketAddress> SocketAddress::from(const sockaddr* address, socklen_t length) {
  SocketAddress result;
  if (address != nullptr && address->sa_family == AF_INET && length >= static_cast<socklen_t>(sizeof(sockaddr_in))) {
    std::memcpy(&result.storage_.v4, address, sizeof(sockaddr_in));
    return result;
  }
  if (address != nullptr && address->sa_family == AF_INET6 && length >= static_cast<socklen_t>(sizeof(sockaddr_in6))) {
    std::memcpy(&result.storage_.v6, address, sizeof(sockaddr_in6));
    return result;
  }
  return Status(Code::kInvalidArgument, "read socket address", "neither IPv4 nor IPv6");
}

SocketAddress SocketAddress::any(int family, uint16_t port) {
  SocketAddress result;
  if (family == AF_INET6) {
    result.storage_.v6 = sockaddr_in6{};
    result.storage_.v6.sin6_family = AF_INET6;
    result.storage_.v6.sin6_addr = in6addr_any;
  } else {
    result.storage_.v4 = sockaddr_in{};
    result.storage_.v4.sin_family = AF_INET;
    result.storage_.v4.sin_addr.s_addr = htonl(INADDR_ANY);
  }
  return result.with_port(port);
}

SocketAddress SocketAddress::loopback(uint16_t port) {
  SocketAddress result = any(AF_INET, port);
  result.storage_.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return result;
}

uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET6 ? storage_.v6.sin6_port : storage_.v4.sin_port);
}

SocketAddress SocketAddress::with_port(uint16_t port) const {
  SocketAddress result = *this;
  (family() == AF_INET6 ? result.storage_.v6.sin6_port : result.storage_.v4.sin_port) = htons(port);
  return result;
}

socklen_t SocketAddress::length() const {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

bool SocketAddress::is_mapped_ipv4() const {
  return family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&storage_.v6.sin6_addr);
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (is_mapped_ipv4()) {
    ::inet_ntop(AF_INET, &storage_.v6.sin6_addr.s6_addr[12], text, sizeof text);
  } else if (family() == AF_INET6) {
    ::inet_ntop(AF_INET6, &storage_.v6.sin6_addr, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET, &storage_.v4.sin_addr, text, sizeof text);
  }
  return text;
}

std::string SocketAddress::to_string() const {
  return family() == AF_INET6 && !is_mapped_ipv4() ? concat('[', host(), "]:", port()) : concat(host(), ':', port());
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port) {
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int rc = ::getaddrinfo(name.c_str(), nullptr, &hints, &list); rc != 0) {
    return Status(Code::kNotFound, "resolve host", concat('"', host, "\": ", ::gai_strerror(rc)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (auto address = SocketAddress::from(entry->ai_addr, entry->ai_addrlen); address.is_ok()) {
      addresses.push_back(address->with_port(port));
    }
  }
  if (addresses.empty()) return Status(Code::kNotFound, "resolve host", concat('"', host, "\": no IPv4 or IPv6 address"));
  return addresses;
}

}  // namespace tcpx
