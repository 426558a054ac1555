// Unmapper: unmaps and unpins GPU memory on a thread of its own. Before it unmaps or unpins, the driver waits for every kernel of
// the process (cudaIpcCloseMemHandle and cudaHostUnregister: 2.7 s behind a kernel of 2.7 s, on an H100). On the progress thread,
// all connections and their deadlines would wait, too.
//
// Memory is mapped, pinned, allocated and shared on another thread: a kernel for which an unmapping waits may itself wait for a
// transfer that needs the mapping.
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

  /// @param memory made the buffers; kept alive until all of them are gone @param gpu current on the thread
  /// @param told called on the thread after each `let_go` or `map` is done, until `end`
  Unmapper(std::shared_ptr<MemoryOps> memory, int gpu, std::function<void()> told);
  ~Unmapper();
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;

  /// Calls `map`, after those of earlier calls, on a thread; if no thread can be started, on the caller's at once.
  void begin(std::function<void()> map);
  /// Calls `make` as `begin` does.
  std::shared_ptr<PendingBuffer> make(std::function<Result<MemoryBuffer>()> make);
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
