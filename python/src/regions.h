// Registrations of Python's buffers by address: a buffer is registered when it is first used, and every view of it is found again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "tcpx/endpoint.h"

namespace tcpx::python {

/// Any thread.
class Regions {
 public:
  /// The registration that has all of the range; nullopt: none.
  std::optional<MemoryId> find(uintptr_t data, size_t bytes) const;
  /// Keeps a registration to be found, one more time if it is known already.
  void add(uintptr_t data, size_t bytes, MemoryId memory);
  /// Takes back one `add` of that range. @return its registration, which is not found any more if that was the last; nullopt: unknown
  std::optional<MemoryId> remove(uintptr_t data, size_t bytes);
  size_t size() const;

 private:
  struct Entry {
    MemoryId memory{};
    size_t uses = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<uintptr_t, size_t>, Entry> entries_;  // address and length
  size_t longest_ = 0;                                     // of all that ever were: how far back a range may begin
};

}  // namespace tcpx::python
