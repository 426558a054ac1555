#include "transfer/handshake.h"

#include <optional>
#include <thread>

#include "base/log.h"

namespace tcpx {
namespace {

// A handshake takes 0.2 s or more with the vendor's plugin (its own sleeps), so polling more often gains nothing.
constexpr Duration kPollEvery = std::chrono::milliseconds(1);

template <class CommId, class Try>
Result<CommId> poll_until(const char* operation, const HandshakeWait& wait, Try try_once) {
  for (;;) {
    const Result<std::optional<CommId>> comm = try_once();
    if (!comm.is_ok()) return comm.status();
    if (comm->has_value()) return **comm;
    if (wait.check) TCPX_RETURN_IF_ERROR(wait.check());
    if (wait.deadline.expired()) {
      Status status(Code::kTimeout, operation, "the other end did not come in time");
      log(LogLevel::kWarning, status.to_string());
      return status;
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

}  // namespace

Result<SendComm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait) {
  Handle scratch = handle;
  return poll_until<SendComm>("connect", wait, [&] { return plugin.try_connect(dev, scratch); });
}

Result<RecvComm> accept_comm(NetPlugin& plugin, ListenComm listener, DeviceHandleStorage& device_handle,
                             const HandshakeWait& wait) {
  return poll_until<RecvComm>("accept", wait, [&] { return plugin.try_accept(listener, device_handle); });
}

}  // namespace tcpx
