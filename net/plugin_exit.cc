#include "net/plugin_exit.h"

#include <dlfcn.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/flight_scope.h"
#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

// A thread that drives transfers gets here within microseconds, or after a sleep of a few milliseconds at most.
constexpr Duration kWaitForAnotherThread = std::chrono::milliseconds(500);

/// A library whose exits are reported. Entries are added and never removed, so that the handler needs no lock.
struct Reported {
  const std::string plugin;
  const void* const library;  // load address
  const Reported* next;
};
std::atomic<const Reported*> reported_libraries = nullptr;

const void* library_of(const void* address) {
  Dl_info info;
  return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

/// Findings of the stack walk from the handler to the function that a signal interrupted, or to the start of the thread.
struct Stack {
  const Reported* plugin = nullptr;
  bool interrupted = false;
};

_Unwind_Reason_Code look_at_frame(_Unwind_Context* context, void* user) {
  auto& stack = *static_cast<Stack*>(user);
  int interrupted = 0;
  const uintptr_t return_address = _Unwind_GetIPInfo(context, &interrupted);
  if (return_address == 0) return _URC_END_OF_STACK;
  if (interrupted != 0) {
    stack.interrupted = true;
    return _URC_END_OF_STACK;
  }
  // The call to exit may be the last instruction of its function, so that the return address lies in the next function.
  const void* const library = library_of(reinterpret_cast<const void*>(return_address - 1));
  for (const Reported* entry = reported_libraries.load(); entry != nullptr; entry = entry->next) {
    if (entry->library != library) continue;
    stack.plugin = entry;
    return _URC_END_OF_STACK;
  }
  return _URC_NO_REASON;
}

/// The log may be redirected by a test or be locked; this text must be seen.
void write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Runs on the thread that called exit, with whatever locks that thread holds: the only lock of ours taken here is that of
// another thread's answer, which is never held while calling foreign code.
void at_exit() noexcept {
  static std::atomic<bool> told = false;
  try {
    Stack stack;
    _Unwind_Backtrace(look_at_frame, &stack);
    const PluginCall* call = PluginCall::current();
    // A plugin without unwind tables is not found on the stack; the mark is enough then.
    if (stack.plugin == nullptr && (call == nullptr || stack.interrupted)) return;
    if (told.exchange(true) || !log_enabled(LogLevel::kNotice)) return;
    const std::string record =
        call != nullptr ? FlightScope::of_this_thread() : FlightScope::of_another_thread(Deadline::after(kWaitForAnotherThread));
    write_to_stderr(concat("tcpx: error: net plugin ", call != nullptr ? call->plugin() : stack.plugin->plugin,
                           " ends this process by exit, from within ",
                           call != nullptr ? concat(call->operation(), "()") : "a thread of its own",
                           "; last flight record: ", record.empty() ? "nothing in flight" : record, "\n"));
  } catch (...) {  // out of memory
  }
}

}  // namespace

void report_exit_of(const std::string& plugin, const void* table) {
  const void* const library = library_of(table);
  for (const Reported* entry = reported_libraries.load(); entry != nullptr; entry = entry->next) {
    if (entry->library == library) return;
  }
  (void)log_enabled(LogLevel::kNotice);  // creates the log, which would be too late at exit
  auto* const entry = new Reported{plugin, library, reported_libraries.load()};
  while (!reported_libraries.compare_exchange_weak(entry->next, entry)) {
  }
  report_exit_first();
}

void report_exit_first() {
  if (reported_libraries.load() != nullptr) (void)std::atexit(at_exit);
}

}  // namespace tcpx
