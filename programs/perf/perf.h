// Options of test_tcpx_perf, and its run.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/unpacker_factory.h"
#include "measure/end.h"
#include "measure/message_plan.h"
#include "transfer/pipeline_setup.h"

namespace tcpx::perf {

enum class PerfRole { kServer, kClient, kLoopback };

/// Layer that moves the transfers.
using Layer = EndSetup::Kind;
/// "tcp", "plugin", "pipeline", "endpoint"
const char* name_of(Layer layer);

/// "One way", "Both ways", "Half a round trip": also the titles of their tables.
const char* title_of(Pattern mode);

/// Most that a measurement may be asked for.
inline constexpr uint32_t kMostTransfers = 1000000, kMostFactor = 1u << 20;
inline constexpr double kMostSeconds = 86400;

/// Hidden option by which the server process of a loopback run learns its descriptor.
inline constexpr char kLoopbackOption[] = "--loopback-descriptor";

/// What both ends do alike: a client asks its server for it (perf_request.h).
struct Measurement {
  Layer layer = Layer::kPipeline;
  Pattern mode = Pattern::kOneWay;
  SizeSweep sizes;
  uint32_t iterations = 20;  ///< timed transfers of each size
  uint32_t warm_up = 5;      ///< transfers before them
  Duration duration{};       ///< above zero: each size is measured this long instead
  PipelineSettings pipeline;
  MemoryType memory = MemoryType::kCuda;
  bool same_host = true;  ///< layer endpoint: EndpointConfig::same_host
};

struct PerfOptions : Measurement {
  PerfRole role = PerfRole::kLoopback;
  std::string host;        ///< client: name or address of the server
  uint16_t port = 0;       ///< of the bootstrap; server: 0 for any free one
  std::optional<int> gpu;  ///< nullopt: 0, and a machine without a GPU is fine
  UnpackKind unpack = UnpackKind::kAuto;
  Duration timeout{};                ///< of each step
  std::string csv, json;             ///< files to write; "" for none
  std::vector<std::string> compare;  ///< reports to compare with

  std::set<std::string> given;             ///< long names of options, as the command line has them
  std::vector<std::string> arguments;      ///< of this process, for the server process of a loopback run
  std::optional<int> loopback_descriptor;  ///< set: this is that server process, which prints nothing
};

/// Runs one end, or both, prints the table on stdout and the last line of the program. A server does what its client asks for
/// (perf_request.h). `stop` becoming true ends the run early, with what there is. @return the exit code
int run_perf(const PerfOptions& options, const std::atomic<bool>& stop);

}  // namespace tcpx::perf
