#include "net/devmem/user_shares.h"

#include "base/text.h"

namespace tcpx::devmem {

Result<UserShares::Share> UserShares::take(uid_t user) {
  const MutexLock lock(mutex_);
  size_t all = 0;
  for (const auto& [each, count] : taken_) all += count;
  const auto refusal = [](std::string why) { return Status(Code::kExhausted, "ask tcpx_devmemd", std::move(why)); };
  if (all >= of_all_) return refusal(concat(of_all_, " ", what_, " are as many as it has"));
  size_t& own = taken_[user];
  if (own >= of_user_) return refusal(concat("user ", user, " has ", own, " ", what_, ", as many as one user may have"));
  ++own;
  return Share(*this, user);
}

void UserShares::give_back(uid_t user) {
  const MutexLock lock(mutex_);
  const auto own = taken_.find(user);
  if (--own->second == 0) taken_.erase(own);
}

}  // namespace tcpx::devmem
