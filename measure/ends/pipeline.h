// An end that leaves the plugin to the library: messages are transfers, and a Pipeline each way cuts, posts, unpacks and gives
// back.
#pragma once

#include <memory>
#include <string>

#include "measure/end.h"
#include "measure/message_memory.h"
#include "measure/round.h"
#include "transfer/bootstrap.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {

/// The ends meet over bootstrap channels of loopback, one for each way, or over a channel that the caller has; then an end may be
/// connected one way only, and anew once it is closed.
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
  void meet_over(BootstrapChannel& channel) { shared_ = &channel; }
  /// "" when received messages go through none.
  std::string unpacker_name() const { return parts_.unpacker && memory_.on_gpu() ? parts_.unpacker->name() : ""; }
  const ChannelDevices& devices() const { return parts_.devices; }

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
  /// Ends the connection of an end that has failed.
  void drop();

 private:
  /// A direction: the parts that move messages one way.
  struct Way {
    std::unique_ptr<BootstrapChannel> own_peer;  // outlives the pipeline
    std::unique_ptr<Pipeline> pipeline;
    RegisteredMemory memory;
    TransferSeries series;
  };

  /// @param met null: over the caller's channel
  Status open(std::unique_ptr<BootstrapChannel> met, bool sends, Deadline deadline);
  /// Registers `memory` in place of the memory before.
  static Status use(const TestMemory& memory, MemoryType type, Way& way);

  const EndSetup setup_;
  MessageMemory memory_;
  const Parts parts_;  // the unpacker may know the memory
  std::unique_ptr<BootstrapServer> server_;
  BootstrapChannel* shared_ = nullptr;
  Way send_, receive_;  // destroyed first: a connection touches all of the above
};

}  // namespace tcpx
