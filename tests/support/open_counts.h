// Things that the code under test holds and that only a stand-in can count: registrations, allocations of a GPU, mappings of a
// peer's memory. The stand-in counts them by name, and the test main compares the counts before and after each case
// (resource_counts.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/memory_ops.h"

namespace tcpx::testing {

class OpenCounts {
 public:
  static OpenCounts& instance() {
    static OpenCounts& counts = *new OpenCounts;  // never destroyed: things are closed until the very end of the process
    return counts;
  }
  /// So many more of `kind` are open than before.
  void add(std::string_view kind, int64_t change) {
    const std::lock_guard lock(mutex_);
    auto found = counts_.find(kind);
    if (found == counts_.end()) found = counts_.emplace(kind, 0).first;  // only this allocates: some tests count allocations
    found->second += change;
  }
  std::map<std::string, int64_t, std::less<>> all() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t, std::less<>> counts_;
};

/// The same buffer, which counts as one open thing of `kind` until it goes.
inline Result<MemoryBuffer> counted(const std::string& kind, Result<MemoryBuffer> made) {
  if (!made.is_ok()) return made;
  const auto memory = std::make_shared<MemoryBuffer>(std::move(*made));  // shared, because a std::function must be copyable
  OpenCounts::instance().add(kind, 1);
  return MemoryBuffer(memory->host(), memory->device(), memory->size(), [memory, kind] { OpenCounts::instance().add(kind, -1); });
}

}  // namespace tcpx::testing
