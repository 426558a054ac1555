// Group "nics": the network interfaces that carry data.
#pragma once

#include "tools/doctor/finding.h"
#include "tools/doctor/machine.h"
#include "tools/doctor/nic_source.h"

namespace tcpx::doctor {

/// A check of one interface is named by it: "mtu[eth1]". Interfaces that carry no data get one line together.
Findings check_nics(const Machine& machine, const NicSource& source);

}  // namespace tcpx::doctor
