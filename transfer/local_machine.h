// LocalMachine: wires the real parts, and is the only place that does: the machine's memory, the plugin that the loader finds, an
// unpacker for a device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "net/net_plugin.h"
#include "rx/unpacker.h"

namespace tcpx {

enum class UnpackKind;  // device/unpacker_factory.h

/// Parts that all ends of this process share. Made once; any thread may use it as far as its parts allow.
struct LocalMachine {
  std::unique_ptr<MemoryOps> memory;
  std::shared_ptr<NetPlugin> plugin;  ///< shared with the loader's registry, which keeps plugins until the process ends
  std::string plugin_path;            ///< library path, or kEmbedded

  bool is_plugin_embedded() const;

  /// @param plugin_path library to load; empty: environment, installed places, embedded plugin (net/plugin_loader.h)
  static Result<LocalMachine> create(const std::string& plugin_path = {});

  /// Makes an unpacker for `device`. @param kind one of the kinds of UCCL_TCPX_UNPACK_IMPL
  /// @return kUnsupported saying what this machine lacks
  Result<std::unique_ptr<Unpacker>> make_unpacker(UnpackKind kind, int device);

  /// Chooses the plugin's device for each channel that serves GPU `gpu` (or the host memory that stands in for it), nearest first
  /// (device_placement.h). With a plugin that steers flows to the GPU, only the nearest devices are used, and a notice in the log
  /// names them, unless UCCL_TCPX_FAR_NICS says otherwise.
  /// @param channels 1 ... kMaxChannels; 0: one for each device, at most kMaxChannels, or kSteeredChannels when only the nearest
  /// devices are used
  /// @return kInvalidArgument: no such GPU, or too many channels; kNotFound: the plugin has no device; kUnsupported: several
  /// devices are nearest, and none of them is below the GPU's switches; kBadConfig; the plugin's error
  Result<std::vector<int>> channel_devices(int gpu, uint32_t channels);

  /// Lists the names of these devices, each once, for people. When only the nearest are used, each name has its distance to the
  /// GPU.
  Result<std::string> describe_devices(int gpu, const std::vector<int>& devices);

 private:
  bool keeps_to_nearest() const { return plugin->steers_flows() && memory->has_gpu(); }
};

/// Default number of channels of a connection over GPUDirect-TCPX, all on the NIC of their GPU. Both ends must have the same
/// number, so it does not depend on the host. With the settings for A3, a thread of the plugin drives each channel, and each has
/// four sockets; RxDM has four receive queues for a GPU. NCCL puts two such channels on each NIC, which two GPUs share.
inline constexpr uint32_t kSteeredChannels = 4;

}  // namespace tcpx
