// EndpointConfig::accepts as a Python function. The thread that sets up a connection never takes the interpreter lock: whoever closes
// the endpoint waits for that thread, may have the lock, and may even have been called by the function (the garbage collector runs
// anywhere). So each question has a thread of its own, for which nobody waits once the endpoint is closing.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>

#include "tcpx/endpoint.h"

namespace tcpx::python {

class AcceptFilter : public std::enable_shared_from_this<AcceptFilter> {
 public:
  /// @param question called with a client's address, GPU and name. @return the application's function and its argument, or None
  explicit AcceptFilter(const nanobind::object& question) : question_(question.inc_ref().ptr()) {}

  /// Without the interpreter lock. @return false also when the function raises (sys.unraisablehook is told), and without an answer
  /// once the filter has stopped or the set-up's time is over. Throws when too many answers are awaited.
  bool accepts(const PeerInfo& peer);
  /// From now on nobody is accepted, and nobody waits for an answer. Any thread.
  void stop() { stopped_ = true; }
  /// Lets go of the function. With the interpreter lock.
  void end() { Py_CLEAR(question_); }

 private:
  struct Question;
  bool ask(const PeerInfo& peer) const;

  PyObject* question_;  // guarded by the interpreter lock
  std::atomic<bool> stopped_{false};
  std::atomic<int> unanswered_{0};
};

}  // namespace tcpx::python
