// A plugin's file before it is opened. The dynamic linker maps it and believes its headers: in a file that was cut off (a full disk, a
// copy that was interrupted) it touches pages behind the end, and SIGBUS ends the process without a word.
#pragma once

#include <string>

#include "tcpx/status.h"

namespace tcpx {

/// @return kUnsupported: an ELF file that lacks some of what its headers speak of. Ok also for what cannot be read or is no ELF file of
/// this machine's kind, and for a bare name, which the dynamic linker looks for: it says itself what is wrong with those.
Status check_plugin_file(const std::string& path);

}  // namespace tcpx
