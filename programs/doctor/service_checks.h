// Group "services": the receive datapath manager of GPUDirect-TCPX, RxDM, as a client of its sockets sees it.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"
#include "programs/doctor/service_source.h"

namespace tcpx::doctor {

Findings check_services(const Machine& machine, ServiceSource& source);

}  // namespace tcpx::doctor
