// Program test_tcpx_transfer: a server that receives into memory of its own and checks every byte, a client that sends.
//
// Both ends walk the same steps as an application would: load the plugin, exchange the handle over the bootstrap channel, connect
// and accept, register, transfer, verify, tell each other how it went, close.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "tcpx/types.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {

enum class UnpackKind;  // device/unpacker_factory.h

namespace programs {

enum class TransferRole { kServer, kClient, kLoopback };

struct TransferProgramOptions {
  TransferRole role = TransferRole::kLoopback;
  std::string host;               ///< client: name or address of the server
  std::optional<uint64_t> bytes;  ///< of the pattern; nullopt: the text payload
  std::optional<int> gpu;         ///< nullopt: 0, and a machine without a GPU is fine
  MemoryType memory = MemoryType::kCuda;
  UnpackKind unpack{};
  uint32_t iterations = 1;
  uint16_t port = 0;            ///< of the bootstrap; 0: any free one (server, loopback)
  std::optional<int> dev = {};  ///< network device; none: the one nearest to the GPU
  PipelineSettings pipeline;    ///< chunk and windows; there is one channel
  Duration timeout{};           ///< of each step
  bool debug = false;
};

/// Largest --bytes: one registration of plugin version 7, whose sizes are ints, in whole pages.
inline constexpr uint64_t kMaxProgramBytes = 0x7ffff000;

/// Loads the plugin and runs one end or both, printing the steps on stdout. `stop` becoming true ends the run early.
/// @return exit code of program.h, never that of usage; skipped for a GPU that this machine does not have
int run_transfer_program(const TransferProgramOptions& options, const std::atomic<bool>& stop);

}  // namespace programs
}  // namespace tcpx
