#include "base/connect_first.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstRetryPause = milliseconds(10), kLongestRetryPause = milliseconds(200);
// An attempt without an answer begins anew: the host may have come up with another idea of the network.
constexpr Duration kConnectAttempt = std::chrono::seconds(3);

// On a port of the ephemeral range a connect to this machine can meet itself, with nobody listening.
bool is_self_connection(int fd) {
  const auto local = local_address(fd), remote = peer_address(fd);
  return local.is_ok() && remote.is_ok() && local->to_string() == remote->to_string();
}

// Nobody listens there yet, or the network is slow: the same address may answer later.
bool may_answer_later(const Status& status) {
  return status.code() == Code::kPeerGone || status.code() == Code::kTimeout;
}

struct Candidate {
  SocketAddress address;
  TimePoint next;  // without a socket: when to try; with one: when to give this attempt up
  UniqueFd socket = {};
  Duration pause = kFirstRetryPause;
  Status last = {};  // of the attempts before
  bool tried = false;
  bool hopeless = false;

  bool waits() const { return !socket && !hopeless; }
};

class Race {
 public:
  Race(const std::vector<SocketAddress>& addresses, WhenRefused when_refused) : when_refused_(when_refused) {
    TimePoint next = Clock::steady().now();
    for (const SocketAddress& address : addresses) {
      candidates_.push_back({.address = address, .next = next});
      next += kConnectDelay;
    }
  }

  /// Begins the attempts whose time has come.
  void begin() {
    for (Candidate& candidate : candidates_) {
      if (!candidate.waits() || candidate.next > Clock::steady().now()) continue;
      auto socket = begin_connect(candidate.address);
      if (!socket.is_ok()) {
        failed(candidate, socket.status());
        continue;
      }
      candidate.tried = true;
      candidate.socket = std::move(*socket);
      candidate.next = Clock::steady().now() + kConnectAttempt;
    }
  }

  /// Waits until something happens or has to be done. @return the connection, if there is one now
  Result<UniqueFd> wait(Deadline deadline) {
    std::vector<pollfd> entries;
    std::vector<Candidate*> pending;
    for (Candidate& candidate : candidates_) {
      if (candidate.hopeless) continue;
      deadline = deadline.earlier(Deadline(candidate.next));
      if (!candidate.socket) continue;
      entries.push_back({candidate.socket.get(), POLLOUT, 0});
      pending.push_back(&candidate);
    }
    if (::poll(entries.data(), entries.size(), deadline.poll_ms()) < 0 && errno != EINTR) return system_error("poll", errno);
    const TimePoint now = Clock::steady().now();
    for (size_t i = 0; i < pending.size(); ++i) {
      Candidate& candidate = *pending[i];
      if (entries[i].revents != 0) {
        Status status = end_connect(candidate.socket.get(), candidate.address);
        if (status.is_ok() && !is_self_connection(candidate.socket.get())) return std::move(candidate.socket);
        if (status.is_ok()) status = Status(Code::kPeerGone, operation_of(candidate), "nobody listens");
        failed(candidate, std::move(status));
      } else if (candidate.next <= now) {
        failed(candidate, Status(Code::kTimeout, operation_of(candidate), "no answer"));
      }
    }
    return UniqueFd();
  }

  bool is_hopeless() const {
    return std::all_of(candidates_.begin(), candidates_.end(), [](const Candidate& each) { return each.hopeless; });
  }

  /// What became of all, with the code of the one that says most.
  Status outcome() const {
    if (candidates_.empty()) return {Code::kInternal, "connect", "no address"};
    const Candidate* chief = nullptr;
    std::string where, what;
    for (const Candidate& each : candidates_) {
      const bool answered = !each.last.is_ok();
      // An address of a family that this machine lacks says nothing about the others.
      if (answered && (chief == nullptr || may_answer_later(each.last))) chief = &each;
      const std::string address = each.address.to_string();
      const std::string detail = answered ? each.last.detail() : each.tried ? "no answer" : "not tried";
      where += concat(where.empty() ? "" : ", ", address);
      what += candidates_.size() == 1 ? detail : concat(what.empty() ? "" : "; ", address, ": ", detail);
    }
    const std::string operation = concat("connect to ", where);
    if (chief == nullptr) return {Code::kTimeout, operation, what};
    return {chief->last.code(), operation, what, chief->last.domain(), chief->last.native()};
  }

 private:
  static std::string operation_of(const Candidate& candidate) { return concat("connect to ", candidate.address.to_string()); }

  void failed(Candidate& candidate, Status why) {
    const TimePoint now = Clock::steady().now();
    const bool first = candidate.last.is_ok();
    candidate.tried = true;
    candidate.socket.reset();
    candidate.hopeless = when_refused_ == WhenRefused::kGiveUp || !may_answer_later(why);
    candidate.next = now + candidate.pause;
    candidate.pause = std::min(2 * candidate.pause, kLongestRetryPause);
    candidate.last = std::move(why);
    if (first) hasten(now);
  }

  // The addresses that have not been tried follow at once, each at its distance from the one before.
  void hasten(TimePoint now) {
    TimePoint next = now;
    for (Candidate& candidate : candidates_) {
      if (candidate.tried) continue;
      candidate.next = std::min(candidate.next, next);
      next = candidate.next + kConnectDelay;
    }
  }

  const WhenRefused when_refused_;
  std::deque<Candidate> candidates_;
};

}  // namespace

std::vector<SocketAddress> interleave_families(const std::vector<SocketAddress>& addresses) {
  std::vector<SocketAddress> in_turns;
  size_t first = 0, other = 0;
  const auto take = [&](size_t& from, bool family_of_first) {
    while (from < addresses.size() && (addresses[from].family() == addresses.front().family()) != family_of_first) ++from;
    if (from < addresses.size()) in_turns.push_back(addresses[from++]);
  };
  while (in_turns.size() < addresses.size()) {
    take(first, true);
    take(other, false);
  }
  return in_turns;
}

Result<UniqueFd> connect_first(const std::vector<SocketAddress>& addresses, WhenRefused when_refused, Deadline deadline,
                               const std::atomic<bool>* stop) {
  std::vector<SocketAddress> in_turns = interleave_families(addresses);
  if (in_turns.size() > kMostAddresses) in_turns.resize(kMostAddresses);
  Race race(in_turns, when_refused);
  for (;;) {
    race.begin();
    if (race.is_hopeless()) return race.outcome();
    TCPX_ASSIGN_OR_RETURN(auto socket, race.wait(stop != nullptr ? deadline.earlier(Deadline::after(kLookAtStop)) : deadline));
    if (socket) return socket;
    if (stop != nullptr && stop->load()) return Status(Code::kCancelled, race.outcome().operation(), "interrupted");
    if (race.is_hopeless()) return race.outcome();
    if (!deadline.expired()) continue;
    const Status last = race.outcome();
    return Status(Code::kTimeout, last.operation(), concat("no answer until the deadline, last: ", last.detail()), last.domain(),
                  last.native());
  }
}

}  // namespace tcpx
