// The one place that wires the real parts: the machine's memory, the plugin the loader finds, an unpacker for a device.
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

/// Parts that all ends of this process share. Made once, used from any thread as its parts allow.
struct LocalMachine {
  std::unique_ptr<MemoryOps> memory;
  std::shared_ptr<NetPlugin> plugin;  // shared with the loader's registry, which keeps plugins for ever
  std::string plugin_path;            ///< library path, or "embedded"

  /// @param plugin_path library to load; empty: environment, installed places, embedded plugin (net/plugin_loader.h)
  static Result<LocalMachine> create(const std::string& plugin_path = {});

  /// @param kind as UCCL_TCPX_UNPACK_IMPL names them
  /// @return kUnsupported saying what this machine lacks
  Result<std::unique_ptr<Unpacker>> make_unpacker(UnpackKind kind, int device);

  /// The plugin's device of each channel that serves GPU `gpu` (or host memory standing in), nearest first (device_placement.h).
  /// With a plugin that has its flows steered to the GPU they are the nearest ones alone, which a notice names, unless
  /// UCCL_TCPX_FAR_NICS says otherwise.
  /// @param channels 1 ... kMaxChannels, or 0: one for each device, at most kMaxChannels; kSteeredChannels in that other case
  /// @return kInvalidArgument: no such GPU, or too many channels; kNotFound: the plugin has no device; kUnsupported: several are
  /// nearest, and none of them is below the GPU's switches; kBadConfig; the plugin's error
  Result<std::vector<int>> channel_devices(int gpu, uint32_t channels);

  /// The names of these devices, each once, for people. Where nearness decides, each with its distance to the GPU.
  Result<std::string> describe_devices(int gpu, const std::vector<int>& devices);

 private:
  bool keeps_to_nearest() const { return plugin->steers_flows() && memory->has_gpu(); }
};

/// Channels of a connection over GPUDirect-TCPX, all on the NIC of their GPU, when nobody says how many. Both ends must have the
/// same number, so it depends on nothing that a host has. Each is driven by a thread of the plugin and has four sockets in the
/// settings for A3; RxDM has four receive queues for a GPU, and NCCL puts two such channels on each NIC, which two GPUs share.
inline constexpr uint32_t kSteeredChannels = 4;

}  // namespace tcpx
