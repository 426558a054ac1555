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
    if (wait.stop != nullptr && wait.stop->load()) return Status(Code::kCancelled, operation, "interrupted");
    if (wait.deadline.expired()) return Status(Code::kTimeout, operation, "the other end did not come until the deadline");
    std::this_thread::sleep_until(Deadline::after(pause).earlier(wait.deadline).at());
    pause = std::min(pause * 2, kLongestPause);
  }
}

// Asks `try_one(i)` for each of `count` comms, until all have been made. "Not yet" of one holds up none of the others: which of
// them can go on may depend on which of them the other end has got to.
template <class Try>
Result<std::vector<Comm>> until_all(size_t count, const HandshakeWait& wait, const char* operation, Try try_one) {
  std::vector<std::optional<Comm>> made(count);
  size_t made_count = 0;
  const auto try_all = [&]() -> Result<std::optional<bool>> {
    for (size_t i = 0; i < count; ++i) {
      if (made[i]) continue;
      Result<std::optional<Comm>> comm = try_one(i);
      if (!comm.is_ok()) return comm.status();
      if (!comm->has_value()) continue;
      made[i].emplace(std::move(**comm));
      ++made_count;
    }
    return made_count == count ? std::optional(true) : std::nullopt;
  };
  const auto done = until_answer(wait, operation, try_all);
  if (!done.is_ok()) return done.status();
  std::vector<Comm> comms;
  for (auto& comm : made) comms.push_back(std::move(*comm));
  return comms;
}

// A connect under way, which the plugin is told of when nobody asks for it any more. The plugin writes into the handle.
class Connecting {
 public:
  Connecting(NetPlugin& plugin, int dev, const Handle& handle)
      : plugin_(&plugin), dev_(dev), handle_(std::make_unique<Handle>(handle)) {}
  Connecting(Connecting&&) = default;
  ~Connecting() { (void)give_up(); }

  /// @return why it has come to nothing so far; ok when nothing is known to be wrong
  Status give_up() {
    if (handle_ == nullptr || !not_yet_) return Status::ok();
    return plugin_->give_up_connect(dev_, std::move(handle_));
  }

  Result<std::optional<Comm>> try_once() {
    not_yet_ = false;
    TCPX_ASSIGN_OR_RETURN(const auto comm, plugin_->try_connect(dev_, *handle_));
    not_yet_ = !comm.has_value();
    if (not_yet_) return std::optional<Comm>();
    return std::optional<Comm>(Comm(*plugin_, *comm));
  }

 private:
  NetPlugin* plugin_;
  int dev_;
  std::unique_ptr<Handle> handle_;
  bool not_yet_ = false;
};

}  // namespace

Result<Listener> Listener::create(NetPlugin& plugin, int dev) {
  Handle handle;
  TCPX_ASSIGN_OR_RETURN(const auto comm, plugin.listen(dev, handle));
  return Listener(plugin, comm, handle);
}

Listener::Listener(Listener&& other) noexcept
    : plugin_(other.plugin_), comm_(other.comm_), handle_(other.handle_), open_(std::exchange(other.open_, false)) {}

Listener::~Listener() {
  // The first call that saw the error has logged it, and a destructor has no caller to tell.
  (void)close();
}

Result<std::optional<Comm>> Listener::try_accept(DeviceHandleStorage& device_handle) {
  TCPX_ASSIGN_OR_RETURN(const auto comm, plugin_->try_accept(comm_, device_handle));
  if (!comm.has_value()) return std::optional<Comm>();
  return std::optional<Comm>(Comm(*plugin_, *comm));
}

Result<Comm> Listener::accept(DeviceHandleStorage& device_handle, const HandshakeWait& wait) {
  auto comm = until_answer(wait, "accept", [&] { return try_accept(device_handle); });
  if (!comm.is_ok()) return comm.status();
  return std::move(**comm);
}

Status Listener::close() {
  if (!std::exchange(open_, false)) return Status::ok();
  return plugin_->close(comm_);
}

Result<std::vector<Comm>> accept_all(std::span<Listener> listeners,
                                     std::span<const std::unique_ptr<DeviceHandleStorage>> device_handles,
                                     const HandshakeWait& wait) {
  return until_all(listeners.size(), wait, "accept", [&](size_t i) { return listeners[i].try_accept(*device_handles[i]); });
}

Result<std::vector<Comm>> connect_all(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles,
                                      const HandshakeWait& wait) {
  std::vector<Connecting> connecting;
  for (size_t i = 0; i < handles.size(); ++i) connecting.emplace_back(plugin, devices[i], handles[i]);
  auto comms = until_all(handles.size(), wait, "connect", [&](size_t i) { return connecting[i].try_once(); });
  if (comms.is_ok() || comms.status().code() != Code::kTimeout) return comms;
  // A plugin that tries again until it is told to stop knows more than that the time is over.
  for (Connecting& one : connecting) TCPX_RETURN_IF_ERROR(one.give_up());
  return comms;
}

Result<Comm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(auto comms, connect_all(plugin, {&dev, 1}, {&handle, 1}, wait));
  return std::move(comms.front());
}

}  // namespace tcpx
