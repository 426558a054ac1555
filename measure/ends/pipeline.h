// An end that leaves the plugin to the library: messages are transfers, and a Pipeline each way cuts, posts, unpacks and gives
// back.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "measure/end.h"
#include "measure/message_memory.h"
#include "measure/round.h"
#include "transfer/bootstrap.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {

/// The ends meet over a bootstrap channel of loopback, or over one that the caller has; then an end may be connected one way only.
class PipelineEnd final : public BenchEnd {
 public:
  struct Parts {
    std::shared_ptr<NetPlugin> plugin;  ///< shared with the loader's registry
    ChannelDevices devices;
    PipelineSettings settings;
    std::unique_ptr<Unpacker> unpacker;  ///< null when only host memory is received
  };
  /// Makes the GPU of `setup` current, whose `channels` and `plugin` do not count.
  static Result<std::unique_ptr<PipelineEnd>> create(const EndSetup& setup, Parts parts);
  PipelineEnd(const EndSetup& setup, Parts parts, MessageMemory memory)
      : setup_(setup), memory_(std::move(memory)), parts_(std::move(parts)) {}

  /// From now on `connect` and `accept` use `channel`, which must outlive the connection and may not be moved meanwhile.
  void meet_over(BootstrapChannel& channel) { channel_ = &channel; }
  /// "" when received messages go through none.
  std::string unpacker_name() const { return parts_.unpacker && memory_.on_gpu() ? parts_.unpacker->name() : ""; }

  Result<Handle> listen() override;
  Status connect(const Handle& other, Deadline deadline) override;
  Status accept(Deadline deadline) override;
  /// Also before the end is connected.
  Status allocate(const RowSetup& row) override;
  Status prepare(uint64_t count) override;
  Result<Timing> run(const RoundWait& wait) override;
  Result<ComparedBytes> compare() override { return memory_.compare(); }
  Status close() override;
  NicBytes nic_bytes() const override;

 private:
  /// A direction: the parts that move messages one way.
  struct Way {
    std::unique_ptr<Pipeline> pipeline;
    RegisteredMemory memory;
    TransferSeries series;
  };

  /// Makes the channel its own.
  Status meet(Result<BootstrapChannel> met);
  Status open(bool sends, Deadline deadline);
  /// Registers `memory` in place of the memory before.
  static Status use(const TestMemory& memory, MemoryType type, Way& way);

  const EndSetup setup_;
  MessageMemory memory_;
  const Parts parts_;  // the unpacker may know the memory
  std::unique_ptr<BootstrapServer> server_;
  std::optional<BootstrapChannel> own_;
  BootstrapChannel* channel_ = nullptr;  // its own, or the caller's
  Way send_, receive_;                   // destroyed first: a connection touches all of the above
};

}  // namespace tcpx
