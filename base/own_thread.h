// Starts threads that belong to the library: they do not take the application's signals.
#pragma once

#include <functional>
#include <thread>

#include "tcpx/status.h"

namespace tcpx {

/// Runs `body` on a new thread with all signals blocked, except those of its own faults (SIGSEGV and the like).
/// @param name at most 15 bytes, for debuggers and `top`
/// @return kExhausted or kSystem when no thread can be created
Result<std::thread> start_thread(const char* name, std::function<void()> body);

/// Timed sleeps of the calling thread end within some microseconds of their time from now on; the kernel's default is 50 (prctl(2),
/// PR_SET_TIMERSLACK). For threads that start_thread has started.
void end_sleeps_in_time();

/// True on a thread that start_thread has started.
bool is_own_thread();

}  // namespace tcpx
