// What a plugin's users let go of and the plugin is not done with.
//
// GPUDirect-TCPX sets connections up on threads of its own, which cannot be told to stop, and frees what they use when it is told
// to close. So a set-up that was given up is kept here and asked for until it has ended. And closing asks RxDM for something: if
// RxDM closes the connection without an answer, the plugin waits for ever. So closing happens on a thread of its own, which is
// left behind when it does not return.
//
// A plugin that has neither habit needs none of this.
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
    /// While a thread is left behind there is little hope for the next, and whoever closes many must not wait that long for each.
    Duration close_when_stuck = std::chrono::milliseconds(250);
    Duration pause = std::chrono::milliseconds(20);  ///< between two questions whether a set-up has ended
    size_t most_kept = 256;
  };

  explicit PluginCloser(std::string plugin) : PluginCloser(std::move(plugin), Limits()) {}
  PluginCloser(std::string plugin, const Limits& limits);
  /// Keeps nothing any longer. Waits for a question that is being asked, never for a thread that is left behind.
  ~PluginCloser();
  PluginCloser(const PluginCloser&) = delete;
  PluginCloser& operator=(const PluginCloser&) = delete;

  /// What `call` returns, or kTimeout when it does not in time. It then goes on, perhaps for ever, so it must own what it uses.
  Status close(const char* operation, std::function<Status()> call);

  /// Asks `has_ended` until it says so; from a thread of this object, one question at a time.
  void keep(std::string_view what, std::function<bool()> has_ended);
  /// @return kExhausted, for `operation`, when as much is kept as is allowed.
  Status room_for(const char* operation) const;

  LeftBehind left_behind() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads that are left behind
};

}  // namespace tcpx
