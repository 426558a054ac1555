// What a plugin logs goes to our log.
#pragma once

#include "net/abi/nccl_net_common.h"

namespace tcpx {

/// The callback to hand to a plugin's `init`: plugins call it unchecked, variadic, from any of their threads, for as long as the
/// process lives (31). Warnings stay warnings, an abort is an error, the version line is info, the rest debug. Text beyond 1023
/// bytes is cut. Warnings that are repeated are counted and told once a second (net/repeated_lines.h).
abi::NcclLogger plugin_logger();

}  // namespace tcpx
