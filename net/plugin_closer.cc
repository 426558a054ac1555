#include "net/plugin_closer.h"

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/own_thread.h"
#include "base/text.h"
#include "net/plugin_status.h"

namespace tcpx {
namespace {

int64_t milliseconds_of(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

/// A plugin may be written in C++ and throw out of a call of its table.
Status guarded(const char* operation, const std::function<Status()>& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return plugin_refused(Code::kPlugin, operation, concat("it threw an exception: ", error.what()));
  } catch (...) {
    return plugin_refused(Code::kPlugin, operation, "it threw something that is no exception of C++");
  }
}

struct Closing {
  bool done = false;
  bool left_behind = false;
  Status answer;
};

}  // namespace

struct PluginCloser::State {
  struct Kept {
    std::string what;
    std::function<bool()> has_ended;
  };

  State(std::string name, const Limits& limits_of_it) : plugin(std::move(name)), limits(limits_of_it) {}

  void ask_until_ended();

  const std::string plugin;
  const Limits limits;
  mutable Mutex mutex;
  CondVar changed;
  LeftBehind left TCPX_GUARDED_BY(mutex);
  std::vector<Kept> kept TCPX_GUARDED_BY(mutex);
  bool is_asking TCPX_GUARDED_BY(mutex) = false;
  bool stopping TCPX_GUARDED_BY(mutex) = false;
};

PluginCloser::PluginCloser(std::string plugin, const Limits& limits)
    : state_(std::make_shared<State>(std::move(plugin), limits)) {}

PluginCloser::~PluginCloser() {
  const MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  while (state_->is_asking) state_->changed.wait(state_->mutex);
}

Status PluginCloser::close(const char* operation, std::function<Status()> call) {
  const auto closing = std::make_shared<Closing>();  // guarded by the state's mutex, shared with the thread
  const TimePoint start = Clock::steady().now();
  auto thread = start_thread("tcpx-close", [state = state_, closing, operation, start, call = std::move(call)]() mutable {
    Status answer = guarded(operation, call);
    call = nullptr;
    const MutexLock lock(state->mutex);
    closing->done = true;
    closing->answer = std::move(answer);
    if (closing->left_behind) {
      --state->left.closing_threads;
      log(LogLevel::kWarning, operation, ": ", state->plugin, " has returned after ",
          milliseconds_of(Clock::steady().now() - start), " ms");
    }
    state->changed.notify_all();
  });
  if (!thread.is_ok()) return thread.status();  // it stays open, which is better than a hang

  size_t left_behind = 0;
  {
    const MutexLock lock(state_->mutex);
    const Duration limit = state_->left.closing_threads == 0 ? state_->limits.close : state_->limits.close_when_stuck;
    while (!closing->done && Clock::steady().now() - start < limit)
      (void)state_->changed.wait_until(state_->mutex, start + limit);
    if (!closing->done) {
      closing->left_behind = true;
      left_behind = ++state_->left.closing_threads;
    }
  }
  if (left_behind == 0) {
    thread->join();
    return closing->answer;
  }
  thread->detach();
  return plugin_refused(Code::kTimeout, operation,
                        concat(state_->plugin, " has not returned after ", milliseconds_of(Clock::steady().now() - start),
                               " ms, as when RxDM closes a connection without an answer; its thread is left behind, with ",
                               left_behind - 1, " others"));
}

void PluginCloser::State::ask_until_ended() {
  mutex.lock();
  while (!stopping && !kept.empty()) {
    std::vector<Kept> asked = std::move(kept);
    kept.clear();
    mutex.unlock();
    std::vector<Kept> still;
    for (Kept& each : asked) {
      if (each.has_ended()) {
        log(LogLevel::kInfo, plugin, ": ", each.what, " that was given up has ended");
      } else {
        still.push_back(std::move(each));
      }
    }
    asked.clear();
    mutex.lock();
    for (Kept& each : still) kept.push_back(std::move(each));
    left.set_ups = kept.size();
    if (!stopping && !kept.empty()) (void)changed.wait_until(mutex, Clock::steady().now() + limits.pause);
  }
  kept.clear();
  is_asking = false;
  changed.notify_all();
  mutex.unlock();
}

void PluginCloser::keep(std::string_view what, std::function<bool()> has_ended) {
  const MutexLock lock(state_->mutex);
  state_->kept.push_back({std::string(what), std::move(has_ended)});
  const size_t kept = ++state_->left.set_ups;
  log(LogLevel::kInfo, state_->plugin, ": ", what, " was given up and is kept until it has ended, ", kept, " of at most ",
      state_->limits.most_kept);
  if (state_->is_asking) return;
  auto thread = start_thread("tcpx-kept", [state = state_] { state->ask_until_ended(); });
  if (!thread.is_ok()) return;  // the next call of keep tries again
  thread->detach();
  state_->is_asking = true;
}

Status PluginCloser::room_for(const char* operation) const {
  const MutexLock lock(state_->mutex);
  if (state_->left.set_ups < state_->limits.most_kept) return Status::ok();
  return plugin_refused(Code::kExhausted, operation,
                        concat(state_->left.set_ups, " connections that were given up have not ended inside ", state_->plugin,
                               ": end the processes that hang at their other end, or start this one anew"));
}

LeftBehind PluginCloser::left_behind() const {
  const MutexLock lock(state_->mutex);
  return state_->left;
}

}  // namespace tcpx
