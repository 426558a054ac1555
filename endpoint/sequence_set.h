// SequenceSet: a set of sequence numbers, for the sends or receives of one connection that will meet nobody. Neighbours form one
// interval, so its memory grows with the holes between the numbers and not with their count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace tcpx {

class SequenceSet {
 public:
  bool contains(uint64_t sequence) const {
    const auto behind = last_of_.upper_bound(sequence);
    return behind != last_of_.begin() && std::prev(behind)->second >= sequence;
  }

  void insert(uint64_t sequence) {
    if (contains(sequence)) return;
    uint64_t last = sequence;
    auto behind = last_of_.upper_bound(sequence);
    if (behind != last_of_.end() && behind->first - 1 == sequence) {
      last = behind->second;
      behind = last_of_.erase(behind);
    }
    if (behind != last_of_.begin() && std::prev(behind)->second + 1 == sequence) {
      std::prev(behind)->second = last;
    } else {
      last_of_.emplace_hint(behind, sequence, last);
    }
  }

  /// @return false: it was not in the set
  bool erase(uint64_t sequence) {
    if (!contains(sequence)) return false;
    const auto interval = std::prev(last_of_.upper_bound(sequence));
    const auto [first, last] = *interval;
    if (last > sequence) last_of_.emplace_hint(std::next(interval), sequence + 1, last);
    if (first < sequence) {
      interval->second = sequence - 1;
    } else {
      last_of_.erase(interval);
    }
    return true;
  }

  void clear() { last_of_.clear(); }
  size_t intervals() const { return last_of_.size(); }

 private:
  std::map<uint64_t, uint64_t> last_of_;  // by the first number of each interval; intervals never touch
};

}  // namespace tcpx
