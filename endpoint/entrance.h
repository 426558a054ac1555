// Entrance: sets up the connections of clients of the listening port, in the background, each on a thread of its own.
//
//   backlog --> greeted --> being set up --> admitted [ --> ready --> accept ]
//
// A client gets a thread only when its first frame is complete (transfer/bootstrap.h), and there are kMostSetUps such places. When
// all are taken and another client waits, the clients that have been silent longest must leave; clients of an address that has more
// than its share must leave sooner. They are told to try again. So a crowd that connects and stalls does not lock out a good client.
//
// An admitted connection lives whether or not `accept` is called for it. A set-up that has begun goes on after the caller's wait has
// ended, and the connection is then there for the next caller, so a loop over short waits lets slow clients in. After a wait that
// found nobody, clients are let in until one is ready, and no further ones without a caller, unless `admit_from_now_on` was called.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <thread>

#include "base/crowd_log.h"
#include "base/mutex.h"
#include "endpoint/link_setup.h"
#include "tcpx/endpoint.h"
#include "transfer/bootstrap.h"

namespace tcpx {

class Entrance {
 public:
  /// Both functions are called on threads of the entrance, by several at a time.
  struct Parts {
    BootstrapServer& server;  ///< made with wait_for_first_frame
    /// @param gives_way as in LinkSetup
    std::function<Result<LinkParts>(BootstrapChannel channel, Deadline deadline, const std::atomic<bool>& gives_way)> set_up;
    std::function<ConnId(LinkParts)> admit;
  };
  explicit Entrance(Parts parts) : parts_(std::move(parts)) {}
  ~Entrance() { stop(); }

  /// Waits for the next admitted connection. Any thread.
  /// @return kTimeout at the deadline; kExhausted: this process or machine is short of threads, descriptors or memory for the clients
  /// that have come; kCancelled once stopped; kInvalidArgument after `admit_from_now_on`
  Result<ConnId> accept(Deadline deadline) TCPX_EXCLUDES(mutex_);
  /// From now on admits every client without a call of `accept`. @return kExhausted: no thread can be started
  Status admit_from_now_on() TCPX_EXCLUDES(mutex_);
  /// Ends every wait, later ones too. The server's stop flag must be set.
  void stop_waiting() TCPX_EXCLUDES(mutex_);
  /// Ends the waits and the entrance's threads: afterwards nobody is admitted any more.
  void stop() TCPX_EXCLUDES(mutex_);

 private:
  struct SetUp {
    std::string address;  // of the client
    Duration distance{};  // silence that a client so far away is always allowed
    std::thread thread;
    ChannelWatch watch;
    std::atomic<bool> gives_way{false};
    std::atomic<bool> done{false};
  };

  Status start() TCPX_REQUIRES(mutex_);
  bool wanted() TCPX_REQUIRES(mutex_) { return admits_ || (wanted_ && ready_.size() < std::max<size_t>(callers_, 1)); }
  void run() TCPX_EXCLUDES(mutex_);
  void take_one() TCPX_EXCLUDES(mutex_);
  void place(BootstrapChannel channel) TCPX_EXCLUDES(mutex_);
  void reap(bool all);
  void make_room(const std::string& newcomer, size_t places);
  void finish(SetUp& setup, Result<LinkParts> parts) TCPX_EXCLUDES(mutex_);

  Parts parts_;
  std::list<SetUp> running_;  // only for the entrance's own thread
  Mutex mutex_;
  CondVar changed_;
  std::deque<ConnId> ready_ TCPX_GUARDED_BY(mutex_);
  size_t callers_ TCPX_GUARDED_BY(mutex_) = 0;   // in `accept`
  bool wanted_ TCPX_GUARDED_BY(mutex_) = false;  // an `accept` has not got a connection yet
  bool admits_ TCPX_GUARDED_BY(mutex_) = false;
  bool stopped_ TCPX_GUARDED_BY(mutex_) = false;
  CrowdLog crowd_log_ TCPX_GUARDED_BY(mutex_);
  Status trouble_ TCPX_GUARDED_BY(mutex_);  // why nobody has been let in since the first caller came
  std::thread thread_;
};

}  // namespace tcpx
