// Group "network": ports, addresses, packet filters, and the way to another host.
#pragma once

#include <string>

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"
#include "programs/doctor/network_source.h"

namespace tcpx::doctor {

/// @param peer IPv4 address of another host, which is then tried; "" for none
Findings check_network(const Machine& machine, NetworkSource& source, const std::string& peer);

}  // namespace tcpx::doctor
