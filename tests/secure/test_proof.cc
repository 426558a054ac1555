// Keys and codes of authentication, against those of Python's hmac.
#include "secure/proof.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "secure/derive_key.h"
#include "secure/openssl.h"
#include "tests/support/hex_text.h"
#include "tests/support/ok.h"
#include "tests/support/prover.h"
#include "tests/support/secret_file.h"

namespace tcpx::testing {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex(const Mac& mac) {
  return to_hex_text(mac.data(), mac.size());
}

// RFC 5869, test case 3: no salt and no label. Its output is longer than ours, which is the first block of it.
TEST(Proof, KeysAreThoseOfHkdf) {
  const std::string secret(22, '\x0b');
  std::array<std::byte, kHmacBytes> key;
  ASSERT_TRUE(derive_key(*must(OpenSsl::of_process()), as_bytes(secret), "", key));
  EXPECT_EQ(to_hex_text(key.data(), key.size()), "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

// By Python 3.11:
//   def h(k, m): return hmac.new(k, m, 'sha256').digest()
//   key = h(h(bytes(32), b's' * 32), b'tcpx-p2p proof of sockets 1\x01')
//   h(key, b'who\0what')[:16]; h(h(key, b'of\0cookie'), b'who\0what')[:16]
TEST(Proof, CodesAreThoseOfPython) {
  const Prover prover = prover_of('s');
  EXPECT_EQ(hex(must(prover.mac("who", as_bytes("what")))), "bcaa2b9e6e7a33a685b0b27c7a7c9329");
  EXPECT_EQ(hex(must(must(prover.derive("of", as_bytes("cookie"))).mac("who", as_bytes("what")))),
            "6797dcbad72462bafc6e5c485acb0376");
}

TEST(Proof, SecretLabelContextAndBytesAllCount) {
  const Prover prover = prover_of('s');
  const Mac mac = must(prover.mac("who", as_bytes("what")));
  EXPECT_EQ(mac, must(prover_of('s').mac("who", as_bytes("what"))));
  EXPECT_NE(mac, must(prover_of('t').mac("who", as_bytes("what"))));
  EXPECT_NE(mac, must(prover.mac("whom", as_bytes("what"))));
  EXPECT_NE(mac, must(prover.mac("whow", as_bytes("hat")))) << "the end of the label counts";
  EXPECT_NE(mac, must(prover.mac("who", as_bytes("whatever"))));
  EXPECT_NE(mac, must(must(prover.derive("", {})).mac("who", as_bytes("what"))));
}

TEST(Proof, CodesAreComparedToTheLastBit) {
  const Mac mac = must(prover_of('s').mac("who", as_bytes("what")));
  EXPECT_TRUE(same_mac(mac, mac));
  for (size_t bit = 0; bit < 8 * mac.size(); ++bit) {
    Mac other = mac;
    other[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(same_mac(mac, other)) << bit;
  }
}

TEST(Proof, TheSecretIsThatOfTheEnvironment) {
  const char* const kName = "UCCL_TCPX_SECRET_FILE";
  EXPECT_EQ(must(Prover::from_environment()), nullptr);
  const SecretFile file(std::string(32, 's')), weak("short");
  ::setenv(kName, file.path().c_str(), 1);
  EXPECT_EQ(must(must(Prover::from_environment())->mac("a", {})), must(prover_of('s').mac("a", {})));
  ::setenv(kName, weak.path().c_str(), 1);
  EXPECT_EQ(Prover::from_environment().status().code(), Code::kBadConfig);
  ::unsetenv(kName);
}

}  // namespace
}  // namespace tcpx::testing
