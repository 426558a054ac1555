// A receiving comm of the software plugin against streams that are damaged or contradict themselves.
#include <algorithm>
#include <memory>

#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

using soft::ChunkHeader;
using soft::kChunkHeaderBytes;

constexpr size_t kMiB = size_t{1} << 20;

using SoftDamage = SoftFaults;

TEST_F(SoftDamage, AFlippedByteInAChunkHeaderEndsTheConnection) {
  for (const MemoryType type : {MemoryType::kCuda, MemoryType::kHost}) {
    for (size_t i = 0; i < kChunkHeaderBytes; ++i) {
      RawSender raw(table_, type);
      void* request = raw.post(100, kPageBytes);
      auto header = RawSender::encode({.sequence = 0, .total = 100, .offset = 0, .bytes = 100});
      header[i] ^= std::byte{0x10};
      raw.send(0, header);
      raw.send(0, pattern_bytes(100, 1));
      EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << "byte " << i << ": 3 would tell the consumer to try again";
      EXPECT_TRUE(raw.target.read() == std::vector<std::byte>(raw.target.size())) << "byte " << i << ": nothing may be written";
    }
  }
}

// Whole and well-formed, but not true.
TEST_F(SoftDamage, AHeaderThatLiesWritesNothingOutsideTheBuffer) {
  constexpr uint32_t kPosted = 600000;
  const uint32_t chunk = RawSender(table_).chunk_bytes(kPosted), last = kPosted / chunk * chunk;
  struct Lie {
    const char* what;
    ChunkHeader header;
    bool is_possible;  // as far as the header goes
  };
  const Lie lies[] = {
      {"longer than posted", {.total = kPosted + 1, .offset = last, .bytes = kPosted + 1 - last}, true},
      {"longer than its chunk", {.total = kPosted, .offset = last, .bytes = chunk}, false},
      {"shorter than its chunk", {.total = kPosted, .offset = 0, .bytes = 1}, false},
      {"between two chunks", {.total = kPosted, .offset = 1, .bytes = chunk}, false},
      {"behind the end", {.total = kPosted, .offset = last + chunk, .bytes = chunk}, false},
      {"sums that wrap", {.total = 0xffffffff, .offset = 0xfff80000, .bytes = 0x7ffff}, false},
  };
  for (const Lie& lie : lies) {
    RawSender raw(table_, MemoryType::kHost);
    void* request = raw.post(kPosted, kMiB);
    raw.send(0, RawSender::encode(lie.header));
    raw.send(0, pattern_bytes(4096, 1));
    if (lie.is_possible) {  // what is missing could still come
      EXPECT_TRUE(wait_until([&] { return logged("discarded"); })) << lie.what;
      raw.sockets = {};
    }
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << lie.what;
    EXPECT_TRUE(raw.target.read() == std::vector<std::byte>(raw.target.size())) << lie.what;
  }
}

TEST_F(SoftDamage, ChunksThatContradictTheirMessageEndTheConnection) {
  struct Contradiction {
    const char* what;
    uint32_t more_bytes, chunk;  // of the second header, against the first
    const char* logged;
  };
  for (const auto& [what, more_bytes, chunk, reason] :
       {Contradiction{"another total", 1, 1, "bytes now has"}, Contradiction{"the same offset twice", 0, 0, "came twice"}}) {
    RawSender raw(table_);
    void* request = raw.post(2 * kMiB);
    constexpr uint32_t kTotal = 600000;
    const uint32_t bytes = raw.chunk_bytes(kTotal);
    raw.send_chunk(0, {.sequence = 0, .total = kTotal, .offset = 0, .bytes = bytes});
    raw.send(1, RawSender::encode({.sequence = 0, .total = kTotal + more_bytes, .offset = chunk * bytes, .bytes = bytes}));
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << what;
    EXPECT_TRUE(logged(reason)) << what;
  }
  RawSender raw(table_);
  void *done = raw.post(100), *next = raw.post(100);
  const ChunkHeader finished = {.sequence = 0, .total = 100, .offset = 0, .bytes = 100};
  raw.send_chunk(0, finished);
  EXPECT_EQ(raw.finish(done), 0);
  raw.send(1, RawSender::encode(finished));
  EXPECT_EQ(raw.finish(next), abi::kNcclSystemError) << "a chunk of a message that is over";
}

TEST_F(SoftDamage, ChunksInAnyOrderOverAnySocketsMakeTheMessage) {
  RawSender raw(table_);
  void *first = raw.post(2 * kMiB), *second = raw.post(2 * kMiB);
  constexpr uint32_t kTotal = kMiB + 1;
  const uint32_t chunk = raw.chunk_bytes(kTotal);
  ASSERT_LT(chunk, kTotal);
  // The second message's chunk is there before the first message has begun: it waits.
  raw.send_chunk(3, {.sequence = 1, .total = 10, .offset = 0, .bytes = 10});
  for (uint32_t offset = (kTotal - 1) / chunk * chunk; offset > 0; offset -= chunk) {
    raw.send_chunk(offset / chunk % 3,
                   {.sequence = 0, .total = kTotal, .offset = offset, .bytes = std::min(chunk, kTotal - offset)});
  }
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

// There is no deadline inside: a peer that is slow, or stopped, looks the same. Callers have one of their own.
TEST_F(SoftDamage, HalfARecordThenSilenceIsWaitedForWithoutHoldingAnybodyUp) {
  const auto header = RawSender::encode({.total = 100, .bytes = 100});
  std::vector<std::byte> record(header.begin(), header.end());
  const auto payload = pattern_bytes(100, 7);
  record.insert(record.end(), payload.begin(), payload.end());
  struct Half {
    size_t sent;
    RawSender raw;
    void* request;
    explicit Half(const abi::NetTable_v7& table, size_t bytes)
        : sent(bytes), raw(table, MemoryType::kHost), request(raw.post(100)) {}
  };
  std::vector<std::unique_ptr<Half>> halves;
  for (const size_t sent : {size_t{1}, size_t{30}, kChunkHeaderBytes, kChunkHeaderBytes + 60}) {
    halves.push_back(std::make_unique<Half>(table_, sent));
    halves.back()->raw.send(0, std::span(record).first(sent));
  }
  EXPECT_FALSE(wait_until(
      [&] {
        return std::any_of(halves.begin(), halves.end(), [&](const auto& half) {
          int done = 0;
          return table_.test(half->request, &done, nullptr) != 0 || done != 0;
        });
      },
      std::chrono::milliseconds(700)))
      << "neither an error nor done";
  Handle handle;
  void* listener = listen(handle);
  expect_good_client_served(listener, handle);
  EXPECT_EQ(table_.close_listen(listener), 0);
  halves.erase(halves.begin());  // closing in the middle of a record is clean
  for (const auto& half : halves) {
    half->raw.send(0, std::span(record).subspan(half->sent));
    EXPECT_EQ(half->raw.finish(half->request), 0);
    std::vector<std::byte> arrived = half->raw.target.read();
    arrived.resize(payload.size());
    EXPECT_TRUE(arrived == payload) << half->sent;
  }
}

}  // namespace
}  // namespace tcpx::testing
