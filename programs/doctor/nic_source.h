// What network interfaces answer when they are asked, other than through /sys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/soft/interfaces.h"

namespace tcpx::doctor {

/// As ethtool(8) shows it. What a driver does not tell is empty.
struct NicAnswers {
  std::optional<bool> data_split;                            ///< `ethtool -g`: TCP data split
  std::vector<std::pair<std::string, bool>> private_flags;   ///< `ethtool --show-priv-flags`
  std::optional<bool> ntuple;                                ///< `ethtool -k`: ntuple-filters
  std::optional<uint32_t> ntuple_rules;                      ///< `ethtool -n`: how many there are
  std::vector<std::pair<std::string, uint64_t>> statistics;  ///< `ethtool -S`
};

/// Asks only for what every user may know, and changes nothing.
class NicSource {
 public:
  virtual ~NicSource() = default;

  /// Those of all interfaces in this network namespace.
  virtual std::vector<soft::InterfaceAddress> addresses() const = 0;
  /// Empty answers for an interface that does not exist.
  virtual NicAnswers ask(const std::string& interface) const = 0;
};

std::unique_ptr<NicSource> make_nic_source();

}  // namespace tcpx::doctor
