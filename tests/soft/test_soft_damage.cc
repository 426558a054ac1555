// A receiving comm of the software plugin against streams that are damaged or contradict themselves.
#include <algorithm>
#include <memory>

#include "tests/support/soft_faults.h"
#include "tests/support/units.h"

namespace tcpx::testing {
namespace {

using soft::ChunkHeader;
using soft::kChunkHeaderBytes;

constexpr uint32_t kCut = RawSender::kCut;

using SoftDamage = SoftFaults;

TEST_F(SoftDamage, AFlippedByteInAChunkHeaderEndsTheConnection) {
  for (const MemoryType type : {MemoryType::kCuda, MemoryType::kHost}) {
    for (size_t i = 0; i < kChunkHeaderBytes; ++i) {
      RawSender raw(table_, type);
      void* request = raw.post(100, kPageBytes);
      auto header = encoded({.sequence = 0, .total = 100, .offset = 0, .bytes = 100, .cut = kCut});
      header[i] ^= std::byte{0x10};
      raw.send(0, header);
      raw.send(0, pattern_bytes(100, 1));
      EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << "byte " << i << ": 3 would tell the consumer to try again";
      EXPECT_TRUE(raw.target.read() == std::vector<std::byte>(raw.target.size())) << "byte " << i << ": nothing may be written";
    }
  }
}

// Complete and well-formed, but false.
TEST_F(SoftDamage, AHeaderThatLiesWritesNothingOutsideTheBuffer) {
  constexpr uint32_t kPosted = 600000, kLast = kPosted / kCut * kCut;
  struct Lie {
    const char* what;
    ChunkHeader header;
    bool is_possible;  // judging by the header alone
  };
  const Lie lies[] = {
      {"longer than posted", {.total = kPosted + 1, .offset = kLast, .bytes = kPosted + 1 - kLast, .cut = kCut}, true},
      {"longer than its chunk", {.total = kPosted, .offset = kLast, .bytes = kCut, .cut = kCut}, false},
      {"shorter than its chunk", {.total = kPosted, .offset = 0, .bytes = 1, .cut = kCut}, false},
      {"between two chunks", {.total = kPosted, .offset = 1, .bytes = kCut, .cut = kCut}, false},
      {"behind the end", {.total = kPosted, .offset = kLast + kCut, .bytes = kCut, .cut = kCut}, false},
      {"sums that wrap", {.total = 0xffffffff, .offset = 0xfffc0000, .bytes = 0x3ffff, .cut = kCut}, false},
      {"cut into nothing", {.total = kPosted, .offset = 0, .bytes = 0, .cut = 0}, false},
      {"cut between pages", {.total = kPosted, .offset = 0, .bytes = 5000, .cut = 5000}, false},
      {"cut wider than agreed", {.total = kPosted, .offset = 0, .bytes = kPosted, .cut = soft::kMaxChunkBytes}, false},
  };
  for (const Lie& lie : lies) {
    RawSender raw(table_, MemoryType::kHost);
    void* request = raw.post(kPosted, kMiB);
    raw.send(0, encoded(lie.header));
    raw.send(0, pattern_bytes(4096, 1));
    if (lie.is_possible) {  // the rest could still arrive
      EXPECT_TRUE(wait_until([&] { return logged("discarded"); })) << lie.what;
      raw.sockets = {};
    }
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << lie.what;
    EXPECT_TRUE(raw.target.read() == std::vector<std::byte>(raw.target.size())) << lie.what;
  }
}

TEST_F(SoftDamage, ChunksThatContradictTheirMessageEndTheConnection) {
  constexpr uint32_t kTotal = 600000, kLast = kTotal / kCut * kCut;
  const ChunkHeader first = {.sequence = 0, .total = kTotal, .offset = 0, .bytes = kCut, .cut = kCut};
  struct Contradiction {
    const char* what;
    ChunkHeader second;
    const char* reason;
  };
  const Contradiction contradictions[] = {
      {"another total", {.total = kTotal + 1, .offset = kCut, .bytes = kCut, .cut = kCut}, "bytes now has"},
      {"a finer cut", {.total = kTotal, .offset = kCut, .bytes = kCut / 2, .cut = kCut / 2}, "is now cut every 131072"},
      {"as many chunks as there can be",
       {.total = kTotal, .offset = kCut, .bytes = kPageBytes, .cut = kPageBytes},
       "is now cut every 4096"},
      {"a coarser cut", {.total = kTotal, .offset = kLast, .bytes = kTotal - kLast, .cut = 2 * kCut}, "is now cut every 524288"},
      {"the same offset twice", first, "came twice"}};
  for (const auto& [what, second, reason] : contradictions) {
    RawSender raw(table_);
    void* request = raw.post(2 * kMiB);
    raw.send_chunk(0, first);
    raw.send(0, encoded(second));  // after it; another socket might be read earlier
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << what;
    EXPECT_TRUE(logged(reason)) << what;
  }
  RawSender raw(table_);
  void *done = raw.post(100), *next = raw.post(100);
  const ChunkHeader finished = {.sequence = 0, .total = 100, .offset = 0, .bytes = 100, .cut = kCut};
  raw.send_chunk(0, finished);
  EXPECT_EQ(raw.finish(done), 0);
  raw.send(1, encoded(finished));
  EXPECT_EQ(raw.finish(next), abi::kNcclSystemError) << "a chunk of a message that is over";
}

TEST_F(SoftDamage, ChunksInAnyOrderOverAnySocketsMakeTheMessage) {
  RawSender raw(table_);
  void *first = raw.post(2 * kMiB), *second = raw.post(2 * kMiB);
  constexpr uint32_t kTotal = kMiB + 1;
  // The second message's chunk is there before the first message has begun: it waits.
  raw.send_chunk(3, {.sequence = 1, .total = 10, .offset = 0, .bytes = 10, .cut = kPageBytes});
  for (uint32_t offset = (kTotal - 1) / kCut * kCut; offset > 0; offset -= kCut) {
    raw.send_chunk(offset / kCut % 3,
                   {.sequence = 0, .total = kTotal, .offset = offset, .bytes = std::min(kCut, kTotal - offset), .cut = kCut});
  }
  int done = 1;
  EXPECT_EQ(table_.test(first, &done, nullptr), 0);
  EXPECT_EQ(done, 0);
  raw.send_chunk(1, {.sequence = 0, .total = kTotal, .offset = 0, .bytes = kCut, .cut = kCut});
  EXPECT_EQ(raw.finish(first), 0);
  EXPECT_EQ(raw.finish(second), 0);
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(first)->size, static_cast<int>(kTotal));
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(second)->size, 10);
}

// There is no internal deadline: a slow or stopped peer looks the same. Callers have one of their own.
TEST_F(SoftDamage, HalfARecordThenSilenceIsWaitedForWithoutHoldingAnybodyUp) {
  const auto header = encoded({.total = 100, .bytes = 100, .cut = kCut});
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
