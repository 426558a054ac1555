// Result files: whole or not there. A path that leads to something other than a file is written to and stays what it is.
#pragma once

#include <string>
#include <string_view>

#include "tcpx/status.h"

namespace tcpx {

/// Makes `path` a file that holds `bytes`. They go to a temporary file in the same folder, which then takes the name `path`:
/// a reader of `path`, even after a crash, finds the old file or the new one, never a part. A process killed in between leaves
/// `path`.<pid>.tmp behind. Not for two threads and one path at the same time.
///
/// Symbolic links stay: their target is made or replaced. A device, a pipe, or a descriptor of this process (/dev/stdout)
/// gets the bytes and is not replaced; a pipe needs a reader, who may pause for 10 s.
/// @return kNotFound when the folder does not exist, kTimeout when nobody takes them from a pipe, else kSystem with errno, which
/// is ENXIO for a pipe without a reader.
Status write_file(const std::string& path, std::string_view bytes);

/// The bytes of the file `path`. @return kNotFound when it does not exist, kInvalidArgument when it holds more than `max_bytes`,
/// else kSystem with errno.
Result<std::string> read_file(const std::string& path, size_t max_bytes);

}  // namespace tcpx
