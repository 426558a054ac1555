#include "net/repeated_lines.h"

#include <algorithm>

#include "base/text.h"

namespace tcpx {

std::string RepeatedLines::told_of(const Entry& entry, TimePoint now) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - entry.since).count();
  return concat(std::string_view(entry.text.data(), entry.text_bytes), " (", entry.repeats, " times more in ", ms, " ms)");
}

void RepeatedLines::tell(TimePoint now, Duration older_than, std::vector<std::string>& told) {
  for (Entry& entry : entries_) {
    if (entry.repeats == 0 || now - entry.since < older_than) continue;
    told.push_back(told_of(entry, now));
    entry.repeats = 0;
    entry.since = now;
  }
}

bool RepeatedLines::admit(const LineSource& source, TimePoint now, std::vector<std::string>& told) {
  const MutexLock lock(mutex_);
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.source == source; });
  const bool repeats = known != entries_.end() && (known->repeats > 0 || now - known->since < kPeriod);
  if (repeats) ++known->repeats;
  tell(now, kPeriod, told);
  if (repeats) return false;
  Entry& entry = known != entries_.end() ? *known
                                         : *std::min_element(entries_.begin(), entries_.end(),
                                                             [](const Entry& a, const Entry& b) { return a.since < b.since; });
  if (entry.repeats > 0) told.push_back(told_of(entry, now));
  entry.source = source;
  entry.since = now;
  entry.repeats = 0;
  entry.text_bytes = 0;
  return true;
}

void RepeatedLines::remember(const LineSource& source, std::string_view text) {
  const MutexLock lock(mutex_);
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.source == source; });
  if (known == entries_.end()) return;
  known->text_bytes = text.copy(known->text.data(), known->text.size());
}

void RepeatedLines::tell_due(TimePoint now, std::vector<std::string>& told) {
  const MutexLock lock(mutex_);
  tell(now, kPeriod, told);
}

void RepeatedLines::tell_all(TimePoint now, std::vector<std::string>& told) {
  const MutexLock lock(mutex_);
  tell(now, Duration::min(), told);
}

}  // namespace tcpx
