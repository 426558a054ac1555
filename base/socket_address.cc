#include "base/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/own_thread.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Most resolver queries that may be unanswered at a time. Each holds a thread, which cannot be stopped.
constexpr int kMaxUnanswered = 16;
std::atomic<int> unanswered{0};
// Time that each of several names may take: another name may lead to the peer as well.
constexpr Duration kNameTime = std::chrono::seconds(3);

std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

// State shared by the thread that asks the resolver and the one that waits for it; the last to release it deletes it.
struct Question {
  Mutex mutex;
  CondVar answered;
  std::optional<Result<std::vector<SocketAddress>>> answer TCPX_GUARDED_BY(mutex);
};

}  // namespace

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

bool SocketAddress::is_loopback() const {
  if (is_mapped_ipv4()) return storage_.v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
  if (family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&storage_.v6.sin6_addr);
  return ntohl(storage_.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
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
  const std::string name = without_brackets(host);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int rc = ::getaddrinfo(name.c_str(), nullptr, &hints, &list); rc != 0) {
    if (rc == EAI_SYSTEM) return system_error(concat("resolve host \"", host, '"'), errno);
    return Status(rc == EAI_MEMORY ? Code::kExhausted : Code::kNotFound, "resolve host",
                  concat('"', host, "\": ", ::gai_strerror(rc)));
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

bool is_numeric(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (::getaddrinfo(without_brackets(host).c_str(), nullptr, &hints, &list) != 0) return false;
  ::freeaddrinfo(list);
  return true;
}

Status for_each_address(const std::function<bool(const ifaddrs& entry, const SocketAddress& address)>& visit) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return system_error("list addresses", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const bool v6 = entry->ifa_addr->sa_family == AF_INET6;
    const auto address = SocketAddress::from(entry->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (address.is_ok() && visit(*entry, *address)) break;
  }
  return Status::ok();
}

namespace {

// Resolves one host; a name is resolved on a thread of its own.
Result<std::vector<SocketAddress>> ask_for(const std::string& host, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop) {
  if (is_numeric(host)) return resolve(host, port);
  const auto failed = [&host](Code code, std::string_view why) {
    return Status(code, "resolve host", concat('"', host, "\": ", why));
  };
  if (unanswered.fetch_add(1) >= kMaxUnanswered) {
    unanswered.fetch_sub(1);
    return failed(Code::kExhausted, concat("the resolver has not answered ", kMaxUnanswered, " questions yet"));
  }
  const auto question = std::make_shared<Question>();
  auto thread = start_thread("tcpx-resolve", [question, host, port] {
    Result<std::vector<SocketAddress>> answer = Status(Code::kExhausted, "resolve host", "out of memory");
    try {
      answer = resolve(host, port);
    } catch (const std::bad_alloc&) {  // `answer` says so already
    }
    {
      const MutexLock lock(question->mutex);
      question->answer.emplace(std::move(answer));
      question->answered.notify_all();
    }
    unanswered.fetch_sub(1);
  });
  if (!thread.is_ok()) {
    unanswered.fetch_sub(1);
    return thread.status();
  }
  thread->detach();
  const MutexLock lock(question->mutex);
  while (!question->answer) {
    if (stop != nullptr && stop->load()) return failed(Code::kCancelled, "interrupted");
    if (deadline.expired()) return failed(Code::kTimeout, "the resolver has not answered until the deadline");
    (void)question->answered.wait_until(question->mutex, Deadline::after(kLookAtStop).earlier(deadline).at());
  }
  return std::move(*question->answer);
}

}  // namespace

Result<std::vector<std::string>> split_hosts(const std::string& hosts) {
  const auto refuse = [](std::string why) { return Status(Code::kInvalidArgument, "read hosts", std::move(why)); };
  std::vector<std::string> list;
  for (size_t begin = 0; begin <= hosts.size();) {
    const size_t end = std::min(hosts.find(',', begin), hosts.size());
    if (end == begin || end - begin > kMaxHostBytes) return refuse(concat("a host of ", end - begin, " bytes"));
    if (list.size() == kMostHosts) return refuse(concat("more than ", kMostHosts, " hosts"));
    list.push_back(hosts.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

Result<std::vector<SocketAddress>> resolve(const std::string& hosts, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop) {
  TCPX_ASSIGN_OR_RETURN(const auto list, split_hosts(hosts));
  if (list.size() == 1) return ask_for(hosts, port, deadline, stop);
  std::vector<SocketAddress> all;
  Status first;
  for (const std::string& host : list) {
    const auto some = ask_for(host, port, deadline.earlier(Deadline::after(kNameTime)), stop);
    if (some.is_ok()) all.insert(all.end(), some->begin(), some->end());
    if (!some.is_ok() && first.is_ok()) first = some.status();
    if (stop != nullptr && stop->load())
      return some.is_ok() ? Status(Code::kCancelled, "resolve host", "interrupted") : some.status();
  }
  if (all.empty()) return first;
  return all;
}

}  // namespace tcpx
