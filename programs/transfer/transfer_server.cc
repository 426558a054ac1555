#include <algorithm>
#include <chrono>
#include <optional>

#include "base/text.h"
#include "measure/pattern.h"
#include "programs/transfer/transfer_steps.h"
#include "tcpx/help.h"

namespace tcpx::programs {
namespace {

// Of a message that is not longer every byte is shown.
constexpr size_t kProbeBytes = 256;

// With UCCL_TCPX_DEBUG=1: the plugin's data about each message, and its bytes as they lie in the bounce pool.
class PrintingTap final : public ReceiveTap {
 public:
  explicit PrintingTap(TransferEnd& end) : end_(end) {}

  void arrived(const ChunkWork& work, const ReceivedMessage& message, const DescriptorBlock& block) override {
    end_.say("request: chunk ", work.chunk.index, ", ", message.bytes, " bytes, tag ", work.tag, ", queue index ",
             message.queue_index, message.in_place ? ", in place" : concat(", ", message.fragment_count, " fragments"));
    const auto fragments = block.fragments();
    for (size_t i = 0; i < fragments.size(); ++i) {
      end_.say("descriptor[", i, "] src_off=", fragments[i].src_off, " len=", fragments[i].len,
               " dst_off=", fragments[i].dst_off);
    }
    if (fragments.empty()) return;
    std::byte first[kProbeBytes];
    const size_t bytes = std::min<size_t>(sizeof first, fragments[0].len);
    const Status copied = end_.lane().copy(first, block.target().pool + fragments[0].src_off, bytes);
    end_.say("Bounce probe (", bytes, "B) from src_off=", fragments[0].src_off, ": ",
             copied.is_ok() ? hex_preview({first, bytes}, kProbeBytes) : copied.to_string());
  }

 private:
  TransferEnd& end_;
};

struct ReceiveSide {
  DeviceHandleStorage device_handle;  // the comm's as long as it lives
  std::optional<PrintingTap> tap;
  std::unique_ptr<Pipeline> connection;  // last: it goes first
};

Result<Comm> accept_client(TransferEnd& end, BootstrapChannel& channel, DeviceHandleStorage& device_handle) {
  TCPX_ASSIGN_OR_RETURN(auto listener, Listener::create(end.plugin(), end.dev()));
  end.step("listening, handle sent: ", hex_preview(listener.handle().bytes, 16));
  TCPX_RETURN_IF_ERROR(channel.send_handles({&listener.handle(), 1}, end.deadline()));
  return listener.accept(device_handle, end.handshake_wait(channel));
}

Status connect_receive_side(TransferEnd& end, BootstrapChannel& channel, ReceiveSide& side) {
  const TransferProgramOptions& options = end.options();
  TCPX_ASSIGN_OR_RETURN(auto comm, accept_client(end, channel, side.device_handle));
  end.step("accepted");

  ReceiveParts parts{.unpacker = &end.unpacker()};
  if (options.memory == MemoryType::kCuda) {
    TCPX_ASSIGN_OR_RETURN(parts.pool, end.plugin().bounce_pool(side.device_handle, *end.endpoint().memory, end.lane()));
  }
  if (options.debug) {
    end.say("device handle: ", hex_preview(std::span<const std::byte>(side.device_handle.bytes).first(32), 32));
    end.say("bounce pool: ", parts.pool.bytes, " bytes at ", Hex{reinterpret_cast<uintptr_t>(parts.pool.base)});
    parts.tap = &side.tap.emplace(end);
  }
  TCPX_ASSIGN_OR_RETURN(side.connection,
                        Pipeline::create(std::move(comm), parts, Clock::steady(), end.pipeline_options(Direction::kRecv)));
  return Status::ok();
}

Status verify(TransferEnd& end, uint32_t iteration, std::vector<std::byte>& received) {
  TCPX_RETURN_IF_ERROR(end.read_back(received));
  end.say("received: ", hex_preview(received));
  if (end.options().bytes) {
    TCPX_RETURN_IF_ERROR(verify_pattern(received, iteration + 1));
    end.say("SUCCESS: ", received.size(), " bytes match the pattern");
    return Status::ok();
  }
  if (received != end.expected(iteration)) {
    return {Code::kMismatch, "verify data",
            concat("the payload is not the expected string", name_in_detail(Hint::kConsumedEarly))};
  }
  end.say("SUCCESS: Payload matches expected string");
  if (end.options().debug) end.say("Data validation PASSED: ", received.size(), " bytes");
  return Status::ok();
}

}  // namespace

Status run_server(TransferEnd& end, BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(end.exchange_parameters(channel, Direction::kRecv));
  ReceiveSide side;
  TCPX_RETURN_IF_ERROR(connect_receive_side(end, channel, side));
  TCPX_ASSIGN_OR_RETURN(const auto memory, end.register_buffer(*side.connection));

  std::vector<std::byte> received(end.transfer_bytes());
  for (uint32_t i = 0; i < end.options().iterations; ++i) {
    TCPX_RETURN_IF_ERROR(end.blank());
    end.step("receiving ", received.size(), " bytes, tag=", kTransferTag,
             end.options().memory == MemoryType::kCuda ? concat(", unpack ", end.unpacker().name()) : "");
    // The barrier lets the time begin with both ends ready.
    TCPX_RETURN_IF_ERROR(channel.barrier(end.data_deadline()));
    const TimePoint begin = Clock::steady().now();
    TCPX_ASSIGN_OR_RETURN(const auto id,
                          side.connection->submit({.memory = memory, .bytes = received.size(), .tag = kTransferTag}));
    TCPX_RETURN_IF_ERROR(end.drive(*side.connection, id, i, channel));
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::steady().now() - begin).count();
    end.say("in place after ", us, " us");
    TCPX_RETURN_IF_ERROR(verify(end, i, received));
  }
  // The client waits here for the last byte to be verified, and closes only then (13, 36).
  TCPX_RETURN_IF_ERROR(channel.barrier(end.data_deadline()));
  end.step("closing");
  return side.connection->close();
}

}  // namespace tcpx::programs
