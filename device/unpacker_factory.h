// All kinds of unpackers, and the choice among them. No CUDA in this header.
#pragma once

#include <memory>

#include "base/memory_ops.h"
#include "rx/unpacker.h"

namespace tcpx {

/// In the order of the choices of UCCL_TCPX_UNPACK_IMPL (base/environment.h), so that
/// `static_cast<UnpackKind>(environment_choice(Variable::kUnpackImpl))` works.
enum class UnpackKind {
  kAuto,    ///< kKernel where `memory` is that of a GPU, else kHost
  kKernel,  ///< make_kernel_unpacker
  kD2d,     ///< make_d2d_unpacker
  kHost,    ///< make_host_unpacker
  kNone,    ///< make_no_unpacker: refused by make_unpacker, created by the one tool that measures without the unpack
};

/// @param memory the memory of pools and destinations; must outlive the unpacker.
/// @return kBadConfig for kNone; kUnsupported naming what is missing (CUDA in this build, a GPU, device memory) and what to use
/// instead;
///         kInvalidArgument for no such device; kCuda.
Result<std::unique_ptr<Unpacker>> make_unpacker(UnpackKind kind, int device, MemoryOps& memory);

/// Unpacks with one kernel launch per batch, whatever the number, length and alignment of its fragments: an UnpackLauncher on its
/// own stream. Pool and destination must be addressable by kernels on `device`: its own memory, or mapped host memory. Blocks of
/// one batch whose pools have different bases take a launch each.
/// @param memory gives the memory that the kernel reads scatter lists from; must outlive the unpacker.
/// @return kUnsupported when there is no usable GPU or this build has no code for it, kInvalidArgument for no such device,
///         kBadConfig for UCCL_TCPX_UNPACK_BLOCKS and UCCL_TCPX_LAUNCH_DEBUG, kCuda.
Result<std::unique_ptr<Unpacker>> make_kernel_unpacker(int device, MemoryOps& memory);

/// Unpacks with device copies: one asynchronous copy per stretch of neighbouring fragments, all copies of a submit started
/// together (copy_batch.h). Needs no kernel, and no multiprocessor; its cost is that of starting a copy, per stretch. Pool and
/// destination may be any memory that the device can address.
/// @return kUnsupported when there is no usable GPU, kInvalidArgument for no such device, kCuda.
Result<std::unique_ptr<Unpacker>> make_d2d_unpacker(int device);

/// Unpacks on the host, whatever the memory: through MemoryOps only, so it works for a pool that the host cannot read and for
/// destinations on a GPU, and it is the only unpacker on a machine without one. Memory that the host cannot access is staged
/// through 1 MiB of pinned memory per direction, and fragments close to each other in the pool are fetched by one copy. submit
/// copies everything before it returns, so a ticket is done at once and kExhausted never happens.
/// @param memory must outlive the unpacker.
/// @return kInvalidArgument for no such device, or the error of `memory`.
Result<std::unique_ptr<Unpacker>> make_host_unpacker(int device, MemoryOps& memory);

/// Leaves every byte in the bounce pool, to measure a receive without the unpack. Tickets are done at once; kExhausted never
/// happens.
std::unique_ptr<Unpacker> make_no_unpacker();

}  // namespace tcpx
