// Endpoints with UCCL_TCPX_SECURITY=auth and UCCL_TCPX_CHECKSUM over a wire that flips bits (tests/support/flip_storm.h): TLS protects the
// stream, and sums with a secret key protect the payload, which goes in clear.
#include <gtest/gtest.h>

#include "base/environment.h"
#include "tests/support/flip_seed.h"
#include "tests/support/flip_storm.h"
#include "tests/support/secret_file.h"

namespace tcpx::testing {
namespace {

TEST(AuthenticatedEndpointFlips, NoFlippedBitOnTheWayIsDoneWithWrongBytes) {
  const SecretFile secret("one secret, which both ends of it have\n");
  const auto authenticated = [&] {
    EXPECT_TRUE(environment_set(Variable::kSecretFile, secret.path()).is_ok());
    EXPECT_TRUE(environment_set(Variable::kChecksum, "on").is_ok());
    auto endpoint = Endpoint::create(FlipStorm::config());
    EXPECT_TRUE(environment_set(Variable::kSecretFile, "").is_ok());
    EXPECT_TRUE(environment_set(Variable::kChecksum, "").is_ok());
    return std::move(*endpoint);
  };
  FlipStorm storm(authenticated, next_flip_seed());
  storm.run(kFlips);
}

}  // namespace
}  // namespace tcpx::testing
