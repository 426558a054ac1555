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
  FlipStorm storm({{Variable::kSecretFile, secret.path()}, {Variable::kChecksum, "on"}}, next_flip_seed());
  storm.run(kFlips);
}

}  // namespace
}  // namespace tcpx::testing
