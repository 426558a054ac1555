#include "programs/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "base/log.h"

namespace tcpx {
namespace {

// A signal handler has no other way to reach the program.
std::atomic<bool> stop_flag = false;
std::atomic<int> stop_signal = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void set_stop_flag(int signal) {
  stop_signal = signal;
  stop_flag = true;
  // Errors on the way out are no news. (The log is made by then, see below; this is one atomic store.)
  if (!log_enabled(LogLevel::kDebug)) set_log_level(LogLevel::kOff);
}

void end(int signal) {
  constexpr char kText[] = "interrupted\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::raise(signal);  // whose action is the default one by now
}

void on_interrupt(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

const std::atomic<bool>& stop_on_interrupt() {
  (void)log_enabled(LogLevel::kDebug);
  on_interrupt(set_stop_flag);
  return stop_flag;
}

int interrupted_by() {
  return stop_signal;
}

void end_on_interrupt() {
  on_interrupt(end);
}

}  // namespace tcpx
