// WayMemory: remembers which ways to a peer have lately led nowhere, so that only the first connection pays for finding out.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace tcpx {

/// A way is a text that names an address, and the device by which it is reached if that is fixed. Any thread.
///
/// A way that has answered before may lose a packet: being silent once only makes it unknown again. An unknown way that is silent
/// is taken to lead nowhere until it answers or kRemembered has passed, so a change of the network is noticed.
class WayMemory {
 public:
  static constexpr Duration kRemembered = std::chrono::minutes(10);
  /// Most ways that are remembered. The one reported longest ago is forgotten for a new one.
  static constexpr size_t kMostWays = 256;

  explicit WayMemory(const Clock& clock = Clock::steady()) : clock_(clock) {}
  /// The memory that all connections of this process share. It does not distinguish the network namespaces of threads, so with
  /// several of them an address may be tried last although it leads to a peer.
  static WayMemory& of_process();

  void has_answered(const std::string& way);
  /// Call when the way had enough time to answer, but another way has answered instead.
  void was_silent(const std::string& way);
  bool leads_nowhere(const std::string& way) const;

 private:
  struct Word {
    bool good;
    TimePoint told;
  };
  void remember(const std::string& way, bool good) TCPX_REQUIRES(mutex_);
  const Word* recall(const std::string& way) const TCPX_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Word> ways_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx
