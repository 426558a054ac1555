// A receiving comm of the software plugin against streams that are damaged or contradict themselves.
#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

using soft::ChunkHeader;
using soft::kChunkHeaderBytes;

constexpr size_t kMiB = size_t{1} << 20;

using SoftDamage = SoftFaults;

TEST_F(SoftDamage, AFlippedByteInAChunkHeaderEndsTheConnection) {
  for (size_t i = 0; i < kChunkHeaderBytes; ++i) {
    RawSender raw(table_);
    void* request = raw.post(100);
    auto header = RawSender::encode({.sequence = 0, .total = 100, .offset = 0, .bytes = 100});
    header[i] ^= std::byte{0x10};
    raw.send(0, header);
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << "byte " << i << ": 3 would tell the consumer to try again";
  }
}

TEST_F(SoftDamage, ChunksThatContradictTheirMessageEndTheConnection) {
  const ChunkHeader first = {.sequence = 0, .total = 1048576, .offset = 0, .bytes = 524288};
  ChunkHeader other_total = first, twice = first, finished = first;
  other_total.total = 1048577;
  other_total.offset = 524288;
  for (const auto& [what, second] : {std::pair{"another total", other_total}, std::pair{"the same offset twice", twice}}) {
    RawSender raw(table_);
    void* request = raw.post(2 * kMiB);
    raw.send_chunk(0, first);
    raw.send(1, RawSender::encode(second));
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << what;
  }
  RawSender raw(table_);
  void *done = raw.post(100), *next = raw.post(100);
  finished = {.sequence = 0, .total = 100, .offset = 0, .bytes = 100};
  raw.send_chunk(0, finished);
  EXPECT_EQ(raw.finish(done), 0);
  raw.send(1, RawSender::encode(finished));
  EXPECT_EQ(raw.finish(next), abi::kNcclSystemError) << "a chunk of a message that is over";
}

TEST_F(SoftDamage, ChunksInAnyOrderOverAnySocketsMakeTheMessage) {
  RawSender raw(table_);
  void *first = raw.post(2 * kMiB), *second = raw.post(2 * kMiB);
  constexpr uint32_t kTotal = kMiB + 1;
  const uint32_t chunk = soft::Chunking{.most_bytes = 512 * 1024, .sockets = 4}.bytes_for(kTotal);
  // The second message's chunk is there before the first message has begun: it waits.
  raw.send_chunk(3, {.sequence = 1, .total = 10, .offset = 0, .bytes = 10});
  raw.send_chunk(2, {.sequence = 0, .total = kTotal, .offset = 3 * chunk, .bytes = kTotal - 3 * chunk});
  raw.send_chunk(1, {.sequence = 0, .total = kTotal, .offset = chunk, .bytes = chunk});
  raw.send_chunk(0, {.sequence = 0, .total = kTotal, .offset = 2 * chunk, .bytes = chunk});
  int done = 1;
  EXPECT_EQ(table_.test(first, &done, nullptr), 0);
  EXPECT_EQ(done, 0);
  raw.send_chunk(1, {.sequence = 0, .total = kTotal, .offset = 0, .bytes = chunk});
  EXPECT_EQ(raw.finish(first), 0);
  EXPECT_EQ(raw.finish(second), 0);
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(first)->size, static_cast<int>(kTotal));
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(second)->size, 10);
}

TEST_F(SoftDamage, HalfAHeaderThenTheEndIsALostPeer) {
  RawSender raw(table_);
  void* request = raw.post(100);
  const auto header = RawSender::encode({.total = 100, .bytes = 100});
  raw.send(0, std::span<const std::byte>(header).first(30));
  raw.sockets = {};
  EXPECT_EQ(raw.finish(request), abi::kNcclSystemError);
}

}  // namespace
}  // namespace tcpx::testing
