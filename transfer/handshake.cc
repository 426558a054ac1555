#include "transfer/handshake.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/text.h"

namespace tcpx {
namespace {

constexpr Duration kFirstPause = std::chrono::microseconds(50);
constexpr Duration kLongestPause = std::chrono::milliseconds(5);

// Asks until there is an answer other than "not yet".
template <class Try>
auto until_answer(const HandshakeWait& wait, const char* operation, Try try_once) -> decltype(try_once()) {
  Duration pause = kFirstPause;
  for (;;) {
    auto answer = try_once();
    if (!answer.is_ok() || answer->has_value()) return answer;
    if (wait.peer != nullptr) TCPX_RETURN_IF_ERROR(wait.peer->peer_status());
    if (wait.stop != nullptr && wait.stop->load()) return Status(Code::kTimeout, operation, "interrupted");
    if (wait.deadline.expired()) return Status(Code::kTimeout, operation, "the other end did not come until the deadline");
    std::this_thread::sleep_until(Deadline::after(pause).earlier(wait.deadline).at());
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace

Result<Listener> Listener::create(NetPlugin& plugin, int dev) {
  Handle handle;
  const auto comm = plugin.listen(dev, handle);
  if (!comm.is_ok()) return comm.status();
  return Listener(plugin, *comm, handle);
}

Listener::Listener(Listener&& other) noexcept
    : plugin_(other.plugin_), comm_(other.comm_), handle_(other.handle_), open_(std::exchange(other.open_, false)) {}

Listener::~Listener() {
  // Whoever first saw the error has logged it, and a destructor has nobody to tell.
  (void)close();
}

Result<Comm> Listener::accept(DeviceHandleStorage& device_handle, const HandshakeWait& wait) {
  const auto comm = until_answer(wait, "accept", [&] { return plugin_->try_accept(comm_, device_handle); });
  if (!comm.is_ok()) return comm.status();
  return Comm(*plugin_, **comm);
}

Status Listener::close() {
  if (!std::exchange(open_, false)) return Status::ok();
  return plugin_->close(comm_);
}

Result<Comm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait) {
  Handle scratch = handle;
  const auto comm = until_answer(wait, "connect", [&] { return plugin.try_connect(dev, scratch); });
  if (!comm.is_ok()) return comm.status();
  return Comm(plugin, **comm);
}

}  // namespace tcpx
