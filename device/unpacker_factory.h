// Choice of the unpacker: the one place that knows all kinds.
#pragma once

#include <memory>

#include "base/memory_ops.h"
#include "rx/unpacker.h"

namespace tcpx {

/// In the order of the choices of UCCL_TCPX_UNPACK_IMPL (base/environment.h), so that
/// `static_cast<UnpackKind>(environment_choice(Variable::kUnpackImpl))` works.
enum class UnpackKind {
  kAuto,    ///< kKernel where `memory` is that of a GPU, else kHost
  kKernel,  ///< kernel_unpacker.h
  kD2d,     ///< d2d_unpacker.h
  kHost,    ///< host_unpacker.h
  kNone,    ///< no_unpacker.h, which moves nothing: refused here, created by the one tool that measures without the unpack
};

/// @param memory the memory of pools and destinations; must outlive the unpacker.
/// @return kBadConfig for kNone; kUnsupported naming what is missing (CUDA in this build, a GPU, device memory) and what to use
/// instead;
///         kInvalidArgument for no such device; kCuda.
Result<std::unique_ptr<Unpacker>> make_unpacker(UnpackKind kind, int device, MemoryOps& memory);

}  // namespace tcpx
