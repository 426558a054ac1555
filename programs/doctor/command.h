// Programs of the system that the doctor asks.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace tcpx::doctor {

struct CommandAnswer {
  bool installed = false;
  bool timed_out = false;
  int exit_code = 0;  ///< 128 plus the signal when one ended it
  std::string text;   ///< its standard output and error
};

/// Runs a program of the system's own directories with these arguments, without a shell and without input.
/// @param limit for the whole call
CommandAnswer run_command(const std::string& program, const std::vector<std::string>& arguments, Duration limit);

}  // namespace tcpx::doctor
