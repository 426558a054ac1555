// One end of a measured connection: the interface of benchmarks, test_tcpx_perf and p2p_fullmesh to plugin, pipeline, endpoints
// and raw TCP alike.
//
// Two ends are connected twice, once each way, so that both can send. They are asked in step: each call below is made at both
// before the next one. One of them leads: in a one-way round it sends and the other receives, in a ping-pong it begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "base/socket_address.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx {

/// The address that ends of one machine meet at.
inline constexpr char kLoopback[] = "127.0.0.1";

/// Tag of the first chunk of a pipeline end, that of UCCL's test_tcpx_perf: whoever knows it looks for tag=99, 100, ...
inline constexpr int kMeasuredTag = 99;

enum class Pattern : uint32_t {
  kOneWay,
  kPingPong,
  kBothWays,  ///< pipeline only: both send at once
  kIdle,      ///< endpoint only: nothing moves, for as many milliseconds as the round counts
};
/// Endpoint only: the operation and its starter. kRead: the follower, so that bytes go from the leader to the follower as always.
enum class Verb : uint32_t { kSend, kWrite, kRead };

struct EndSetup {
  enum class Kind : uint32_t {
    kPlugin,    ///< drives the plugin's table by itself
    kPipeline,  ///< leaves that to the library's pipelines (transfer/pipeline.h)
    kRawTcp,
    kEndpoint,  ///< leaves everything to Endpoints (tcpx/endpoint.h), whose settings are those of the environment
  };
  Kind kind = Kind::kPlugin;
  bool leads = false;
  MemoryType memory = MemoryType::kHost;            ///< raw TCP: host only
  int gpu = 0;                                      ///< made current where there is one
  int peer_gpu = 0;                                 ///< endpoint only: that of the other end
  SocketAddress peer = SocketAddress::loopback(0);  ///< raw TCP, endpoint: where the other end is; its port does not count
  uint32_t streams = 1;                             ///< raw TCP only: a plugin takes its number of sockets from the environment
  uint32_t channels = 1;                            ///< pipeline only: comms of a connection, over the plugin's devices in turn
  uint32_t peers = 1;                  ///< endpoint only: the follower is so many of them, the leader one that knows all
  int32_t inline_bytes = -1;           ///< endpoint only: longest inline message; -1: as the environment says
  bool same_host = true;               ///< endpoint only: EndpointConfig::same_host
  uint64_t request_bytes = 0;          ///< most bytes of one request, of one chunk, of one write
  uint64_t longest_request_bytes = 0;  ///< chunks of long transfers, as PipelineOptions::longest_chunk_bytes
  char plugin[4096] = "";              ///< library with a version 7 table; "": the software plugin that is linked in
};

/// True when both ends are on this machine: then no other host may connect.
bool on_this_machine(const SocketAddress& peer);

/// Messages of one size that are to come.
struct RowSetup {
  Pattern pattern = Pattern::kOneWay;
  uint64_t message_bytes = 0;
  uint64_t seed = 0;   ///< of their bytes
  uint64_t slots = 0;  ///< received messages that lie apart, at least; raw TCP: always one
  /// Pipeline only. Above zero: message i of a round is sent from a place of its own, too, and lies at both ends at i times as
  /// many bytes; it has a content of its own in each round, all of which `slots` messages have room for. 0: 17 contents overlap.
  uint64_t stride = 0;
  // Endpoint only:
  Verb verb = Verb::kSend;
  uint64_t range_bytes = 0;  ///< a message is a vector of ranges of so many bytes, in no order, at both ends; 0: one range
  uint64_t outstanding = 0;  ///< messages under way at once, over all peers; 0: as many as the pipeline would have
};

/// Waiting of an end for its round.
struct RoundWait {
  Deadline deadline;
  // Pipeline only:
  const std::atomic<bool>* stop = nullptr;
  /// Called about ten times a second with the messages done; must not block. An error ends the round with it. An end that has one
  /// gives way to the rest of the machine as an application would (transfer/backoff.h); without one it polls.
  std::function<Status(uint64_t done)> on_tick = {};
  /// Added to, also when the round fails: the time of each message, from the completion before it, or the begin of the round, to
  /// its own; of receives where this end receives, else of sends; those seen to complete at once share the time. Ping-pong: half
  /// of the round trip at the end that leads, nothing at the other. May be null.
  std::vector<uint64_t>* samples_ns = nullptr;
};

/// Bytes that went through one network interface.
using NicBytes = std::map<std::string, uint64_t>;

/// Memory of the process in core, and of the GPU that nobody uses (0 without one).
struct Footprint {
  uint64_t resident_bytes = 0, free_gpu_bytes = 0;
};

/// Values at one end. Times are those of the steady clock, which all processes of a machine share; both are 0 when the other end
/// did everything.
struct Timing {
  int64_t begin_ns = 0;    ///< before its first post
  int64_t end_ns = 0;      ///< everything it sends is sent, everything it receives is where it belongs
  double cpu_seconds = 0;  ///< user and system time of all its threads in between
  uint64_t resident_begin_bytes = 0, resident_end_bytes = 0;  ///< memory of the process in core at those times
  /// Endpoint only: without and with connections, and before and after the first receives of the round were posted.
  Footprint alone, connected, unposted, posted;
  uint64_t sockets = 0;  ///< endpoint only: TCP sockets that have received a hundredth of a message or more
};

/// Outcome of comparing received bytes with what they must be.
struct ComparedBytes {
  uint64_t wrong_bytes = 0;
  Status first;  ///< kMismatch naming the first message with wrong bytes; ok when there is none
};

/// One thread at a time. After an error only destruction.
class BenchEnd {
 public:
  virtual ~BenchEnd() = default;

  /// The handle that the other end connects to.
  virtual Result<Handle> listen() = 0;
  /// Connects to the other end, which accepts meanwhile.
  virtual Status connect(const Handle& other, Deadline deadline) = 0;
  virtual Status accept(Deadline deadline) = 0;
  /// Memory for the messages of `row`, in place of that of the row before.
  virtual Status allocate(const RowSetup& row) = 0;
  /// Overwrites what was received and posts the first receives of the next `count` messages, which are a round.
  virtual Status prepare(uint64_t count) = 0;
  /// Moves those messages.
  /// @return kTimeout at the deadline, kCancelled when stopped; an error of the connection or of `wait.on_tick`
  virtual Result<Timing> run(const RoundWait& wait) = 0;
  Result<Timing> run(Deadline deadline) { return run(RoundWait{.deadline = deadline}); }
  /// Compares the last messages received with a copy made here, byte by byte.
  virtual Result<ComparedBytes> compare() = 0;
  virtual Status close() = 0;
  /// Bytes of both directions so far, where the end counts them by interface.
  virtual NicBytes nic_bytes() const { return {}; }
  /// Endpoint only: the route of the bytes, as the library tells it (ConnectionStats::path).
  virtual std::string path() const { return ""; }

  /// `compare` as a Status. @return also kMismatch
  Status verify();
};

Result<std::unique_ptr<BenchEnd>> make_plugin_end(const EndSetup& setup);
Result<std::unique_ptr<BenchEnd>> make_pipeline_end(const EndSetup& setup);
Result<std::unique_ptr<BenchEnd>> make_raw_tcp_end(const EndSetup& setup);
Result<std::unique_ptr<BenchEnd>> make_endpoint_end(const EndSetup& setup);
/// The kind that `setup` names.
Result<std::unique_ptr<BenchEnd>> make_bench_end(const EndSetup& setup);

/// Started by its construction: the time, how much of the processors this process has used so far, and the memory it uses now.
class Stopwatch {
 public:
  Stopwatch();
  Timing stop() const;

 private:
  Timing begin_;
};

/// Gives the core to others now and then while nothing advances, because there may be fewer cores than threads that poll, and
/// looks at the deadline. While much is under way and cores are few it sleeps instead (transfer/backoff.h says why).
class Patience {
 public:
  /// @param bytes_under_way in flight at a time
  Patience(std::string what, Deadline deadline, uint64_t bytes_under_way = 0);
  /// After each turn of a polling loop. @return kTimeout past the deadline.
  Status after_turn(bool advanced);

 private:
  static constexpr uint32_t kTurnsAtOnce = 256;
  static constexpr uint64_t kMuch = 4 << 20;  // some sleeps long on any machine of few cores
  const std::string what_;
  const Deadline deadline_;
  const bool sleeps_;
  uint32_t idle_turns_ = 0;
};

}  // namespace tcpx
