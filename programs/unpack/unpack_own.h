// Our own ways to gather, as methods of bench_unpack.
#pragma once

#include <memory>

#include "device/unpack_launcher.h"
#include "programs/unpack/unpack_method.h"
#include "rx/unpacker.h"

namespace tcpx::bench {

/// The unpack kernel as UnpackLauncher launches it, with the list in mapped pinned memory. The launcher must be a profiling one:
/// its own events stand right around the kernel, behind the host's work on the list, which bench_unpack measures apart.
std::unique_ptr<UnpackMethod> make_kernel_method(std::string name, std::unique_ptr<UnpackLauncher> launcher);

/// Any Unpacker, by the host's clock from the first submit to the last ticket done.
std::unique_ptr<UnpackMethod> make_unpacker_method(std::string name, std::unique_ptr<Unpacker> unpacker);

}  // namespace tcpx::bench
