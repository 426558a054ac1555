// The part of group "nics" that asks whether an interface can put packets into GPU memory.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/nic_facts.h"
#include "programs/doctor/nic_source.h"

namespace tcpx::doctor {

/// For an interface that is meant to carry data of GPUDirect-TCPX.
Findings check_nic_devmem(const Nic& nic, const NicAnswers& answers);

}  // namespace tcpx::doctor
