// Unmapper: unmaps and unpins GPU memory on a thread of its own. Before it unmaps or unpins, the driver waits for every kernel of
// the process (cudaIpcCloseMemHandle and cudaHostUnregister: 2.7 s behind a kernel of 2.7 s, on an H100). On the progress thread,
// all connections and their deadlines would wait, too.
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
  /// How long a closing endpoint waits for the application's kernels.
  static constexpr Duration kFarewell = std::chrono::seconds(1);

  /// @param memory made the buffers; kept alive until all of them are gone @param gpu current on the thread
  /// @param told called on the thread after each `let_go` is done, until `end`
  Unmapper(std::shared_ptr<MemoryOps> memory, int gpu, std::function<void()> told);
  ~Unmapper();
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;

  /// Frees the buffers in this order and then calls `then`, on the thread; if no thread can be started, on the caller's at once.
  void let_go(std::vector<MemoryBuffer> buffers, std::function<void()> then = {});
  /// Returns when all buffers are gone, or after kFarewell; the thread then goes on by itself. `told` is not called any more.
  void end();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
};

}  // namespace tcpx
