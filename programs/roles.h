// Programs of two ends: a server, a client that names the server's host, or both in one process.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "tcpx/status.h"
#include "wire/bootstrap_channel.h"

namespace tcpx::programs {

/// One end of such a program. One thread at a time.
class ProgramEnd {
 public:
  virtual ~ProgramEnd() = default;
  /// Preparation that needs nothing of the peer. An end that fails here still tells its peer so.
  virtual Status prepare() { return Status::ok(); }
  /// Tells people what the end is about to do.
  virtual void say(const std::string& text) = 0;
  /// Everything with the peer. The channel must not be moved any more.
  virtual Status run(BootstrapChannel& channel) = 0;
};

using Meet = std::function<Result<BootstrapChannel>(ProgramEnd& end)>;

/// The life of an end. Each end tells the other how it went, and leaves only after it has heard the same from it.
/// @param peer_waits there is a peer, or one will come, who waits to be told even when `end` cannot begin
/// @param timeout of the farewell
Status run_end(std::unique_ptr<ProgramEnd> end, bool peer_waits, Duration timeout, const Meet& meet);

/// The roles as words of the command line: "server", "client HOST" and "loopback".
class Roles {
 public:
  /// Declares them in `app`, which must outlive this, and --port.
  explicit Roles(CLI::App& app);
  Roles(const Roles&) = delete;
  Roles& operator=(const Roles&) = delete;

  bool is_loopback() const { return loopback_->parsed(); }
  bool is_client() const { return client_->parsed(); }
  /// Runs the end that was named, or both, the server on a thread of its own. @param port of the bootstrap unless --port says
  /// another; both ends in this process take any free one. @param timeout of each step
  Status run(const std::function<std::unique_ptr<ProgramEnd>(bool is_server)>& make, uint16_t port, Duration timeout,
             const std::atomic<bool>& stop) const;

 private:
  CLI::App* client_;
  CLI::App* loopback_;
  std::string host_;
  std::optional<uint16_t> port_;
};

}  // namespace tcpx::programs
