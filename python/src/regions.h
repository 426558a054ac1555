// Registrations of Python's buffers by address: a buffer is registered when it is first used, and every view of it found again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "python/src/shared_endpoint.h"
#include "tcpx/endpoint.h"

namespace tcpx::python {

/// A registration, which ends when nobody keeps it: operations and slots keep those that they use, so that none of them waits for
/// another's end. Any thread, without the interpreter lock: its end may wait for the peer's operations.
class BufferRegistration {
 public:
  BufferRegistration(std::shared_ptr<const SharedEndpoint> shared, MemoryId memory)
      : shared_(std::move(shared)), memory_(memory) {}
  ~BufferRegistration() { (void)end(); }
  BufferRegistration(const BufferRegistration&) = delete;
  BufferRegistration& operator=(const BufferRegistration&) = delete;

  MemoryId memory() const { return memory_; }
  /// Ends it now, and waits for all operations that use it, those of peers until the timeout (default: that of operations).
  /// @return kTimeout: it goes on
  Status end(std::optional<std::chrono::milliseconds> timeout = {});

 private:
  const std::shared_ptr<const SharedEndpoint> shared_;
  const MemoryId memory_;
  std::mutex mutex_;
  bool ended_ = false;
};

/// Any thread.
class Regions {
 public:
  /// The registration that has all of the range; nullptr: none.
  std::shared_ptr<BufferRegistration> find(uintptr_t data, size_t bytes) const;
  /// The registration of exactly that range; nullptr: none.
  std::shared_ptr<BufferRegistration> at(uintptr_t data, size_t bytes) const;
  /// Keeps a registration to be found, one more time if it is known already.
  void add(uintptr_t data, size_t bytes, const std::shared_ptr<BufferRegistration>& region);
  /// `add` of the registration that is known already, without another look at the memory. @return false: none is
  bool add_again(uintptr_t data, size_t bytes);
  /// Takes back one `add` of that range. @return its registration, which is not found any more; nullptr: others count on it
  std::shared_ptr<BufferRegistration> remove(uintptr_t data, size_t bytes);

 private:
  struct Entry {
    std::shared_ptr<BufferRegistration> region;
    size_t uses = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<uintptr_t, size_t>, Entry> entries_;  // address and length
  size_t longest_ = 0;                                     // of all that ever were: how far back a range may begin
};

}  // namespace tcpx::python
