#include "measure/pattern.h"
#include "programs/transfer/transfer_steps.h"

namespace tcpx::programs {

Status run_client(TransferEnd& end, BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(end.exchange_parameters(channel));
  const auto handles = channel.receive_handles(1, end.deadline());
  if (!handles.is_ok()) return handles.status();
  end.step("handle received: ", hex_preview(handles->front().bytes, 16));
  auto comm = connect_comm(end.plugin(), end.dev(), handles->front(), end.handshake_wait(channel));
  if (!comm.is_ok()) return comm.status();
  end.step("connected");
  auto connection = Pipeline::create(std::move(*comm), {}, Clock::steady(), end.pipeline_options(Direction::kSend));
  if (!connection.is_ok()) return connection.status();
  const auto memory = end.register_buffer(**connection);
  if (!memory.is_ok()) return memory.status();

  for (uint32_t i = 0; i < end.options().iterations; ++i) {
    const std::vector<std::byte> payload = end.expected(i);
    TCPX_RETURN_IF_ERROR(end.fill(payload));
    TCPX_RETURN_IF_ERROR(channel.barrier(end.data_deadline()));
    end.step("sending ", payload.size(), " bytes, tag ", kTransferTag, ": ", hex_preview(payload));
    const auto id = (*connection)->submit({.memory = *memory, .bytes = payload.size(), .tag = kTransferTag});
    if (!id.is_ok()) return id.status();
    TCPX_RETURN_IF_ERROR(end.drive(**connection, *id, i, channel));
  }
  end.step("sent, waiting for the server's verdict");
  TCPX_RETURN_IF_ERROR(channel.barrier(end.data_deadline()));
  end.step("closing");
  return (*connection)->close();
}

}  // namespace tcpx::programs
