// Lines that a plugin logs over and over: the first is logged, the rest are counted and told once a second. GPUDirect-TCPX warns
// of some things with every chunk, and a hundred thousand equal lines bury the one that matters.
//
// Lines are equal when they come from one place of the plugin's code, whatever their arguments. A count is told when the next
// line of the plugin comes after its second is over, or at the end of the process: no thread waits for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace tcpx {

/// A place in a plugin's code. The plugin's own literals, compared by address and never read.
struct LineSource {
  const char* file = nullptr;
  int line = 0;
  const char* format = nullptr;
  bool operator==(const LineSource&) const = default;
};

/// Memory is bounded: of more sources than kMostSources at a time the one that began first is forgotten, its count told before.
/// Thread-safe.
class RepeatedLines {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(1);
  static constexpr size_t kMostSources = 64;

  /// Counts a line of `source`. Lines to be logged now are added to `told`: counts whose second is over, "... (4711 times more
  /// in 1000 ms)".
  /// @return true when the line is to be logged itself; `remember` then says what it was.
  bool admit(const LineSource& source, TimePoint now, std::vector<std::string>& told);
  void remember(const LineSource& source, std::string_view text);

  /// The counts whose second is over.
  void tell_due(TimePoint now, std::vector<std::string>& told);
  /// All counts.
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
