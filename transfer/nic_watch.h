// NicWatch: asks now and then whether the network interfaces of a pipeline are down.
//
// A TCP pipeline whose interface is gone just waits; the kernel knows at once. An interface may be down for a moment, in which
// TCP loses nothing: data that cannot go another way waits for it a little.
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

  /// @param is_down may be empty: nothing is ever down
  /// @param users of interfaces, which are looked after one by one; two may use the same interface
  NicWatch(IsDown is_down, size_t users, TimePoint now) : is_down_(std::move(is_down)), next_look_(now), looks_down_(users) {}

  /// True when it is time for another look.
  bool due(TimePoint now) {
    if (now < next_look_) return false;
    next_look_ = now + kLookEvery;
    return true;
  }
  /// A look at the interface of a user; an empty name is never down. @param what follows its name in the error
  /// @return ok: it is up, or down for no more than kToleratedLooks looks in a row and that is tolerated
  Status look(size_t user, const std::string& nic, std::string_view what, Tolerance tolerance) {
    Status status = down(nic, what);
    int& looks = looks_down_[user];
    looks = status.is_ok() ? 0 : looks + 1;
    return looks > (tolerance == Tolerance::kNone ? 0 : kToleratedLooks) ? status : Status::ok();
  }
  /// State of an interface now: ok, or the error that it is down.
  Status down(const std::string& nic, std::string_view what) const {
    if (nic.empty() || !is_down_ || !is_down_(nic)) return Status::ok();
    return Status(Code::kSystem, "watch network interface", concat(nic, " is down", what), Domain::kErrno, ENETDOWN);
  }
  /// Asks no more, and lets go of what it asked, which may hold a descriptor.
  void stop() { is_down_ = nullptr; }

  static constexpr Duration kLookEvery = std::chrono::milliseconds(100);
  /// 3 s: about as long as for a host that is silent (endpoint/link.cc). TCP sends again what is lost meanwhile.
  static constexpr int kToleratedLooks = 30;

 private:
  IsDown is_down_;
  TimePoint next_look_;
  std::vector<int> looks_down_;  // the last ones of each user, one after the other
};

}  // namespace tcpx
