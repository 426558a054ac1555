#include "net/devmem/token_ledger.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

#include "base/socket_io.h"
#include "net/devmem/socket_abi.h"

namespace tcpx::devmem {
namespace {

constexpr char kGiveBack[] = "give tokens back";

}  // namespace

TokenLedger::~TokenLedger() {
  (void)give_back(held_.size());
  (void)flush();
}

void TokenLedger::hold(std::span<const uint32_t> tokens) {
  held_.insert(held_.end(), tokens.begin(), tokens.end());
}

Status TokenLedger::give_back(size_t count) {
  assert(count <= held_.size());
  const auto end = held_.begin() + static_cast<ptrdiff_t>(count);
  leaving_.insert(leaving_.end(), held_.begin(), end);
  held_.erase(held_.begin(), end);
  return give_back_full();
}

Status TokenLedger::give_back_newest(size_t count) {
  assert(count <= held_.size());
  const auto begin = held_.end() - static_cast<ptrdiff_t>(count);
  leaving_.insert(leaving_.end(), begin, held_.end());
  held_.erase(begin, held_.end());
  return give_back_full();
}

Status TokenLedger::give_back_full() {
  while (leaving_.size() >= kMostTokens) TCPX_RETURN_IF_ERROR(give_back_some());
  return Status::ok();
}

Status TokenLedger::flush() {
  while (!leaving_.empty()) TCPX_RETURN_IF_ERROR(give_back_some());
  return Status::ok();
}

Status TokenLedger::give_back_some() {
  // The kernel numbers fragments upwards, so what one recvmsg has told is mostly one range.
  std::array<TokenRange, kMostRanges> ranges;
  size_t range_count = 0, token_count = 0;
  for (; token_count < std::min(leaving_.size(), kMostTokens); ++token_count) {
    const uint32_t token = leaving_[token_count];
    if (range_count > 0 && token == ranges[range_count - 1].start + ranges[range_count - 1].count) {
      ++ranges[range_count - 1].count;
    } else if (range_count < kMostRanges) {
      ranges[range_count++] = {token, 1};
    } else {
      break;
    }
  }
  const auto bytes = static_cast<socklen_t>(range_count * sizeof(TokenRange));
  const int freed = calls_.setsockopt(fd_, SOL_SOCKET, kSoDevmemDontneed, ranges.data(), bytes);
  ++calls_made_;
  if (freed < 0) return system_error(kGiveBack, errno);
  // The answer is how many the kernel knew. Asking again for the others would change nothing.
  leaving_.erase(leaving_.begin(), leaving_.begin() + static_cast<ptrdiff_t>(token_count));
  if (static_cast<size_t>(freed) != token_count)
    return Status(Code::kProtocol, kGiveBack, concat("the kernel knew ", freed, " of ", token_count, " tokens"));
  return Status::ok();
}

}  // namespace tcpx::devmem
