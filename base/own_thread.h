// Starts threads that belong to the library: they do not take the application's signals.
#pragma once

#include <functional>
#include <thread>

#include "tcpx/status.h"

namespace tcpx {

/// Runs `body` on a new thread with all signals blocked, save those of its own faults.
/// @param name at most 15 bytes, for debuggers and `top`.
/// @return kSystem when no thread can be created.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

/// True on a thread that start_thread has made.
bool is_own_thread();

}  // namespace tcpx
