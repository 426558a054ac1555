// Entrance: lets clients of the listening port in, in the background, each on a thread of its own.
//
//   backlog --> greeted --> being set up --> admitted [ --> ready --> accept ]
//
// A client that has not said all of who it is has no thread (transfer/bootstrap.h), and there are kMostSetUps places for those that
// have. With all of them taken and another client waiting, the ones that have been silent longest go, if that is long, and sooner
// those of an address that has more than its share; they are told to try again. So a crowd that connects and stalls does not lock a
// good client out.
//
// An admitted connection lives whether or not `accept` is called for it. A client that has begun to come in is let in however
// short the caller's wait, and then is there for the next caller: a loop over short waits lets slow clients in. After a wait that
// found nobody clients go on coming in until one is ready; without a caller that is all, unless `admit_from_now_on` was called.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <thread>

#include "base/mutex.h"
#include "endpoint/link_setup.h"
#include "tcpx/endpoint.h"
#include "transfer/bootstrap.h"

namespace tcpx {

class Entrance {
 public:
  /// Called on threads of the entrance, by several at a time.
  struct Parts {
    BootstrapServer& server;  ///< made with wait_for_first_frame
    /// @param gives_way as in LinkSetup
    std::function<Result<LinkParts>(BootstrapChannel channel, Deadline deadline, const std::atomic<bool>& gives_way)> set_up;
    std::function<ConnId(LinkParts)> admit;
  };
  explicit Entrance(Parts parts) : parts_(std::move(parts)) {}
  ~Entrance() { stop(); }

  /// The next that has been admitted, any thread. @return kTimeout at the deadline, kExhausted when this process or machine lacks
  /// what it takes to let in those who have come; kCancelled once stopped; kInvalidArgument
  /// after `admit_from_now_on`; kExhausted also when there is no thread to be had
  Result<ConnId> accept(Deadline deadline) TCPX_EXCLUDES(mutex_);
  /// Admits every client that comes, without a call that asks for it. @return kExhausted as above
  Status admit_from_now_on() TCPX_EXCLUDES(mutex_);
  /// Ends every wait, also later ones. The server's stop flag must be set.
  void stop_waiting() TCPX_EXCLUDES(mutex_);
  /// And its thread: afterwards nobody is admitted any more.
  void stop() TCPX_EXCLUDES(mutex_);

 private:
  struct SetUp {
    std::string address;  // of the client
    Duration distance{};  // of which it may be silent at least
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
  std::list<SetUp> running_;  // of the entrance's own thread
  Mutex mutex_;
  CondVar changed_;
  std::deque<ConnId> ready_ TCPX_GUARDED_BY(mutex_);
  size_t callers_ TCPX_GUARDED_BY(mutex_) = 0;   // of accept
  bool wanted_ TCPX_GUARDED_BY(mutex_) = false;  // somebody has asked and not been given
  bool admits_ TCPX_GUARDED_BY(mutex_) = false;
  bool stopped_ TCPX_GUARDED_BY(mutex_) = false;
  Status trouble_ TCPX_GUARDED_BY(mutex_);  // why nobody has been let in since the first of the callers came
  std::thread thread_;
};

}  // namespace tcpx
