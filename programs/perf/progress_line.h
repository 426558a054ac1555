// A line on a terminal that says how far things are, and is gone afterwards.
#pragma once

#include <string>

namespace tcpx::perf {

/// On stderr, when that is a terminal; else nothing. Erases itself on destruction.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text);
  /// Before anything else is printed.
  void clear();

 private:
  bool on_terminal_;
  size_t shown_ = 0;
};

}  // namespace tcpx::perf
