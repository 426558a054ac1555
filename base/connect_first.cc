#include "base/connect_first.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/words.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstRetryPause = milliseconds(10), kLongestRetryPause = milliseconds(200);
// An attempt without an answer is started again after this time: the host may have come up with a changed network.
constexpr Duration kConnectAttempt = std::chrono::seconds(3);

// On a port of the ephemeral range a connect to this machine can connect to itself although nobody listens.
bool is_self_connection(int fd) {
  const auto local = local_address(fd), remote = peer_address(fd);
  return local.is_ok() && remote.is_ok() && local->to_string() == remote->to_string();
}

// True when the same address may answer later: nobody listens there yet, the network is slow or down, or no local port is free. A
// lack of descriptors is reported at once: waiting does not help, because those who wait hold the descriptors.
bool may_answer_later(const Status& status) {
  return status.code() == Code::kPeerGone || status.code() == Code::kTimeout ||
         (is_shortage(status) && status.native() == EADDRNOTAVAIL);
}

bool is_refusal(const Status& status) {
  return status.native() == ECONNREFUSED || status.native() == ECONNRESET;
}

std::string way_to(const ConnectRace::Target& target) {
  return concat(target.device, ' ', target.address.host());
}

bool is_writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

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

ConnectRace::ConnectRace(const std::vector<Target>& targets, WhenRefused when_refused, WayMemory& memory)
    : when_refused_(when_refused), memory_(memory) {
  const TimePoint now = Clock::steady().now();
  for (const Target& target : targets) candidates_.push_back({.target = target, .next = now, .pause = kFirstRetryPause});
  if (targets.size() == 1) return;
  std::stable_partition(candidates_.begin(), candidates_.end(),
                        [&](const Candidate& each) { return !memory_.leads_nowhere(way_to(each.target)); });
}

Result<UniqueFd> ConnectRace::advance() {
  for (Candidate& candidate : candidates_) {
    if (candidate.hopeless) continue;
    if (const TimePoint now = Clock::steady().now(); !candidate.socket && candidate.next <= now) {
      if (!std::exchange(candidate.tried, true)) try_next_at(now + kConnectDelay);
      const Target& target = candidate.target;
      auto socket = begin_connect(target.address, target.source ? &*target.source : nullptr, target.device);
      if (socket.is_ok()) {
        candidate.socket = std::move(*socket);
        candidate.next = now + kConnectAttempt;
      } else {
        failed(candidate, socket.status());
      }
    }
    if (!candidate.socket) continue;
    auto connected = look_at(candidate);
    if (!connected.is_ok()) {
      failed(candidate, connected.status());
    } else if (*connected) {
      remember(candidate);
      return connected;
    }
  }
  if (std::any_of(candidates_.begin(), candidates_.end(), [](const Candidate& each) { return !each.hopeless; }))
    return UniqueFd();
  return candidates_.empty() ? Status(Code::kInternal, "connect", "no address") : trouble();
}

Result<UniqueFd> ConnectRace::look_at(Candidate& candidate) {
  const SocketAddress& address = candidate.target.address;
  if (is_writable(candidate.socket.get())) {
    TCPX_RETURN_IF_ERROR(end_connect(candidate.socket.get(), address));
    if (!is_self_connection(candidate.socket.get())) return std::move(candidate.socket);
    return Status(Code::kPeerGone, concat("connect to ", address.to_string()), "nobody listens", Domain::kErrno, ECONNREFUSED);
  }
  if (Clock::steady().now() < candidate.next) return UniqueFd();
  return Status(Code::kTimeout, concat("connect to ", address.to_string()), "no answer");
}

void ConnectRace::failed(Candidate& candidate, Status why) {
  const TimePoint now = Clock::steady().now();
  const bool first = candidate.last.is_ok();
  if (is_refusal(why) && !candidate.refused_since) candidate.refused_since = now;
  const bool refused_for_long =
      when_refused_ == WhenRefused::kSoonGivesUp && is_refusal(why) && now - *candidate.refused_since >= kRefusalPatience;
  candidate.socket.reset();
  candidate.hopeless = when_refused_ == WhenRefused::kGiveUp || refused_for_long || !may_answer_later(why);
  candidate.next = now + candidate.pause;
  candidate.pause = std::min(2 * candidate.pause, kLongestRetryPause);
  candidate.last = std::move(why);
  if (first) try_next_at(now);
}

// An address without an alternative is not remembered: it would only take the place of others.
void ConnectRace::remember(const Candidate& winner) {
  if (candidates_.size() == 1) return;
  const TimePoint now = Clock::steady().now();
  for (const Candidate& each : candidates_) {
    const bool had_its_time = each.socket && now >= each.next - kConnectAttempt + kConnectDelay;
    if (had_its_time && !is_writable(each.socket.get())) memory_.was_silent(way_to(each.target));
  }
  memory_.has_answered(way_to(winner.target));
}

// Makes all targets that have not been tried due at that time. When the first of them is tried, the others are put off again.
void ConnectRace::try_next_at(TimePoint time) {
  for (Candidate& candidate : candidates_)
    if (!candidate.tried) candidate.next = time;
}

Deadline ConnectRace::wait_on(std::vector<pollfd>& entries, Deadline until) const {
  for (const Candidate& candidate : candidates_) {
    if (candidate.hopeless) continue;
    until = until.earlier(Deadline(candidate.next));
    if (candidate.socket) entries.push_back({candidate.socket.get(), POLLOUT, 0});
  }
  return until;
}

std::string ConnectRace::operation() const {
  return concat("connect to ", joined(candidates_, ", ", [](const Candidate& each) { return each.target.address.to_string(); }));
}

Status ConnectRace::trouble() const {
  const Candidate* chief = nullptr;
  std::string what;
  for (const Candidate& each : candidates_) {
    const bool answered = !each.last.is_ok();
    // The error of an address that can never answer, such as one of a family that this machine lacks, does not describe the
    // others.
    if (answered && (chief == nullptr || may_answer_later(each.last))) chief = &each;
    const std::string detail = answered ? each.last.detail() : each.tried ? "no answer" : "not tried";
    what += candidates_.size() == 1 ? detail : concat(what.empty() ? "" : "; ", each.target.address.to_string(), ": ", detail);
  }
  if (chief == nullptr) return Status::ok();
  return {chief->last.code(), operation(), what, chief->last.domain(), chief->last.native()};
}

Result<UniqueFd> connect_first(const std::vector<SocketAddress>& addresses, WhenRefused when_refused, Deadline deadline,
                               const std::atomic<bool>* stop, WayMemory& memory) {
  std::vector<ConnectRace::Target> targets;
  for (const SocketAddress& address : interleave_families(addresses)) targets.push_back({address});
  if (targets.size() > kMostAddresses) targets.resize(kMostAddresses);
  ConnectRace race(targets, when_refused, memory);
  for (;;) {
    auto socket = race.advance();
    if (!socket.is_ok() || *socket) return socket;
    if (stop != nullptr && stop->load()) return Status(Code::kCancelled, race.operation(), "interrupted");
    if (deadline.expired()) {
      const Status last = race.trouble();
      if (is_shortage(last)) return last;
      return Status(Code::kTimeout, race.operation(),
                    concat("no answer until the deadline, last: ", last.is_ok() ? "no answer" : last.detail()), last.domain(),
                    last.native());
    }
    std::vector<pollfd> entries;
    const Deadline next = race.wait_on(entries, stop != nullptr ? deadline.earlier(Deadline::after(kLookAtStop)) : deadline);
    if (::poll(entries.data(), entries.size(), next.poll_ms()) < 0 && errno != EINTR) return system_error("poll", errno);
  }
}

}  // namespace tcpx
