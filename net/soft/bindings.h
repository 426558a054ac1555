// Cores that the I/O threads of a network interface run on.
#pragma once

#include <pthread.h>

#include <map>
#include <string>
#include <vector>

#include "tcpx/status.h"

namespace tcpx::soft {

/// Core numbers, ascending, each once. Empty: any core.
using CoreSet = std::vector<int>;

/// Interface name to cores.
using Bindings = std::map<std::string, CoreSet>;

/// Pure parse of "eth1:8-21,112-125;eth2:60-73", the form of NCCL_GPUDIRECTTCPX_TX_BINDINGS and ..._RX_BINDINGS. "" is no
/// binding. kBadConfig, naming `variable`, for anything else: blanks, empty parts, a descending range, a core or interface
/// named twice, a core number above what Linux can bind (CPU_SETSIZE).
Result<Bindings> parse_bindings(const char* variable, const std::string& text);

/// kBadConfig, naming `variable`, unless this machine has every interface and core, and this process may use at least one core
/// of each set.
Status check_bindings(const char* variable, const Bindings& bindings);

/// kSystem when the kernel refuses. An empty set changes nothing.
Status bind_thread(pthread_t thread, const CoreSet& cores);

}  // namespace tcpx::soft
