#include "transfer/chunk_budget.h"

#include <algorithm>
#include <utility>

namespace tcpx {

ChunkBudget::ChunkBudget(size_t together, size_t turn, Duration patience)
    : together_(std::max<size_t>(together, 1)), turn_(std::max<size_t>(turn, 1)), patience_(patience) {}

std::optional<ChunkBudget::Share> ChunkBudget::take(Asker& asker, TimePoint now) {
  while (!shares_.empty() && now - shares_.front().since >= patience_) drop_front();
  const bool alone = users_.empty() || (users_.size() == 1 && users_.contains(asker.connection));
  const bool next = line_.empty() || line_.front() == &asker;
  if (!alone && (!next || held_ >= together_)) {
    if (!std::exchange(asker.in_line, true)) {
      line_.push_back(&asker);
      ++users_[asker.connection];
    }
    return std::nullopt;
  }
  if (alone || (asker.in_line && ++given_ >= turn_)) leave(asker);
  shares_.push_back({.connection = asker.connection, .since = now});
  ++held_;
  ++users_[asker.connection];
  return first_ + shares_.size() - 1;
}

void ChunkBudget::give_back(Share share) {
  if (share < first_) return;
  count_no_more(shares_[share - first_]);
  while (!shares_.empty() && !shares_.front().counts) drop_front();
}

void ChunkBudget::leave(Asker& asker) {
  if (!std::exchange(asker.in_line, false)) return;
  if (line_.front() == &asker) given_ = 0;
  line_.erase(std::find(line_.begin(), line_.end(), &asker));  // as a rule the first
  uncount(asker.connection);
}

void ChunkBudget::uncount(const void* connection) {
  const auto user = users_.find(connection);
  if (--user->second == 0) users_.erase(user);
}

void ChunkBudget::count_no_more(Held& held) {
  if (!std::exchange(held.counts, false)) return;
  --held_;
  uncount(held.connection);
}

void ChunkBudget::drop_front() {
  count_no_more(shares_.front());
  shares_.pop_front();
  ++first_;
}

}  // namespace tcpx
