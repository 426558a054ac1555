// How much memory a measurement may take.
#pragma once

#include <cstdint>
#include <string_view>

#include "tcpx/status.h"

namespace tcpx::bench {

/// Bytes that new programs can have without swapping, as the kernel estimates it. @return kSystem; kProtocol when it says
/// nothing.
Result<uint64_t> available_memory();
/// The same out of the text of /proc/meminfo.
Result<uint64_t> available_memory_in(std::string_view meminfo);

}  // namespace tcpx::bench
