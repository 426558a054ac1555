#include "transfer/handshake.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace tcpx {
namespace {

// True for an error that concerns a single comm and says nothing about others.
bool is_of_one_way(Code code) {
  return code == Code::kPeerGone || code == Code::kTimeout || code == Code::kPlugin || code == Code::kSystem ||
         code == Code::kProtocol;
}

}  // namespace

Result<Listener> Listener::create(NetPlugin& plugin, int dev) {
  Handle handle;
  TCPX_ASSIGN_OR_RETURN(const auto comm, plugin.listen(dev, handle));
  return Listener(plugin, comm, handle);
}

Listener::Listener(Listener&& other) noexcept
    : plugin_(other.plugin_), comm_(other.comm_), handle_(other.handle_), open_(std::exchange(other.open_, false)) {}

Listener::~Listener() {
  // The call that first saw the error has logged it, and a destructor has no caller to report it to.
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

template <class Try>
Status CommsInTheMaking::ask(Try try_one) {
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (answers_[i]) continue;
    Result<std::optional<Comm>> comm = try_one(i);
    if (!comm.is_ok() && (all_or_none_ || !is_of_one_way(comm.status().code()))) return comm.status();
    if (comm.is_ok() && !comm->has_value()) continue;
    any_made_ |= comm.is_ok();
    answers_[i].emplace(comm.is_ok() ? CommAnswer(std::move(**comm)) : CommAnswer(comm.status()));
    ++answered_;
  }
  return Status::ok();
}

AcceptingComms::AcceptingComms(std::vector<Listener> listeners, bool all_or_none)
    : CommsInTheMaking(listeners.size(), all_or_none), listeners_(std::move(listeners)) {
  for (size_t i = 0; i < listeners_.size(); ++i) device_handles_.push_back(std::make_unique<DeviceHandleStorage>());
}

Status AcceptingComms::advance() {
  return ask([&](size_t i) { return listeners_[i].try_accept(*device_handles_[i]); });
}

// A connect that has been started. Its destruction tells the plugin that nobody asks for it any more. The plugin writes into the
// handle, so each attempt has its own copy.
class ConnectingComms::Attempt {
 public:
  Attempt(NetPlugin& plugin, int dev, const Handle& handle)
      : plugin_(&plugin), dev_(dev), handle_(std::make_unique<Handle>(handle)) {}
  Attempt(Attempt&&) = default;
  ~Attempt() { (void)give_up(); }

  /// Gives the connect up. @return why it has failed so far; ok when the plugin knows of no error
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

ConnectingComms::ConnectingComms(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles,
                                 Deadline deadline, const HandshakePatience& patience)
    : CommsInTheMaking(handles.size(), patience.all_or_none),
      deadline_(deadline),
      patience_(patience),
      begin_(Clock::steady().now()) {
  for (size_t i = 0; i < handles.size(); ++i) attempts_.emplace_back(plugin, devices[i], handles[i]);
}

ConnectingComms::ConnectingComms(ConnectingComms&&) noexcept = default;
ConnectingComms::~ConnectingComms() = default;

bool ConnectingComms::patience_is_over() {
  const TimePoint now = Clock::steady().now();
  // The others get at least as long as the first took: a slow machine is slow for all of them.
  if (any_made() && !for_others_ && !patience_.all_or_none)
    for_others_ = Deadline::after(std::min(std::max(patience_.for_others, now - begin_), (deadline_.at() - now) / 2));
  return (for_others_ ? *for_others_ : patience_.for_first.earlier(deadline_)).expired();
}

Result<bool> ConnectingComms::advance() {
  TCPX_RETURN_IF_ERROR(ask([&](size_t i) { return attempts_[i].try_once(); }));
  if (all_answered()) return true;
  if (!patience_is_over()) return false;
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (answers_[i]) continue;
    // A plugin that retries until it is told to stop may know a more precise reason than a timeout.
    Status why = attempts_[i].give_up();
    if (why.is_ok()) why = Status(Code::kTimeout, "connect", "the other end did not come until the deadline");
    if (patience_.all_or_none) return why;
    answers_[i].emplace(std::move(why));
  }
  return true;
}

Result<std::vector<CommAnswer>> connect_all(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles,
                                            const HandshakeWait& wait, const HandshakePatience& patience) {
  ConnectingComms comms(plugin, devices, handles, wait.deadline, patience);
  const auto done = until_answer(wait, "connect", [&]() -> Result<std::optional<bool>> {
    TCPX_ASSIGN_OR_RETURN(const bool over, comms.advance());
    return over ? std::optional(true) : std::nullopt;
  });
  if (!done.is_ok()) return done.status();
  std::vector<CommAnswer> all;
  for (size_t i = 0; i < handles.size(); ++i) all.push_back(std::move(*comms.answer(i)));
  return all;
}

Result<Comm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(auto comms, connect_all(plugin, {&dev, 1}, {&handle, 1}, wait, {.for_first = wait.deadline}));
  return std::move(comms.front());
}

}  // namespace tcpx
