// Group "nics": the network interfaces that carry data.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"
#include "programs/doctor/nic_source.h"

namespace tcpx::doctor {

/// A check of one interface is named by it: "mtu[eth1]". Interfaces that carry no data get one line together.
Findings check_nics(const Machine& machine, const NicSource& source);

}  // namespace tcpx::doctor
