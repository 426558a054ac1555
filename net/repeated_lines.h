// Lines that a plugin logs over and over: the first is logged, the rest are counted and reported once a second. GPUDirect-TCPX
// repeats some warnings with every chunk, and a hundred thousand equal lines bury the one that matters.
//
// Lines are equal when they come from one place of the plugin's code, whatever their arguments. A count is reported with the
// plugin's next line after its second is over, or at the end of the process: no thread waits for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace tcpx {

/// A place in a plugin's code. Holds the plugin's own literals, compared by address and never read.
struct LineSource {
  const char* file = nullptr;
  int line = 0;
  const char* format = nullptr;
  bool operator==(const LineSource&) const = default;
};

/// Memory is bounded: beyond kMostSources sources at a time the oldest is forgotten, after its count has been reported.
/// Thread-safe.
class RepeatedLines {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);
  static constexpr size_t kMostSources = 64;

  /// Counts a line of `source`. Lines to be logged now are added to `told`: counts whose second is over, "... (4711 times more
  /// in 1000 ms)".
  /// @return true when the line itself is to be logged; `remember` then stores its text.
  bool admit(const LineSource& source, TimePoint now, std::vector<std::string>& told);
  void remember(const LineSource& source, std::string_view text);

  /// Adds the counts whose second is over.
  void tell_due(TimePoint now, std::vector<std::string>& told);
  /// Adds all counts.
  void tell_all(TimePoint now, std::vector<std::string>& told);

 private:
  struct Entry {
    LineSource source;
    TimePoint since;
    uint64_t repeats = 0;
    std::array<char, 256> text;
    size_t text_bytes = 0;
  };
  static std::string told_of(const Entry& entry, TimePoint now);
  void tell(TimePoint now, Duration older_than, std::vector<std::string>& told) TCPX_REQUIRES(mutex_);

  Mutex mutex_;
  std::array<Entry, kMostSources> entries_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx
