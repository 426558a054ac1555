// Parameters: what create_backend takes as strings. But for `gpu` they are the variables of docs/env.md without their prefix, in
// lower case: UCCL_TCPX_NUM_CHANNELS is num_channels, NCCL_GPUDIRECTTCPX_SOCKET_IFNAME is socket_ifname.
#pragma once

#include <optional>

#include "integrations/nixl/nixl_abi.h"
#include "tcpx/status.h"

namespace tcpx::nixl {

/// All there are, with the values that this process goes by: the parameters it was given, before the environment's, before the
/// defaults. An empty one is decided by the machine. `set_parameters` with what this returned changes nothing.
abi::Parameters parameters_in_force();

/// Puts them in the place of the environment's, for this process. Empty ones, and those that are in force, are left alone.
/// @return `gpu`, the one parameter that is no variable: the endpoint's GPU; nullopt: the one current in the calling thread.
/// kBadConfig naming the first that is unknown or malformed; nothing has changed then
Result<std::optional<int>> set_parameters(const abi::Parameters& parameters);

}  // namespace tcpx::nixl
