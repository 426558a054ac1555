// The steps of test_tcpx_transfer that both ends take, and how they are told.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "measure/test_memory.h"
#include "programs/program.h"
#include "programs/transfer/transfer_program.h"
#include "wire/bootstrap_channel.h"
#include "transfer/handshake.h"
#include "transfer/local_machine.h"
#include "transfer/pipeline_setup.h"
#include "transfer/run.h"

namespace tcpx::programs {

inline constexpr std::string_view kTextPayload = "Hello from TCPX client!";
inline constexpr int kTransferTag = 42;

/// One end of the run, with what it shares with the other in a loopback run. Used by one thread.
class TransferEnd {
 public:
  /// @param name "server" or "client": the tag in front of each line
  TransferEnd(std::string name, LocalMachine& endpoint, const TransferProgramOptions& options, int gpu,
              const std::atomic<bool>& stop);

  const TransferProgramOptions& options() const { return options_; }
  LocalMachine& endpoint() const { return endpoint_; }
  NetPlugin& plugin() const { return *endpoint_.plugin; }
  int gpu() const { return gpu_; }

  template <class... Parts>
  void say(const Parts&... parts) const {
    programs::say(name_, concat(parts...));
  }
  template <class... Parts>
  void step(const Parts&... parts) {
    say(++step_, ". ", parts...);
  }

  Deadline deadline() const { return Deadline::after(options_.timeout); }
  /// Of a step that handles the data of one transfer. Longer for more of it: moving and verifying go at 50 MB/s at least.
  Deadline data_deadline() const;

  size_t transfer_bytes() const { return options_.bytes ? static_cast<size_t>(*options_.bytes) : kTextPayload.size(); }
  std::vector<std::byte> expected(uint32_t iteration) const;

  /// Says what is used, makes the GPU current for this thread, allocates the region to register and, to receive, an unpacker.
  Status prepare(bool receives);
  /// The network device: the one that was asked for, else the GPU's.
  int dev() const { return dev_; }
  Unpacker& unpacker() const { return *unpacker_; }
  CopyLane& lane() const { return *lane_; }
  Result<RegisteredMemory> register_buffer(Pipeline& connection);
  Status fill(std::span<const std::byte> bytes);
  /// Overwrites the buffer, so that data of an earlier iteration cannot pass for that of this one.
  Status blank() { return memory_.blank(0, memory_.size()); }
  Status read_back(std::span<std::byte> bytes);

  HandshakeWait handshake_wait(BootstrapChannel& channel) const { return {deadline(), &channel, &stop_}; }
  Status exchange_parameters(BootstrapChannel& channel, Direction direction);
  PipelineOptions pipeline_options(Direction direction) const;
  /// Drives the transfer to its end; shows progress on a terminal and watches the peer, whose own words, if it left any, are the
  /// error.
  Status drive(Pipeline& connection, TransferId id, uint32_t iteration, BootstrapChannel& channel);

 private:
  std::string name_;
  LocalMachine& endpoint_;
  const TransferProgramOptions& options_;
  int gpu_;
  int dev_ = 0;
  const std::atomic<bool>& stop_;
  int step_ = 0;
  std::unique_ptr<CopyLane> lane_;
  TestMemory memory_;
  std::unique_ptr<Unpacker> unpacker_;
};

/// Both after `prepare`. The server receives `options.iterations` transfers and verifies each.
Status run_server(TransferEnd& end, BootstrapChannel& channel);
Status run_client(TransferEnd& end, BootstrapChannel& channel);

}  // namespace tcpx::programs
