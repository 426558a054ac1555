#include <linux/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "measure/pattern.h"
#include "programs/doctor/selftest.h"

namespace tcpx::doctor {
namespace {

constexpr size_t kMostSockets = 64;
constexpr size_t kTimed = 5;
constexpr uint64_t kSeed = 1;

struct TcpStream {
  UniqueFd out, in;
};

/// All bytes once. @return seconds
Result<double> move_once(const std::vector<TcpStream>& streams, std::span<const std::byte> from, std::span<std::byte> to,
                         Deadline deadline) {
  std::vector<Status> statuses(2 * streams.size());
  const TimePoint begin = Clock::steady().now();
  try {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < streams.size(); ++i) {
      const size_t first = from.size() * i / streams.size(), bytes = from.size() * (i + 1) / streams.size() - first;
      const TcpStream& stream = streams[i];
      threads.emplace_back(
          [&, i, first, bytes] { statuses[2 * i] = send_all(stream.out.get(), from.subspan(first, bytes), deadline); });
      threads.emplace_back(
          [&, i, first, bytes] { statuses[2 * i + 1] = recv_all(stream.in.get(), to.subspan(first, bytes), deadline); });
    }
  } catch (const std::system_error& error) {  // no more threads; those there are end at the deadline
    return Status(Code::kSystem, "start a thread", error.what());
  }
  const std::chrono::duration<double> took = Clock::steady().now() - begin;
  for (const Status& status : statuses) TCPX_RETURN_IF_ERROR(status);
  return took.count();
}

}  // namespace

Result<std::vector<double>> time_raw_tcp(uint64_t bytes, size_t sockets, Duration limit) {
  if (sockets == 0 || sockets > kMostSockets) {
    return Status(Code::kInvalidArgument, "time raw TCP", concat(sockets, " sockets; allowed are 1 to ", kMostSockets));
  }
  const TimePoint enough = Clock::steady().now() + limit / 2;
  const Deadline deadline = Deadline::after(limit);
  TCPX_ASSIGN_OR_RETURN(const auto listener, listen_tcp(SocketAddress::loopback(0), 1));
  std::vector<TcpStream> streams;
  while (streams.size() < sockets) {
    TCPX_ASSIGN_OR_RETURN(auto out, connect_tcp(*local_address(listener.get()), deadline));
    TCPX_RETURN_IF_ERROR(wait_for(listener.get(), POLLIN, deadline));
    UniqueFd in(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!in) return system_error("accept", errno);
    streams.push_back({std::move(out), std::move(in)});
  }
  std::vector<std::byte> from(bytes), to(bytes);
  fill_pattern(from, kSeed);
  std::vector<double> seconds;
  for (size_t i = 0; i <= kTimed && (seconds.empty() || Clock::steady().now() < enough); ++i) {
    TCPX_ASSIGN_OR_RETURN(const auto took, move_once(streams, from, to, deadline));
    if (i > 0) seconds.push_back(took);
    if (i == 0) {
      TCPX_RETURN_IF_ERROR(verify_pattern(to, kSeed));
      std::fill(to.begin(), to.end(), std::byte{0});
    }
  }
  TCPX_RETURN_IF_ERROR(verify_pattern(to, kSeed));
  return seconds;
}

size_t sockets_that_received(uint64_t least) {
  size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end; entry.increment(error)) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(std::atoi(entry->path().filename().c_str()), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    if (info.tcpi_bytes_received >= least) ++count;  // zero from a kernel before 4.1, which does not tell
  }
  return count;
}

}  // namespace tcpx::doctor
