#include "transfer/nic_watch.h"

#include <cerrno>

#include "base/text.h"

namespace tcpx {

bool NicWatch::due(TimePoint now) {
  if (now < next_look_) return false;
  next_look_ = now + kLookEvery;
  return true;
}

Status NicWatch::look(size_t user, const std::string& nic, std::string_view what, Tolerance tolerance) {
  Status status = down(nic, what);
  int& looks = looks_down_[user];
  looks = status.is_ok() ? 0 : looks + 1;
  return looks > (tolerance == Tolerance::kNone ? 0 : kToleratedLooks) ? status : Status::ok();
}

Status NicWatch::down(const std::string& nic, std::string_view what) const {
  if (nic.empty() || !is_down_ || !is_down_(nic)) return Status::ok();
  return Status(Code::kSystem, "watch network interface", concat(nic, " is down", what), Domain::kErrno, ENETDOWN);
}

}  // namespace tcpx
