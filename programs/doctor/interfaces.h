// What files tell of network interfaces, for more than one group.
#pragma once

#include <string>
#include <vector>

#include "programs/doctor/machine.h"

namespace tcpx::doctor {

/// The interface of the default route; "" where there is none.
std::string default_interface(const Machine& machine);

/// Interfaces of Google's virtual NIC but `control`: those that carry data on an A3 machine.
std::vector<std::string> data_interfaces(const Machine& machine, const std::string& control);

}  // namespace tcpx::doctor
