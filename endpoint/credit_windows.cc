#include "endpoint/credit_windows.h"

#include <utility>

namespace tcpx {

bool CreditWindows::refill(const Charge& credit) {
  uint64_t& left = left_[index(credit.window)];
  if (credit.bytes > bytes_of(credit.window) - left) return false;
  left += credit.bytes;
  return true;
}

bool CreditWindows::count(const Charge& charge) {
  uint64_t& taken = taken_[index(charge.window)];
  if (charge.bytes > bytes_of(charge.window) - taken) return false;
  taken += charge.bytes;
  return true;
}

uint64_t CreditWindows::give_back(const Charge& charge) {
  uint64_t& owed = owed_[index(charge.window)];
  owed += charge.bytes;
  if (owed < bytes_of(charge.window) / 4) return 0;
  taken_[index(charge.window)] -= owed;
  return std::exchange(owed, 0);
}

}  // namespace tcpx
