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
  unread_ = tokens_.size();
  (void)flush();
}

void TokenLedger::hold(std::span<const uint32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

Status TokenLedger::give_back(size_t count) {
  assert(count <= tokens_.size() - unread_);
  unread_ += count;
  while (unread_ >= kMostTokens) TCPX_RETURN_IF_ERROR(give_back_some(unread_).status());
  return Status::ok();
}

Status TokenLedger::flush() {
  while (unread_ > 0) TCPX_RETURN_IF_ERROR(give_back_some(unread_).status());
  return Status::ok();
}

Result<size_t> TokenLedger::give_back_some(size_t count) {
  // The kernel numbers fragments upwards, so what one recvmsg has told is mostly one range.
  std::array<TokenRange, kMostRanges> ranges;
  size_t range_count = 0, token_count = 0;
  for (; token_count < std::min(count, kMostTokens); ++token_count) {
    const uint32_t token = tokens_[token_count];
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
  if (freed < 0) return system_error(kGiveBack, errno);
  // The answer is how many the kernel knew. Asking again for the others would change nothing.
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(token_count));
  unread_ -= token_count;
  if (static_cast<size_t>(freed) != token_count)
    return Status(Code::kProtocol, kGiveBack, concat("the kernel knew ", freed, " of ", token_count, " tokens"));
  return token_count;
}

}  // namespace tcpx::devmem
