#include "programs/perf/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tcpx::perf {

ProgressLine::ProgressLine() : on_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(const std::string& text) {
  if (!on_terminal_) return;
  const std::string blanks(shown_ > text.size() ? shown_ - text.size() : 0, ' ');
  std::fprintf(stderr, "\r%s%s", text.c_str(), blanks.c_str());
  shown_ = std::max(shown_, text.size());
}

void ProgressLine::clear() {
  if (shown_ == 0) return;
  std::fprintf(stderr, "\r%s\r", std::string(shown_, ' ').c_str());
  shown_ = 0;
}

}  // namespace tcpx::perf
