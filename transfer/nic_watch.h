// NicWatch: checks periodically whether the network interfaces of a pipeline are down.
//
// When its interface is down, a TCP pipeline just waits, although the kernel knows at once. But an interface may be down for a
// moment only, and TCP loses nothing then. So data that has no other path is given some time (Tolerance::kBrief).
#pragma once

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "tcpx/status.h"

namespace tcpx {

/// One thread at a time.
class NicWatch {
 public:
  using IsDown = std::function<bool(const std::string& nic)>;
  enum class Tolerance { kNone, kBrief };

  /// @param is_down may be empty: no interface is ever down then
  /// @param users number of users of interfaces; each is watched separately, and several may use the same interface
  NicWatch(IsDown is_down, size_t users, TimePoint now) : is_down_(std::move(is_down)), next_look_(now), looks_down_(users) {}

  /// True when it is time to check again.
  bool due(TimePoint now) {
    if (now < next_look_) return false;
    next_look_ = now + kLookEvery;
    return true;
  }
  /// Checks the interface of a user. An empty name is never down. @param what text that follows the interface's name in the error
  /// @return ok: the interface is up, or with kBrief has been down in no more than kToleratedLooks checks in a row
  Status look(size_t user, const std::string& nic, std::string_view what, Tolerance tolerance) {
    Status status = down(nic, what);
    int& looks = looks_down_[user];
    looks = status.is_ok() ? 0 : looks + 1;
    return looks > (tolerance == Tolerance::kNone ? 0 : kToleratedLooks) ? status : Status::ok();
  }
  /// State of an interface now: ok, or an error that says that it is down.
  Status down(const std::string& nic, std::string_view what) const {
    if (nic.empty() || !is_down_ || !is_down_(nic)) return Status::ok();
    return Status(Code::kSystem, "watch network interface", concat(nic, " is down", what), Domain::kErrno, ENETDOWN);
  }
  /// Stops checking and destroys `is_down`, which may hold a descriptor.
  void stop() { is_down_ = nullptr; }

  static constexpr Duration kLookEvery = std::chrono::milliseconds(100);
  /// 3 s: about as long as a silent host is tolerated (endpoint/link.cc). TCP retransmits what is lost meanwhile.
  static constexpr int kToleratedLooks = 30;

 private:
  IsDown is_down_;
  TimePoint next_look_;
  std::vector<int> looks_down_;  // by user: how many of the latest checks in a row found the interface down
};

}  // namespace tcpx
