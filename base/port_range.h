// Ports for listening sockets. Clusters open a range of ports in their firewalls, and every listener stays within it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/environment.h"
#include "tcpx/status.h"

namespace tcpx {

/// A range of ports, both ends included.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 65535;
  bool contains(uint32_t port) const { return first <= port && port <= last; }
  uint32_t count() const { return uint32_t{last} - first + 1; }
  bool operator==(const PortRange&) const = default;
};

/// Parses "50000-60000". nullopt: not two ports from 1 to 65535, the first not above the last.
std::optional<PortRange> parse_port_range(std::string_view text);

/// The ports that the user has opened for listeners.
struct ListeningPorts {
  PortRange range;
  std::string wish;  ///< the user's setting, for messages: "UCCL_TCPX_PORT_RANGE=50000-60000"
};

/// Reads the range from UCCL_TCPX_PORT_RANGE, or from NCCL_GPUDIRECTTCPX_PORT_BEGIN and ..._PORT_END when that is unset.
/// @param value_of returns a variable's value, "" when it is unset
/// @return nullopt: none is set, so the kernel picks a port. kBadConfig: malformed, or only one of the two is set
Result<std::optional<ListeningPorts>> listening_ports(const std::function<std::string(Variable)>& value_of = environment_text);

}  // namespace tcpx
