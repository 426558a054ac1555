// Endpoints with UCCL_TCPX_CHECKSUM over a wire that flips bits (tests/support/flip_storm.h).
#include <gtest/gtest.h>

#include "base/environment.h"
#include "tests/support/flip_seed.h"
#include "tests/support/flip_storm.h"

namespace tcpx::testing {
namespace {

void flip_with_checksums(const char* setting) {
  FlipStorm storm({{Variable::kChecksum, setting}}, next_flip_seed());
  storm.run(kFlips);
}

TEST(EndpointFlips, NoFlippedBitOnTheWayIsDoneWithWrongBytes) {
  flip_with_checksums("on");
}

TEST(EndpointFlips, NoFlippedBitIsDoneWithWrongBytesWhereWritesAndReadsAreRepeated) {
  flip_with_checksums("retry");
}

}  // namespace
}  // namespace tcpx::testing
