// Unmapper: unmaps and unpins GPU memory on a thread of its own. Before it unmaps or unpins, the driver waits for every kernel of
// the process (cudaIpcCloseMemHandle and cudaHostUnregister: 2.7 s behind a kernel of 2.7 s, on an H100). On the progress thread,
// all connections and their deadlines would wait, too.
//
// Memory is mapped, pinned, allocated and shared on other threads: a kernel for which an unmapping waits may itself wait for a
// transfer that needs the mapping. The driver takes 0.6 ms to share a chunk of an allocator that grows and 0.75 ms to map one, and does
// part of that for several threads at once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"

namespace tcpx {

/// A buffer that a thread makes. The thread writes `buffer` before `done`, and nothing afterwards.
struct PendingBuffer {
  Result<MemoryBuffer> buffer = Status(Code::kExhausted, "allocate", "out of memory");
  std::atomic<bool> done = false;

  bool is_done() const { return done.load(std::memory_order_acquire); }
  /// Call when `is_done`. @return false: it could not be made
  bool has_buffer() const { return buffer.is_ok() && *buffer; }
};

/// Any thread.
class Unmapper {
 public:
  /// How long a closing endpoint waits for the application's kernels.
  static constexpr Duration kFarewell = std::chrono::seconds(1);
  /// Threads that map, pin, allocate and share.
  static constexpr size_t kMappingThreads = 4;

  /// @param memory made the buffers; kept alive until all of them are gone @param gpu current on the thread
  /// @param told called on the thread after each `let_go` or `map` is done, until `end`
  Unmapper(std::shared_ptr<MemoryOps> memory, int gpu, std::function<void()> told);
  ~Unmapper();
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;

  /// Calls `map` on a thread, kMappingThreads at once, before all buffers that nobody has hurried; if no thread can be started, on the
  /// caller's at once.
  void begin(std::function<void()> map);
  /// Calls `make` likewise, in the order of these calls.
  std::shared_ptr<PendingBuffer> make(std::function<Result<MemoryBuffer>()> make);
  /// Makes these buffers before those that nobody has hurried. @param wanted null and done ones are left out
  void hurry(std::vector<const PendingBuffer*> wanted);
  /// Makes the buffer no more. @return false: it is being made, or has been
  bool cancel(const PendingBuffer& unwanted);
  /// Frees the buffers in this order and then calls `then`, on the thread; if no thread can be started, on the caller's at once.
  void let_go(std::vector<MemoryBuffer> buffers, std::function<void()> then = {});
  /// Returns when all buffers are gone and nothing is being mapped, or after kFarewell; the threads then go on by themselves. `told`
  /// is not called any more.
  void end();

 private:
  struct State;
  const std::shared_ptr<State> state_, mapping_;  // each shared with its thread, which may outlive this
};

}  // namespace tcpx
