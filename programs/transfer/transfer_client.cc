#include "measure/pattern.h"
#include "programs/transfer/transfer_steps.h"

namespace tcpx::programs {

Status run_client(TransferEnd& end, BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(end.exchange_parameters(channel, Direction::kSend));
  TCPX_ASSIGN_OR_RETURN(const auto handles, channel.receive_handles(1, end.deadline()));
  end.step("handle received: ", hex_preview(handles.front().bytes, 16));
  TCPX_ASSIGN_OR_RETURN(auto comm, connect_comm(end.plugin(), end.dev(), handles.front(), end.handshake_wait(channel)));
  end.step("connected");
  TCPX_ASSIGN_OR_RETURN(auto connection,
                        Pipeline::create(std::move(comm), {}, Clock::steady(), end.pipeline_options(Direction::kSend)));
  TCPX_ASSIGN_OR_RETURN(const auto memory, end.register_buffer(*connection));

  for (uint32_t i = 0; i < end.options().iterations; ++i) {
    const std::vector<std::byte> payload = end.expected(i);
    TCPX_RETURN_IF_ERROR(end.fill(payload));
    TCPX_RETURN_IF_ERROR(channel.barrier(end.data_deadline()));
    end.step("sending ", payload.size(), " bytes, tag=", kTransferTag, ": ", hex_preview(payload));
    TCPX_ASSIGN_OR_RETURN(const auto id, connection->submit({.memory = memory, .bytes = payload.size(), .tag = kTransferTag}));
    TCPX_RETURN_IF_ERROR(end.drive(*connection, id, i, channel));
  }
  end.step("sent, waiting for the server's verdict");
  TCPX_RETURN_IF_ERROR(channel.barrier(end.data_deadline()));
  end.step("closing");
  return connection->close();
}

}  // namespace tcpx::programs
