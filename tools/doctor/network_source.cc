#include "tools/doctor/network_source.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "measure/child.h"
#include "tools/doctor/path_probe.h"

namespace tcpx::doctor {
namespace {

constexpr size_t kMostOutput = size_t{4} << 20;
constexpr Duration kNetlinkLimit = std::chrono::seconds(1);
// Not PATH: a program for root must be the system's.
constexpr std::array<const char*, 6> kDirectories = {"/usr/sbin/", "/sbin/",           "/usr/bin/",
                                                     "/bin/",      "/usr/local/sbin/", "/usr/local/bin/"};

int prefix_of(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  int bits = 0;
  if (mask->sa_family == AF_INET) return std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr);
  for (const uint8_t byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr) bits += std::popcount(byte);
  return bits;
}

in_addr ipv4_of(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr;
}

std::string dotted(in_addr address) {
  sockaddr_in whole{};
  whole.sin_family = AF_INET;
  whole.sin_addr = address;
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&whole), sizeof whole)->host();
}

/// The kernel's answer to RTM_GETROUTE (rtnetlink(7)), read field by field because the buffer is bytes.
Result<Route> read_route(std::span<const std::byte> message) {
  nlmsghdr head;
  if (message.size() < sizeof head) return Status(Code::kProtocol, "ask for a route", "a short answer");
  std::memcpy(&head, message.data(), sizeof head);
  if (head.nlmsg_type == NLMSG_ERROR && message.size() >= NLMSG_HDRLEN + sizeof(nlmsgerr)) {
    nlmsgerr error;
    std::memcpy(&error, message.data() + NLMSG_HDRLEN, sizeof error);
    return system_error("ask for a route", -error.error);
  }
  rtmsg body;
  if (head.nlmsg_type != RTM_NEWROUTE || head.nlmsg_len > message.size() || head.nlmsg_len < NLMSG_LENGTH(sizeof body)) {
    return Status(Code::kProtocol, "ask for a route", "another answer than a route");
  }
  std::memcpy(&body, message.data() + NLMSG_HDRLEN, sizeof body);
  Route route{.interface = {}, .source = {}, .local = body.rtm_type == RTN_LOCAL};
  std::span<const std::byte> rest = message.first(head.nlmsg_len).subspan(NLMSG_SPACE(sizeof body));
  while (rest.size() >= sizeof(rtattr)) {
    rtattr attribute;
    std::memcpy(&attribute, rest.data(), sizeof attribute);
    if (attribute.rta_len < RTA_LENGTH(0) || attribute.rta_len > rest.size()) break;
    const std::span<const std::byte> value = rest.first(attribute.rta_len).subspan(RTA_LENGTH(0));
    if (attribute.rta_type == RTA_OIF && value.size() >= sizeof(uint32_t)) {
      uint32_t index = 0;
      char name[IF_NAMESIZE];
      std::memcpy(&index, value.data(), sizeof index);
      if (::if_indextoname(index, name) != nullptr) route.interface = name;
    } else if (attribute.rta_type == RTA_PREFSRC && value.size() >= sizeof(in_addr)) {
      in_addr source;
      std::memcpy(&source, value.data(), sizeof source);
      route.source = dotted(source);
    }
    rest = rest.subspan(std::min<size_t>(RTA_ALIGN(attribute.rta_len), rest.size()));
  }
  return route;
}

/// Standard output and error until both are closed.
Status collect(int fd, Deadline deadline, std::string& text) {
  char buffer[16384];
  for (;;) {
    TCPX_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline));
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return Status::ok();
    if (n < 0 && errno != EINTR && errno != EAGAIN) return system_error("read from a program", errno);
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMostOutput) return Status(Code::kExhausted, "read from a program", "it says too much");
    if (deadline.expired()) return Status(Code::kTimeout, "read from a program", "it does not end");
  }
}

class KernelSource final : public NetworkSource {
 public:
  std::vector<NetworkInterface> interfaces() override {
    std::vector<NetworkInterface> all;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return all;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      NetworkInterface* interface = nullptr;
      for (NetworkInterface& known : all) {
        if (known.name == entry->ifa_name) interface = &known;
      }
      if (interface == nullptr) {
        const bool up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
        all.push_back({entry->ifa_name, up, (entry->ifa_flags & IFF_LOOPBACK) != 0, {}});
        interface = &all.back();
      }
      if (entry->ifa_addr == nullptr) continue;
      const bool v6 = entry->ifa_addr->sa_family == AF_INET6;
      const auto address = SocketAddress::from(entry->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
      if (address.is_ok()) interface->addresses.push_back({address->with_port(0), prefix_of(entry->ifa_netmask)});
    }
    return all;
  }

  int try_bind(uint16_t port) override {
    // As listeners do; a machine without IPv6 has IPv4 alone.
    for (const int family : {AF_INET6, AF_INET}) {
      const UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!fd) continue;
      const int one = 1, zero = 0;
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
      const SocketAddress any = SocketAddress::any(family, port);
      if (::bind(fd.get(), any.get(), any.length()) == 0) return 0;
      if (errno != EADDRNOTAVAIL || family == AF_INET) return errno;
    }
    return EAFNOSUPPORT;
  }

  CommandAnswer run(const std::string& program, const std::vector<std::string>& arguments, Duration limit) override {
    const Deadline deadline = Deadline::after(limit);
    CommandAnswer answer;
    std::vector<std::string> words;
    for (const char* directory : kDirectories) {
      if (words.empty() && ::access(concat(directory, program).c_str(), X_OK) == 0) words.push_back(concat(directory, program));
    }
    if (words.empty()) return answer;
    words.insert(words.end(), arguments.begin(), arguments.end());
    int ends[2];
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null || ::pipe2(ends, O_CLOEXEC) != 0) return answer;
    const UniqueFd out(ends[0]);
    UniqueFd in(ends[1]);
    auto child = bench::Child::start(std::move(words), {{"LC_ALL", "C"}},
                                     {{null.get(), STDIN_FILENO}, {in.get(), STDOUT_FILENO}, {in.get(), STDERR_FILENO}});
    if (!child.is_ok()) return answer;
    in.reset();
    answer.installed = true;
    const Status read = collect(out.get(), deadline, answer.text);
    const std::optional<int> code = read.is_ok() ? child->wait_until(deadline) : std::nullopt;
    answer.timed_out = !code.has_value();
    answer.exit_code = code.value_or(0);
    return answer;
  }

  Result<Route> route(const SocketAddress& target, const SocketAddress* source) override {
    struct Request {
      nlmsghdr head;
      rtmsg body;
      rtattr target_head;
      in_addr target;
      rtattr source_head;
      in_addr source;
    } request{};
    static_assert(sizeof(Request) == 44);
    if (target.family() != AF_INET || (source != nullptr && source->family() != AF_INET)) {
      return Status(Code::kUnsupported, "ask for a route", "only IPv4");
    }
    const size_t length = source != nullptr ? sizeof request : offsetof(Request, source_head);
    request.head = {.nlmsg_len = static_cast<uint32_t>(length), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST};
    request.body.rtm_family = AF_INET;
    request.body.rtm_dst_len = 32;
    request.body.rtm_src_len = source != nullptr ? 32 : 0;
    request.target_head = {.rta_len = RTA_LENGTH(sizeof(in_addr)), .rta_type = RTA_DST};
    request.target = ipv4_of(target);
    request.source_head = {.rta_len = RTA_LENGTH(sizeof(in_addr)), .rta_type = RTA_SRC};
    if (source != nullptr) request.source = ipv4_of(*source);
    const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!fd || ::send(fd.get(), &request, length, 0) != static_cast<ssize_t>(length)) {
      return system_error("ask for a route", errno);
    }
    TCPX_RETURN_IF_ERROR(wait_for(fd.get(), POLLIN, Deadline::after(kNetlinkLimit)));
    std::array<std::byte, 8192> answer;
    const ssize_t n = ::recv(fd.get(), answer.data(), answer.size(), 0);
    if (n < 0) return system_error("ask for a route", errno);
    return read_route(std::span(answer).first(static_cast<size_t>(n)));
  }

  std::vector<Status> connect_from(const SocketAddress& target, std::span<const SocketAddress> sources, Duration limit) override {
    const Deadline deadline = Deadline::after(limit);
    const auto start = [&](const SocketAddress& source) -> Result<UniqueFd> {
      UniqueFd fd(::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!fd) return system_error("create socket", errno);
      if (::bind(fd.get(), source.get(), source.length()) != 0) return system_error(concat("bind ", source.host()), errno);
      if (::connect(fd.get(), target.get(), target.length()) != 0 && errno != EINPROGRESS) return system_error("connect", errno);
      return fd;
    };
    std::vector<Result<UniqueFd>> started;
    for (const SocketAddress& source : sources) started.push_back(start(source));
    std::vector<Status> statuses;
    for (const Result<UniqueFd>& fd : started) {
      Status status = fd.is_ok() ? wait_for(fd->get(), POLLOUT, deadline) : fd.status();
      if (status.is_ok()) {
        int error = 0;
        socklen_t length = sizeof error;
        ::getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) status = system_error("connect", error);
      }
      statuses.push_back(std::move(status));
    }
    return statuses;
  }

  std::vector<PathProbe> probe_paths(const SocketAddress& target, std::span<const PathQuestion> questions,
                                     Duration limit) override {
    return tcpx::doctor::probe_paths(target, questions, limit);
  }
};

}  // namespace

std::unique_ptr<NetworkSource> make_network_source() {
  return std::make_unique<KernelSource>();
}

}  // namespace tcpx::doctor
