#include "transfer/chunk_budget.h"

#include <algorithm>
#include <utility>

namespace tcpx {

std::optional<ChunkBudget::Share> ChunkBudget::take(Asker& asker, uint64_t bytes, TimePoint now) {
  while (!shares_.empty() && now - shares_.front().since >= limits_.patience) drop_front();
  const bool alone = users_.empty() || (users_.size() == 1 && users_.contains(asker.connection));
  if (!alone && !may_take(asker, bytes)) return std::nullopt;
  if (alone || (asker.in_line && (given_ += bytes) * limits_.channels >= limits_.turn)) leave(asker);
  shares_.push_back({.connection = asker.connection, .bytes = bytes, .since = now});
  User& user = users_[asker.connection];
  user.bytes += bytes;
  ++user.uses;
  return first_ + shares_.size() - 1;
}

// Decides whether the asker gets a share. A refused asker gets a place in line, unless its connection already has its full share.
bool ChunkBudget::may_take(Asker& asker, uint64_t bytes) {
  const bool next = line_.empty() || line_.front() == &asker;
  if (asker.in_line && !next) return false;
  const auto known = users_.find(asker.connection);
  const size_t users = users_.size() + (known == users_.end() ? 1 : 0);
  const uint64_t part = std::max(limits_.turn, limits_.together / users);
  if (known != users_.end() && known->second.bytes >= part) {
    leave(asker);
    return false;
  }
  if (next) {
    const uint64_t filled = part + std::max<uint64_t>(bytes, 1) - 1;
    uint64_t sum = 0;
    for (const auto& [connection, user] : users_) sum += std::min(user.bytes, filled);
    if (sum < limits_.together) return true;
  }
  if (!std::exchange(asker.in_line, true)) {
    line_.push_back(&asker);
    ++users_[asker.connection].uses;
  }
  return false;
}

void ChunkBudget::give_back(Share share) {
  if (share < first_) return;
  count_no_more(shares_[share - first_]);
  while (!shares_.empty() && !shares_.front().counts) drop_front();
}

void ChunkBudget::leave(Asker& asker) {
  if (!std::exchange(asker.in_line, false)) return;
  if (line_.front() == &asker) given_ = 0;
  line_.erase(std::find(line_.begin(), line_.end(), &asker));  // usually the first, so the search is short
  end_use(asker.connection, 0);
}

uint64_t ChunkBudget::held() const {
  uint64_t sum = 0;
  for (const auto& [connection, user] : users_) sum += user.bytes;
  return sum;
}

void ChunkBudget::end_use(const void* connection, uint64_t bytes) {
  const auto user = users_.find(connection);
  user->second.bytes -= bytes;
  if (--user->second.uses == 0) users_.erase(user);
}

void ChunkBudget::count_no_more(Held& held) {
  if (std::exchange(held.counts, false)) end_use(held.connection, held.bytes);
}

void ChunkBudget::drop_front() {
  count_no_more(shares_.front());
  shares_.pop_front();
  ++first_;
}

}  // namespace tcpx
