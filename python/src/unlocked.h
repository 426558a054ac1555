// The interpreter lock, given up for a while. At its end the interpreter ends every thread that asks for the lock again (before
// Python 3.14), with an unwinding that C++ frames do not survive: such a thread sleeps until the process is gone.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace tcpx::python {

/// Calls what may ask for the interpreter lock: all that may run Python code does. Nothing in `body` has a destructor that needs the
/// lock, because the unwinding runs it without: `body` deals in plain pointers, and owners are outside.
template <class Body>
auto outlive_interpreter(Body body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

/// Runs the handlers of signals that have come, on the main thread. @return false when one raised, and Python's error is set
inline bool run_signal_handlers() {
  return outlive_interpreter([] { return PyErr_CheckSignals(); }) == 0;
}

/// Without the interpreter lock while this lives.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    outlive_interpreter([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace tcpx::python
