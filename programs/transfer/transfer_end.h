// One end of test_tcpx_transfer: a server that receives into memory of its own and checks every byte, or a client that sends.
//
// Both walk the same steps as an application would: exchange the handle over the bootstrap channel, connect and accept, register,
// transfer, verify, tell each other how it went, close.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "device/unpacker_factory.h"
#include "measure/test_memory.h"
#include "programs/program.h"
#include "programs/roles.h"
#include "transfer/local_machine.h"
#include "transfer/pipeline_setup.h"

namespace tcpx::programs {

struct TransferOptions {
  std::optional<uint64_t> bytes;  ///< of the pattern; nullopt: the text payload
  std::optional<int> gpu;         ///< nullopt: 0, and a machine without a GPU is fine
  MemoryType memory = MemoryType::kCuda;
  UnpackKind unpack{};
  uint32_t iterations = 1;
  std::optional<int> dev = {};  ///< network device; none: the one nearest to the GPU
  PipelineSettings pipeline;    ///< chunk and windows; there is one channel
  uint16_t port = 0;            ///< of the bootstrap
  Duration timeout{};           ///< of each step
  bool debug = false;           ///< shows the plugin's data about each message, and its bytes as they lie in the bounce pool
};

/// Largest TransferOptions::bytes: one registration of plugin version 7, whose sizes are ints, in whole pages.
inline constexpr uint64_t kMaxTransferBytes = 0x7ffff000;

/// Shares `machine` and `options`, which must outlive it, with the other end in a loopback run.
class TransferEnd final : public ProgramEnd, private ReceiveTap {
 public:
  TransferEnd(bool is_server, LocalMachine& machine, const TransferOptions& options, int gpu, const std::atomic<bool>& stop)
      : is_server_(is_server), machine_(machine), options_(options), gpu_(gpu), stop_(stop) {}

  /// Says what is used, makes the GPU current for this thread, allocates the region to register and, to receive, an unpacker.
  Status prepare() override;
  void say(const std::string& text) override { step(text); }
  /// Transfers as often as the options say; the server verifies each.
  Status run(BootstrapChannel& channel) override;

 private:
  /// A line below a step.
  template <class... Parts>
  void tell(const Parts&... parts) const {
    programs::say(name(), concat(parts...));
  }
  template <class... Parts>
  void step(const Parts&... parts) {
    tell(++step_, ". ", parts...);
  }

  const char* name() const { return is_server_ ? "server" : "client"; }
  NetPlugin& plugin() const { return *machine_.plugin; }
  Direction direction() const { return is_server_ ? Direction::kRecv : Direction::kSend; }
  Deadline deadline() const { return Deadline::after(options_.timeout); }
  /// The deadline of a step that handles the data of one transfer: moving and verifying go at 50 MB/s at least.
  Deadline data_deadline() const;
  size_t transfer_bytes() const;
  PipelineOptions pipeline_options() const;

  Status exchange_parameters(BootstrapChannel& channel);
  Result<Comm> connect(BootstrapChannel& channel);
  Result<Comm> accept(BootstrapChannel& channel);
  /// Made by the server; a client needs none.
  Result<ReceiveParts> receive_parts();
  Result<RegisteredMemory> register_memory();
  Status send(BootstrapChannel& channel, const RegisteredMemory& memory, uint32_t iteration);
  Status receive(BootstrapChannel& channel, const RegisteredMemory& memory, uint32_t iteration);
  Status verify(uint32_t iteration);
  /// Bytes of the memory, as many as are shown.
  Result<std::vector<std::byte>> first_bytes();
  /// Drives a transfer to its end; shows progress on a terminal and watches the peer, whose own words, if it left any, are the
  /// error.
  Status drive(BootstrapChannel& channel, const RegisteredMemory& memory, uint32_t iteration);
  void arrived(const ChunkWork& work, const ReceivedMessage& message, const DescriptorBlock& block) override;

  const bool is_server_;
  LocalMachine& machine_;
  const TransferOptions& options_;
  const int gpu_;
  int dev_ = 0;
  const std::atomic<bool>& stop_;
  int step_ = 0;
  std::unique_ptr<CopyLane> lane_;
  TestMemory memory_;
  std::unique_ptr<Unpacker> unpacker_;
  DeviceHandleStorage device_handle_;   // the comm's as long as it lives
  std::unique_ptr<Pipeline> pipeline_;  // last: it goes first
};

}  // namespace tcpx::programs
