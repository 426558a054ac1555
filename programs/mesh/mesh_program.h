// Steps of p2p_fullmesh: a rank joins the mesh and serves its rounds; rank 0 also leads and reports.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "programs/mesh/mesh_schedule.h"
#include "programs/mesh/pair_meter.h"

namespace tcpx::programs {

struct MeshProgramOptions {
  mesh::MeterOptions meter = {.transfer_bytes = 16u << 20,
                              .transfers = 8};  ///< the others but `unpack` and `memory` are filled in
  mesh::MeshMode mode = mesh::MeshMode::kPairs;
  int shift = 1;
  bool together = false;
  std::optional<int> dev;  ///< of every channel; nullopt: all devices, the nearest to the GPU first
  std::string host;        ///< of rank 0; empty: all ranks are on this host
  uint16_t port = 0;       ///< 0: any free one, which rank 0 prints
  std::string json;        ///< file; empty: none
  Duration timeout{};      ///< of each step
};

/// Plays the part of the rank that the launcher gave this process. `stop` becoming true ends the mesh early.
/// @return exit code of program.h
int run_mesh_program(const MeshProgramOptions& options, const std::atomic<bool>& stop);

}  // namespace tcpx::programs
