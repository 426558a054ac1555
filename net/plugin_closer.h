// PluginCloser: set-ups and comms that a plugin's users have given up but the plugin has not.
//
// GPUDirect-TCPX sets connections up on threads of its own, which cannot be told to stop, and a close frees memory that they
// use. So an abandoned set-up is kept here and polled until it has ended. A close sends RxDM a request: if RxDM closes the
// connection without an answer, the plugin waits forever. So each close runs on a thread of its own, which is left behind when
// it does not return.
//
// A plugin without these habits needs none of this.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "net/net_plugin.h"

namespace tcpx {

/// Thread-safe.
class PluginCloser {
 public:
  struct Limits {
    Duration close = std::chrono::seconds(5);
    /// While a thread is left behind the next close will hardly succeed, and a caller that closes many must not wait that long
    /// for each.
    Duration close_when_stuck = std::chrono::milliseconds(250);
    Duration pause = std::chrono::milliseconds(20);  ///< between two checks whether a set-up has ended
    size_t most_kept = 256;
  };

  explicit PluginCloser(std::string plugin) : PluginCloser(std::move(plugin), Limits()) {}
  PluginCloser(std::string plugin, const Limits& limits);
  /// Drops all that is kept. Waits for a check in progress, never for a thread that is left behind.
  ~PluginCloser();
  PluginCloser(const PluginCloser&) = delete;
  PluginCloser& operator=(const PluginCloser&) = delete;

  /// Runs `call`. @return its result, or kTimeout when it does not return in time. It then continues, perhaps forever, so it
  /// must own what it uses.
  Status close(const char* operation, std::function<Status()> call);

  /// Calls `has_ended` until it returns true; from a thread of this object, one call at a time.
  void keep(std::string_view what, std::function<bool()> has_ended);
  /// @return kExhausted, for `operation`, when the limit on what is kept has been reached.
  Status room_for(const char* operation) const;

  LeftBehind left_behind() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads that are left behind
};

}  // namespace tcpx
