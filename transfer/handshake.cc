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

// An error of one way, which says nothing of others.
bool is_of_one_way(Code code) {
  return code == Code::kPeerGone || code == Code::kTimeout || code == Code::kPlugin || code == Code::kSystem ||
         code == Code::kProtocol;
}

using Answers = std::vector<std::optional<CommAnswer>>;

// Asks `try_one(i)` for each of `count` comms, until all have answered or `is_over`. "Not yet" of one holds up none of the others:
// which of them can go on may depend on which of them the other end has got to.
// @param is_over takes whether there is a comm
template <class Try, class IsOver>
Result<Answers> until_all(size_t count, const HandshakeWait& wait, bool all_or_none, const char* operation, Try try_one,
                          IsOver is_over) {
  Answers answers(count);
  size_t answered = 0;
  bool any_made = false;
  const auto try_all = [&]() -> Result<std::optional<bool>> {
    for (size_t i = 0; i < count; ++i) {
      if (answers[i]) continue;
      Result<std::optional<Comm>> comm = try_one(i);
      if (!comm.is_ok() && (all_or_none || !is_of_one_way(comm.status().code()))) return comm.status();
      if (comm.is_ok() && !comm->has_value()) continue;
      any_made |= comm.is_ok();
      answers[i].emplace(comm.is_ok() ? CommAnswer(std::move(**comm)) : CommAnswer(comm.status()));
      ++answered;
    }
    return answered == count || is_over(any_made) ? std::optional(true) : std::nullopt;
  };
  const auto done = until_answer(wait, operation, try_all);
  if (!done.is_ok()) return done.status();
  return answers;
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

Result<std::vector<CommAnswer>> accept_all(std::span<Listener> listeners,
                                           std::span<const std::unique_ptr<DeviceHandleStorage>> device_handles,
                                           const HandshakeWait& wait, bool all_or_none) {
  TCPX_ASSIGN_OR_RETURN(auto answers, until_all(
                                          listeners.size(), wait, all_or_none, "accept",
                                          [&](size_t i) { return listeners[i].try_accept(*device_handles[i]); },
                                          [&](bool) { return wait.peer != nullptr && wait.peer->has_message(); }));
  std::vector<CommAnswer> all;
  for (auto& answer : answers)
    all.push_back(answer ? std::move(*answer) : CommAnswer(Status(Code::kTimeout, "accept", "the other end did not come")));
  return all;
}

Result<std::vector<CommAnswer>> connect_all(NetPlugin& plugin, std::span<const int> devices, std::span<const Handle> handles,
                                            const HandshakeWait& wait, const HandshakePatience& patience) {
  std::vector<Connecting> connecting;
  for (size_t i = 0; i < handles.size(); ++i) connecting.emplace_back(plugin, devices[i], handles[i]);
  const TimePoint begin = Clock::steady().now();
  std::optional<Deadline> for_others;
  const auto is_over = [&](bool any_made) {
    const TimePoint now = Clock::steady().now();
    // A machine that is slow to make the first is slow to make the others, too.
    if (any_made && !for_others && !patience.all_or_none)
      for_others = Deadline::after(std::min(std::max(patience.for_others, now - begin), (wait.deadline.at() - now) / 2));
    return (for_others ? *for_others : patience.for_first.earlier(wait.deadline)).expired();
  };
  TCPX_ASSIGN_OR_RETURN(auto answers, until_all(
                                          handles.size(), wait, patience.all_or_none, "connect",
                                          [&](size_t i) { return connecting[i].try_once(); }, is_over));
  std::vector<CommAnswer> all;
  for (size_t i = 0; i < handles.size(); ++i) {
    if (!answers[i]) {
      // A plugin that tries again until it is told to stop knows more than that the time is over.
      Status why = connecting[i].give_up();
      if (why.is_ok()) why = Status(Code::kTimeout, "connect", "the other end did not come until the deadline");
      if (patience.all_or_none) return why;
      answers[i].emplace(std::move(why));
    }
    all.push_back(std::move(*answers[i]));
  }
  return all;
}

Result<Comm> connect_comm(NetPlugin& plugin, int dev, const Handle& handle, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(auto comms, connect_all(plugin, {&dev, 1}, {&handle, 1}, wait, {.for_first = wait.deadline}));
  return std::move(comms.front());
}

}  // namespace tcpx
