// The library's log lines on their way to Python's `logging`: kept until a Python thread takes them. The threads that log never
// take the interpreter lock, which could be held by one that waits for them.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tcpx::python {

/// Log lines go to `take_log_lines` from now on instead of stderr; at most 4096 are kept, and the number of the lost is told.
void keep_log_lines();
/// Waits for lines. Without the interpreter lock. @return {level as Python's `logging` numbers it, text}; none at the timeout
std::vector<std::pair<int, std::string>> take_log_lines(std::chrono::milliseconds timeout);
/// Log lines go to stderr again, the kept ones too.
void release_log_lines();

}  // namespace tcpx::python
