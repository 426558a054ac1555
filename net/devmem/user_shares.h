// Counts something limited that the broker gives to users, so that no user takes all of it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

/// Any thread.
class UserShares {
 public:
  /// One of them. Destruction gives it back, and must not come after that of the counts.
  class Share {
   public:
    Share(Share&& other) noexcept : shares_(std::exchange(other.shares_, nullptr)), user_(other.user_) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (shares_ != nullptr) shares_->give_back(user_);
    }

   private:
    friend class UserShares;
    Share(UserShares& shares, uid_t user) : shares_(&shares), user_(user) {}
    UserShares* shares_;
    uid_t user_;
  };

  /// @param what they are, in the plural, for refusals
  UserShares(std::string what, size_t of_all, size_t of_user) : what_(std::move(what)), of_all_(of_all), of_user_(of_user) {}

  /// @return kExhausted: all users together, or this one, have as many as they may
  Result<Share> take(uid_t user) TCPX_EXCLUDES(mutex_);

 private:
  void give_back(uid_t user) TCPX_EXCLUDES(mutex_);

  const std::string what_;
  const size_t of_all_, of_user_;
  Mutex mutex_;
  std::map<uid_t, size_t> taken_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx::devmem
