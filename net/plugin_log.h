// Redirects a plugin's log lines to our log.
#pragma once

#include <string>

#include "net/abi/nccl_net_common.h"

namespace tcpx {

/// The callback to hand to a plugin's `init`: plugins call it unchecked, variadic, from any of their threads, until the process
/// ends (31). Warnings stay warnings, an abort is an error, the version line is info, the rest debug. Text beyond 1023 bytes is
/// cut. Repeated warnings are counted and reported once a second (net/repeated_lines.h).
abi::NcclLogger plugin_logger();

/// The last two warnings that plugins gave from threads of their own, outside of any call of ours: why what they do there has
/// failed, unless another failed at the same time. Each is told once.
std::string take_words_of_own_threads();

}  // namespace tcpx
