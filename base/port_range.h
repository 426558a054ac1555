// Ports for listening sockets. Clusters open a range of them in their firewalls, and whatever listens keeps to it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/environment.h"
#include "tcpx/status.h"

namespace tcpx {

/// Inclusive.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 65535;
  bool contains(uint32_t port) const { return first <= port && port <= last; }
  uint32_t count() const { return uint32_t{last} - first + 1; }
  bool operator==(const PortRange&) const = default;
};

/// "50000-60000". nullopt: not two ports from 1 on in this order.
std::optional<PortRange> parse_port_range(std::string_view text);

/// What the user has opened for listeners.
struct ListeningPorts {
  PortRange range;
  std::string wish;  ///< how the user said it, for people: "UCCL_TCPX_PORT_RANGE=50000-60000"
};

/// Of UCCL_TCPX_PORT_RANGE; of NCCL_GPUDIRECTTCPX_PORT_BEGIN and ..._PORT_END when that is unset.
/// @param value_of the variable's value, "" when it is unset
/// @return nullopt: nobody said anything, so the kernel picks. kBadConfig: malformed, or one of the two alone
Result<std::optional<ListeningPorts>> listening_ports(const std::function<std::string(Variable)>& value_of = environment_text);

}  // namespace tcpx
