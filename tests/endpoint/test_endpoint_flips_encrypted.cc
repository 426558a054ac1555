// Endpoints with UCCL_TCPX_SECURITY=encrypt over a wire that flips bits (tests/support/flip_storm.h).
#include <gtest/gtest.h>

#include "base/environment.h"
#include "tests/support/flip_seed.h"
#include "tests/support/flip_storm.h"
#include "tests/support/secret_file.h"

namespace tcpx::testing {
namespace {

TEST(EncryptedEndpointFlips, NoFlippedBitOnTheWayIsDoneWithWrongBytes) {
  const SecretFile secret("one secret, which both ends of it have\n");
  FlipStorm storm({{Variable::kSecurity, "encrypt"}, {Variable::kSecretFile, secret.path()}}, next_flip_seed());
  storm.run(kFlips);
}

}  // namespace
}  // namespace tcpx::testing
