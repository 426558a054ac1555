// Full-sized datagrams towards a host, and what comes back of them.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/unique_fd.h"
#include "programs/doctor/network.h"

namespace tcpx::doctor {
namespace {

// The first port that traceroute(8) asks: nobody listens there, so a host that has got the datagram says so, with ICMP.
constexpr uint16_t kUnusedPort = 33434;
constexpr int kHeaders = 20 + 8;  // IPv4 and UDP
constexpr int kShort = 64;
constexpr int kRounds = 3;

/// A datagram of `bytes`, headers included, at a time.
class Probe {
 public:
  Probe(const SocketAddress& target, const SocketAddress& source)
      : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const int probe = IP_PMTUDISC_PROBE;  // sends what is longer than the known path, too, and forbids to cut it
    const SocketAddress to = target.with_port(kUnusedPort);
    usable_ = fd_ && ::setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe) == 0 &&
              ::bind(fd_.get(), source.get(), source.length()) == 0 && ::connect(fd_.get(), to.get(), to.length()) == 0;
  }

  void send(int bytes) {
    const std::string payload(static_cast<size_t>(std::max(0, bytes - kHeaders)), '\0');
    if (usable_ && ::send(fd_.get(), payload.data(), payload.size(), 0) < 0) take(errno);
  }
  /// Takes what has come back.
  void look() {
    int error = 0;
    socklen_t length = sizeof error;
    if (usable_ && ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0) take(error);
  }
  bool answered() const { return answered_; }
  bool too_long() const { return too_long_; }
  int path_mtu() const {
    int mtu = 0;
    socklen_t length = sizeof mtu;
    return usable_ && ::getsockopt(fd_.get(), IPPROTO_IP, IP_MTU, &mtu, &length) == 0 ? mtu : 0;
  }
  pollfd entry() const { return {.fd = answered_ || too_long_ ? -1 : fd_.get(), .events = POLLIN, .revents = 0}; }

 private:
  void take(int error) {
    answered_ = answered_ || error == ECONNREFUSED;
    too_long_ = too_long_ || error == EMSGSIZE;
  }
  UniqueFd fd_;
  bool usable_ = false, answered_ = false, too_long_ = false;
};

}  // namespace

std::vector<PathProbe> probe_paths(const SocketAddress& target, std::span<const PathQuestion> questions, Duration limit) {
  std::vector<Probe> full, brief;
  for (const PathQuestion& question : questions) {
    full.emplace_back(target, question.source);
    brief.emplace_back(target, question.source);
  }
  for (int round = 0; round < kRounds; ++round) {
    const Deadline deadline = Deadline::after(limit / kRounds);
    for (size_t i = 0; i < questions.size(); ++i) {
      if (full[i].entry().fd < 0) continue;
      full[i].send(questions[i].mtu);
      if (!brief[i].answered()) brief[i].send(kShort);
    }
    for (;;) {
      // Those that wait for a full datagram only; short ones are looked at on the way.
      std::vector<pollfd> waiting;
      for (size_t i = 0; i < questions.size(); ++i) {
        full[i].look();
        brief[i].look();
        if (full[i].entry().fd < 0) continue;
        waiting.push_back(full[i].entry());
        if (!brief[i].answered()) waiting.push_back(brief[i].entry());
      }
      if (waiting.empty() || deadline.expired()) break;
      if (::poll(waiting.data(), waiting.size(), deadline.poll_ms()) < 0 && errno != EINTR) break;
    }
  }
  std::vector<PathProbe> answers;
  for (size_t i = 0; i < questions.size(); ++i) {
    PathProbe answer{.answer = PathAnswer::kSilent, .path_mtu = full[i].path_mtu()};
    if (full[i].too_long() || (answer.path_mtu > 0 && answer.path_mtu < questions[i].mtu)) {
      answer.answer = PathAnswer::kTooLong;
    } else if (full[i].answered()) {
      answer.answer = PathAnswer::kArrives;
    } else if (brief[i].answered()) {
      answer.answer = PathAnswer::kVanishes;
    }
    answers.push_back(answer);
  }
  return answers;
}

}  // namespace tcpx::doctor
