// Unmapper: lets go of memory that is mapped or pinned for a GPU, on a thread of its own. The driver waits for every kernel of the process
// before it unmaps or unpins (cudaIpcCloseMemHandle and cudaHostUnregister: 2.7 s behind a kernel of 2.7 s, on an H100), and on the
// thread that makes progress all connections and their deadlines would wait with it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"

namespace tcpx {

/// Any thread.
class Unmapper {
 public:
  /// Time that the end of an endpoint waits for the application's kernels.
  static constexpr Duration kFarewell = std::chrono::seconds(1);

  /// @param memory of the buffers; lives for as long as one of them is not gone @param gpu current for the thread
  /// @param told called on the thread after each `let_go`, until `end`
  Unmapper(std::shared_ptr<MemoryOps> memory, int gpu, std::function<void()> told);
  /// As `end`.
  ~Unmapper();
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;

  /// The buffers go in this order, and then `then` is called, on the thread. Where there can be no thread, here and now.
  void let_go(std::vector<MemoryBuffer> buffers, std::function<void()> then = {});
  /// Returns when all are gone, or after kFarewell: the thread goes on then with what is left. `told` is not called any more.
  void end();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
};

}  // namespace tcpx
