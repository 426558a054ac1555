// Group "selftest": bytes really move, arrive whole, and about as fast as this machine's TCP.
#pragma once

#include <cstdint>

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"
#include "programs/doctor/selftest_source.h"

namespace tcpx::doctor {

inline constexpr uint64_t kSelftestBytes = uint64_t{64} << 20;

/// Takes 15 s at most.
Findings check_selftest(const Machine& machine, SelftestSource& source, uint64_t bytes);

}  // namespace tcpx::doctor
