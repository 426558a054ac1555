#include "endpoint/served_links.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/text.h"
#include "endpoint/connection_sums.h"

namespace tcpx {
namespace {

// Bounds of the ended and unclaimed links that are kept because their sends can still be received, and of the bytes of these sends.
constexpr size_t kMaxLeftBehind = 64;
constexpr uint64_t kMaxLeftBehindBytes = 64u << 20;
constexpr uint64_t kLeftBehindPart = 8;  // at most 1/8 of what peers may make the endpoint hold

// A failed allocation ends the link that made it, and neither the others nor the process.
template <class Body>
void attend(Link& link, Body body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    link.fail_without_memory();
  }
}

}  // namespace

ServedLinks::Served* ServedLinks::find(ConnId conn) {
  const auto found = links_.find(conn);
  return found == links_.end() ? nullptr : &found->second;
}

// Null if the connection has another link now.
ServedLinks::Served* ServedLinks::find(ConnId conn, uint64_t number) {
  Served* const served = find(conn);
  return served != nullptr && served->number == number ? served : nullptr;
}

uint64_t ServedLinks::add(std::unique_ptr<Link> link, bool unclaimed) {
  const ConnId id = link->id();
  last_conn_ = std::max(last_conn_, static_cast<uint64_t>(id));
  if (Served* const before = find(id)) {
    ended_ = sum_of(ended_, before->link->stats());
    watch(*before, false);
  }
  links_.erase(id);
  Served& served = links_[id];
  served.link = std::move(link);
  served.number = ++last_number_;
  served.unclaimed = unclaimed;
  watch(served, true);
  return served.number;
}

const Link* ServedLinks::claim(ConnId conn) {
  Served* const served = find(conn);
  if (served == nullptr || (!served->link->status().is_ok() && !served->link->has_arrivals())) return nullptr;
  served->unclaimed = false;
  return served->link.get();
}

bool ServedLinks::is_alive(ConnId conn) const {
  const auto found = links_.find(conn);
  return found != links_.end() && !found->second.removed && found->second.link->status().is_ok();
}

bool ServedLinks::revive(ConnId conn) {
  if (!is_alive(conn)) return false;
  find(conn)->idle_since.reset();
  return true;
}

void ServedLinks::retire(ConnId conn, bool keep) {
  Served* const served = find(conn);
  if (served == nullptr) return;
  if (keep && config_.max_idle_connections > 0 && served->link->status().is_ok()) {
    served->link->cancel_all(Status(Code::kCancelled, "remove connection", "removed by the application"));
    served->idle_since = Clock::steady().now();
    served->has_work = true;
  } else {
    close(conn);
  }
  next_look_ = {};
}

void ServedLinks::close(ConnId conn) {
  Served* const served = find(conn);
  if (served == nullptr) return;
  served->removed = true;
  served->link->close();
}

void ServedLinks::close_all() {
  for (auto& [id, served] : links_) {
    if (!std::exchange(served.removed, true)) attend(*served.link, [&link = *served.link] { link.close(); });
  }
}

void ServedLinks::submit(Operation& operation) {
  Served* const served = find(operation.conn, operation.link);
  if (served == nullptr) {
    ++ended_.operations_failed;
    return operations_.finish(operation, Status(Code::kPeerGone, std::string(name_of(operation.kind)),
                                                "the connection was closed or made anew before the operation began"));
  }
  // The request may have been looked at while the operation was still queued and unknown to its link.
  const bool cancelled = operation.cancel_requested();
  attend(*served->link, [&] {
    served->link->submit(operation);
    if (cancelled) served->link->take_cancel_requests();
  });
  served->has_work = true;
}

void ServedLinks::notify(std::unique_ptr<Notification> notification) {
  Served* const served = find(notification->conn, notification->link);
  if (served == nullptr) return;
  attend(*served->link, [&] { served->link->notify(std::move(notification)); });
  served->has_work = true;
}

bool ServedLinks::look_at_sockets(TimePoint now, bool and_plugins) {
  // If all links are in shared memory, few turns need this system call.
  const bool may_tell =
      sockets_ > 0 || std::exchange(woken_, false) || now >= next_look_ || (and_plugins && chunks_in_flight() > 0);
  return may_tell && mark_readable();
}

bool ServedLinks::turn(TimePoint now) {
  const bool look = now >= next_look_;
  if (look) next_look_ = now + kLookEvery;
  const bool cancels = operations_.take_cancel_requests();
  bool advanced = false;
  for (auto& entry : links_) {
    Served& served = entry.second;
    if (!look && !cancels && !served.readable && !served.has_work && !served.link->has_arrived() && !served.link->needs_turns())
      continue;
    attend(*served.link, [&] {
      if (cancels) served.link->take_cancel_requests();
      advanced |= served.link->progress(std::exchange(served.readable, false));
    });
    served.has_work = false;
  }
  if (look) look_after();
  return advanced;
}

void ServedLinks::progress(ConnId conn) {
  Served* const served = find(conn);
  if (served != nullptr) attend(*served->link, [&] { (void)served->link->progress(false); });
}

bool ServedLinks::mark_readable() {
  WakeableEpoll::Tags room;
  bool plugins = false;
  for (const uint64_t tag : events_.readable(room)) {
    plugins |= tag == kPluginTag;
    if (Served* const served = find(ConnId{tag}); served != nullptr) served->readable = true;
  }
  return plugins;
}

void ServedLinks::watch(Served& served, bool on) {
  if (std::exchange(served.watched, on) == on) return;
  events_.watch(served.link->fd(), static_cast<uint64_t>(served.link->id()), on);
  if (served.link->is_shared()) return;
  if (on) ++sockets_;
  if (!on) --sockets_;
}

bool ServedLinks::prepare_sleep() {
  asleep_ = true;
  bool any = false;
  for (auto& [id, served] : links_) any |= served.link->prepare_sleep();
  return any;
}

void ServedLinks::end_sleep() {
  if (!std::exchange(asleep_, false)) return;
  woken_ = true;
  for (auto& [id, served] : links_) served.link->end_sleep();
}

// Closes at most one kept link per call: if there are too many, or if it has been idle for too long.
void ServedLinks::close_longest_idle() {
  size_t idle = 0;
  Served* oldest = nullptr;
  for (auto& [id, served] : links_) {
    if (!served.idle_since || !served.link->reads()) continue;
    ++idle;
    if (oldest == nullptr || *served.idle_since < *oldest->idle_since) oldest = &served;
  }
  if (oldest == nullptr) return;
  if (idle <= config_.max_idle_connections && Clock::steady().now() - *oldest->idle_since < saturated(config_.idle_time)) return;
  oldest->removed = true;
  attend(*oldest->link, [&] { oldest->link->close(); });
}

// Call before a link is removed. @return false: out of memory; try again later
bool ServedLinks::keep_counts(const Link& link) {
  try {
    ended_ = sum_of(ended_, link.stats());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Closes a link that was kept too long, and removes links that have ended.
void ServedLinks::look_after() {
  close_longest_idle();
  const auto is_left_behind = [](const Served& served) {
    return served.unclaimed && served.link->closed() && served.link->has_arrivals();
  };
  const uint64_t most_bytes = std::min(kMaxLeftBehindBytes, config_.max_peer_bytes.value_or(UINT64_MAX) / kLeftBehindPart);
  size_t left_behind = 0;
  uint64_t left_bytes = 0;
  for (const auto& [id, served] : links_) {
    if (!is_left_behind(served)) continue;
    ++left_behind;
    left_bytes += served.link->arrived_bytes();
  }
  // The oldest first: ids grow.
  for (auto entry = links_.begin(); entry != links_.end();) {
    Served& served = entry->second;
    if (!served.link->reads()) watch(served, false);
    bool by_itself = served.unclaimed && !served.link->has_arrivals();
    if ((left_behind > kMaxLeftBehind || left_bytes > most_bytes) && is_left_behind(served)) {
      by_itself = true;
      --left_behind;
      left_bytes -= served.link->arrived_bytes();
    }
    const bool gone = (served.removed || served.idle_since || by_itself) && served.link->closed() && keep_counts(*served.link);
    if (gone && by_itself) forget_(entry->first);
    entry = gone ? links_.erase(entry) : std::next(entry);
  }
}

bool ServedLinks::needs_turns() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.link->needs_turns(); });
}

bool ServedLinks::needs_polling() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.link->needs_polling(); });
}

uint64_t ServedLinks::chunks_in_flight() const {
  uint64_t sum = 0;
  for (const auto& [id, served] : links_) sum += served.link->chunks_in_flight();
  return sum;
}

uint64_t ServedLinks::network_bytes() const {
  uint64_t sum = 0;
  for (const auto& [id, served] : links_) sum += served.link->network_bytes();
  return sum;
}

std::optional<TimePoint> ServedLinks::fail_those_that_serve(MemoryId region) {
  std::optional<TimePoint> last;
  for (auto& [id, served] : links_) {
    Link& link = *served.link;
    if (!link.serves(region)) continue;
    if (!served.cut_off_at) {
      served.cut_off_at = Clock::steady().now();
      served.has_work = true;
      attend(link, [&link] {
        link.fail(Status(Code::kTimeout, "deregister memory",
                         "the peer still uses the memory: the connection is closed so that nothing touches it"));
      });
    }
    last = std::max(last, served.cut_off_at);
  }
  return last;
}

std::vector<ServedLinks::Holder> ServedLinks::forget(MemoryId region) {
  std::vector<Holder> holders;
  for (auto& [id, served] : links_) {
    attend(*served.link, [&holders, region, &link = *served.link, conn = id, number = served.number] {
      if (link.forget(region)) holders.push_back({conn, number});
    });
  }
  return holders;
}

void ServedLinks::look_at(std::vector<Holder>& holders, MemoryId region) {
  std::erase_if(holders, [&](const Holder& one) {
    const Served* const served = find(one.conn, one.link);
    return served == nullptr || !served->link->peer_holds(region);
  });
}

Status ServedLinks::why_ended(ConnId conn) const {
  const auto found = links_.find(conn);
  if (found != links_.end() && !found->second.link->status().is_ok()) return found->second.link->status();
  return Status(Code::kPeerGone, "notify", "the connection was closed");
}

std::vector<ConnectionStats> ServedLinks::stats() const {
  std::vector<ConnectionStats> stats;
  for (const auto& [id, served] : links_) stats.push_back(served.link->stats());
  return stats;
}

std::string ServedLinks::flight_record() const {
  std::string text = concat(links_.size(), " connections");
  for (const auto& [id, served] : links_) text += concat("\n", served.link->flight_record());
  return text;
}

}  // namespace tcpx
