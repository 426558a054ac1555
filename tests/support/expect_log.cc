#include "tests/support/expect_log.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.h"

namespace tcpx::testing {
namespace {

struct Capture {
  std::mutex mutex;
  std::vector<std::pair<LogLevel, std::string>> lines;
  std::vector<std::string> allowed;
};

Capture& capture() {
  static Capture& instance = *new Capture;
  return instance;
}

void sink(LogLevel level, std::string_view text, void*) {
  Capture& c = capture();
  const std::lock_guard lock(c.mutex);
  c.lines.emplace_back(level, std::string(text));
}

bool contains(const std::string& line, const std::string& part) {
  return line.find(part) != std::string::npos;
}

}  // namespace

void allow_log(const std::string& part) {
  Capture& c = capture();
  const std::lock_guard lock(c.mutex);
  c.allowed.push_back(part);
}

bool logged(const std::string& part) {
  Capture& c = capture();
  const std::lock_guard lock(c.mutex);
  return std::any_of(c.lines.begin(), c.lines.end(), [&](const auto& line) { return contains(line.second, part); });
}

void LogCapture::start() {
  Capture& c = capture();
  {
    const std::lock_guard lock(c.mutex);
    c.lines.clear();
    c.allowed = {"connections are not authenticated: "};
  }
  set_log_level(LogLevel::kInfo);
  set_log_sink(&sink, nullptr);
}

std::vector<std::string> LogCapture::stop() {
  set_log_sink(nullptr, nullptr);
  Capture& c = capture();
  const std::lock_guard lock(c.mutex);
  std::vector<std::string> unannounced;
  for (const auto& [level, line] : c.lines) {
    if (level != LogLevel::kWarning && level != LogLevel::kError) continue;
    if (std::none_of(c.allowed.begin(), c.allowed.end(),
                     [&, &text = line](const std::string& part) { return contains(text, part); })) {
      unannounced.push_back(line);
    }
  }
  return unannounced;
}

}  // namespace tcpx::testing
