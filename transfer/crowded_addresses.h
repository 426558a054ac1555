// CrowdedAddresses: who of many clients gives way when there is not room for all. Clients of one address are the business of one
// host, which cannot have the places of all others by asking more often.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "base/clock.h"

namespace tcpx {

class CrowdedAddresses {
 public:
  /// A place that a client of that address has.
  void add(const std::string& address) { ++places_[address]; }

  /// Whether a client gives way before another one: of the address that has more places, else the one that was silent for longer.
  bool goes_before(const std::string& address, TimePoint heard_at, const std::string& other, TimePoint other_heard_at) const {
    const size_t mine = of(address), others = of(other);
    return mine != others ? mine > others : heard_at < other_heard_at;
  }
  /// More than its share of `places`, of which one more address wants some. @param newcomer that address
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
