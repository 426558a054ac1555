// CrowdedAddresses: decides which client gives way when there is no room for all. Clients with the same address come from one
// host, and a host cannot take the places of all others by connecting more often.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "base/clock.h"

namespace tcpx {

class CrowdedAddresses {
 public:
  /// Counts a place that a client with this address has.
  void add(const std::string& address) { ++places_[address]; }

  /// True when a client gives way before another one: the client whose address has more places, or with equal numbers the one
  /// that has been silent for longer.
  bool goes_before(const std::string& address, TimePoint heard_at, const std::string& other, TimePoint other_heard_at) const {
    const size_t mine = of(address), others = of(other);
    return mine != others ? mine > others : heard_at < other_heard_at;
  }
  /// True when `address` has more than an equal share of `places`. @param newcomer an address that also wants places, and is
  /// counted
  bool has_more_than_its_share(const std::string& address, const std::string& newcomer, size_t places) const {
    const size_t addresses = places_.size() + (places_.contains(newcomer) ? 0 : 1);
    return of(address) > std::max<size_t>(places / addresses, 1);
  }

 private:
  size_t of(const std::string& address) const {
    const auto known = places_.find(address);
    return known == places_.end() ? 0 : known->second;
  }
  std::map<std::string, size_t> places_;
};

}  // namespace tcpx
