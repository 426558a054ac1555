#include "base/own_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/read_process.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {
thread_local bool is_own = false;
}

void end_sleeps_in_time() {
  (void)::prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds
}

bool is_own_thread() {
  return is_own;
}

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  // A thread inherits the signal mask of its creator. The signals of its own faults are not blocked: otherwise the kernel would
  // end the process without calling any handler.
  sigset_t others, before;
  ::sigfillset(&others);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) ::sigdelset(&others, fault);
  ::pthread_sigmask(SIG_SETMASK, &others, &before);
  std::thread thread;
  int error = 0;
  try {
    thread = std::thread([body = std::move(body)] {
      is_own = true;
      WithoutTracingRight().for_good();
      body();
    });
  } catch (const std::system_error& refused) {
    error = refused.code().value();
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  // pthread_create returns EAGAIN for a shortage; from other calls EAGAIN means something else, so system_error does not know it
  // as one.
  if (error == EAGAIN)
    return Status(Code::kExhausted, concat("start thread ", name), "no more threads may be started", Domain::kErrno, error);
  if (error != 0) return system_error(concat("start thread ", name), error);
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace tcpx
