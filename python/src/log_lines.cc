#include "python/src/log_lines.h"

#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "base/fork.h"
#include "base/log.h"
#include "base/text.h"

namespace tcpx::python {
namespace {

constexpr size_t kMostLines = 4096;

struct Lines {
  const uint64_t born_in = count_forks();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, std::string>> kept;
  size_t lost = 0;
};
// Never destroyed: threads of the library may log while the process exits.
Lines& lines() {
  static Lines& all = *new Lines;
  return all;
}

int python_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 10;
    case LogLevel::kInfo:
    case LogLevel::kNotice:
      return 20;
    case LogLevel::kWarning:
      return 30;
    default:
      return 40;
  }
}

void keep(LogLevel level, std::string_view text, void*) {
  if (count_forks() != lines().born_in) {
    // Nobody takes them in a forked child, where the mutex may be locked for ever.
    std::fprintf(stderr, "tcpx: %.*s\n", static_cast<int>(text.size()), text.data());
    return;
  }
  const std::lock_guard lock(lines().mutex);
  if (lines().kept.size() >= kMostLines) {
    ++lines().lost;
    return;
  }
  lines().kept.emplace_back(python_level(level), text);
  lines().changed.notify_one();
}

std::vector<std::pair<int, std::string>> take_all() {
  auto taken = std::exchange(lines().kept, {});
  if (const size_t lost = std::exchange(lines().lost, 0); lost != 0) taken.emplace_back(30, concat(lost, " log lines were lost"));
  return taken;
}

}  // namespace

void keep_log_lines() {
  (void)lines();
  set_log_sink(keep, nullptr);
}

std::vector<std::pair<int, std::string>> take_log_lines(std::chrono::milliseconds timeout) {
  std::unique_lock lock(lines().mutex);
  lines().changed.wait_for(lock, timeout, [] { return !lines().kept.empty(); });
  return take_all();
}

void release_log_lines() {
  set_log_sink(nullptr, nullptr);
  const std::lock_guard lock(lines().mutex);
  for (const auto& [level, text] : take_all())
    log(level >= 40 ? LogLevel::kError : level >= 30 ? LogLevel::kWarning : LogLevel::kNotice, text);
}

}  // namespace tcpx::python
