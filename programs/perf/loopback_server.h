// The other end of a loopback run: this program once more, as a process of its own, so that each end has its plugin's threads and
// its GPU to itself. The two talk over a pair of connected sockets instead of a port.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "measure/child.h"
#include "wire/bootstrap_channel.h"

namespace tcpx::perf {

/// Killed and reaped on destruction when it still runs; the kernel kills it when this process dies.
class LoopbackServer {
 public:
  /// @param arguments of this program, to which `option` and a descriptor number are added
  static Result<LoopbackServer> start(std::vector<std::string> arguments, const std::string& option);

  /// This process's end of the channel, once.
  BootstrapChannel channel(const std::atomic<bool>& stop);
  /// Waits for its end. @return kTimeout, or how it ended when that was not by itself.
  Status wait(Deadline deadline);

 private:
  LoopbackServer(Child child, UniqueFd socket) : child_(std::move(child)), socket_(std::move(socket)) {}
  Child child_;
  UniqueFd socket_;
};

/// In that process: its end of the channel. @param descriptor as the option says. @return kInvalidArgument when it is no socket.
Result<BootstrapChannel> loopback_channel(int descriptor, const std::atomic<bool>& stop);

}  // namespace tcpx::perf
