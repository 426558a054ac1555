// Any control bytes: what the parser accepts tiles the received bytes, what it refuses leaves nothing but tokens, and the tokens
// are those that the C library's own walk finds.
//
// Input: u8 flags (1 Google dialect, 2 truncated, 4 long received_bytes, 8 takes linear bytes), received_bytes (u16, or u64 with
// flag 4), u64 dst_off, then the control bytes.
#include <sys/socket.h>

#include <vector>

#include "rx/rx_cmsg_parser.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using tcpx::CmsgDialect;
using tcpx::CmsgError;
using tcpx::CmsgInput;
using tcpx::Fragment;
using tcpx::ParsedCmsg;

constexpr uint64_t kFourGiB = uint64_t{1} << 32;

/// Walks with CMSG_NXTHDR, which needs an aligned buffer and, in some versions, leaves out a last message without padding.
std::vector<uint32_t> tokens_by_libc(std::vector<std::byte> control, CmsgDialect dialect) {
  const bool google = dialect == CmsgDialect::kGoogle;
  std::vector<uint32_t> tokens;
  msghdr message{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    const auto left = static_cast<size_t>(control.data() + control.size() - reinterpret_cast<std::byte*>(c));
    if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > left) break;
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != (google ? 99 : 79) || c->cmsg_len < CMSG_LEN(google ? 12 : 24)) continue;
    uint32_t token;
    std::memcpy(&token, CMSG_DATA(c) + (google ? 8 : 12), sizeof token);
    tokens.push_back(token);
  }
  return tokens;
}

void check(const CmsgInput& input, const ParsedCmsg& parsed) {
  const std::vector<uint32_t> expected = tokens_by_libc({input.control.begin(), input.control.end()}, input.dialect);
  FUZZ_REQUIRE(parsed.tokens.size() >= expected.size() && parsed.tokens.size() <= expected.size() + 1);
  FUZZ_REQUIRE(std::equal(expected.begin(), expected.end(), parsed.tokens.begin()));
  FUZZ_REQUIRE(!tcpx::name_of(parsed.error).empty());
  if (parsed.error != CmsgError::kNone) {
    FUZZ_REQUIRE(parsed.fragments.empty());
    FUZZ_REQUIRE(parsed.error_at <= input.control.size());
    return;
  }
  FUZZ_REQUIRE(!input.control_truncated);
  FUZZ_REQUIRE(input.takes_linear || parsed.linear_bytes == 0);
  FUZZ_REQUIRE(parsed.fragments.size() == parsed.tokens.size());
  uint64_t at = input.dst_off, linear_at = 0;
  auto fragment = parsed.fragments.begin(), linear = parsed.linear.begin();
  while (fragment != parsed.fragments.end() || linear != parsed.linear.end()) {
    const bool is_linear = linear != parsed.linear.end() && linear->dst_off == at;
    FUZZ_REQUIRE(is_linear || fragment != parsed.fragments.end());
    const Fragment& f = is_linear ? *linear++ : *fragment++;
    FUZZ_REQUIRE(f.len > 0);
    FUZZ_REQUIRE(uint64_t{f.src_off} + f.len <= kFourGiB);
    FUZZ_REQUIRE(f.dst_off == at);
    if (is_linear) FUZZ_REQUIRE(f.src_off == linear_at);
    if (is_linear) linear_at += f.len;
    at += f.len;
    FUZZ_REQUIRE(at > f.dst_off);
  }
  FUZZ_REQUIRE(parsed.fragments.size() <= tcpx::kMaxFragments && linear_at == parsed.linear_bytes);
  FUZZ_REQUIRE(at - input.dst_off == input.received_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tcpx::fuzz::FuzzInput in(data, size);
  const auto flags = in.take<uint8_t>();
  CmsgInput input;
  input.dialect = (flags & 1) != 0 ? CmsgDialect::kGoogle : CmsgDialect::kLinux;
  input.control_truncated = (flags & 2) != 0;
  input.takes_linear = (flags & 8) != 0;
  input.received_bytes = (flags & 4) != 0 ? in.take<uint64_t>() : in.take<uint16_t>();
  input.dst_off = in.take<uint64_t>();
  // An allocation of exactly this size: the address checker sees a byte read too far.
  const std::vector<std::byte> control(in.rest().begin(), in.rest().end());
  input.control = control;
  check(input, tcpx::parse_rx_cmsg(input));
  return 0;
}
