// Memory longer than one registration: every chunk must lie within the registration that it is posted with. The fake plugin
// compares; nothing is sent, so that addresses are all that the memory needs.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/support/pipeline_fixture.h"

namespace tcpx {
namespace {

using testing::Call;
using testing::Pipeline;
using testing::PipelineOptions;

constexpr size_t kGiB = size_t{1} << 30;

/// Addresses without memory behind them.
class Addresses {
 public:
  explicit Addresses(size_t bytes)
      : bytes_(bytes), begin_(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Addresses() { ::munmap(begin_, bytes_); }
  Addresses(const Addresses&) = delete;
  void* begin() const { return begin_ == MAP_FAILED ? nullptr : begin_; }

 private:
  size_t bytes_;
  void* begin_;
};

/// Posts all receives of one transfer. @return what the plugin or the connection said against it
Status post(size_t region, size_t offset, size_t bytes, uint32_t chunk_bytes) {
  PipelineOptions options;
  options.recv.chunk_bytes = options.send.chunk_bytes = chunk_bytes;
  Pipeline p(options);
  const Addresses addresses(region);
  if (addresses.begin() == nullptr) return Status(Code::kSystem, "mmap", "no addresses");
  const auto memory = p.recv->register_memory(addresses.begin(), region, MemoryType::kCuda);
  if (!memory.is_ok()) return memory.status();
  const auto id = p.recv->submit({.memory = *memory, .offset = offset, .bytes = bytes});
  if (!id.is_ok()) return id.status();
  p.recv->progress();
  const uint64_t chunks = ChunkPlan::make(bytes, chunk_bytes)->count();
  EXPECT_EQ(p.fake.calls(Call::kRecv), chunks) << "the window takes them all";
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
  Status status = p.recv->status();
  p.recv.reset();  // before its memory
  return status;
}

TEST(ConnectionRegistrations, ChunksAroundEveryBoundaryLieWithinTheirRegistration) {
  for (const uint32_t chunk : {uint32_t{512 * 1024}, static_cast<uint32_t>(kMaxRequestBytes)}) {
    for (const size_t region : {kGiB - 1, kGiB, kGiB + 1, kGiB + kMaxRequestBytes, 2 * kGiB, 3 * kGiB + 4097}) {
      for (size_t boundary = 0; boundary <= region; boundary += kGiB) {
        for (const ptrdiff_t shift :
             {-2 * ptrdiff_t{chunk}, -ptrdiff_t{chunk}, 1 - ptrdiff_t{chunk}, ptrdiff_t{-1}, ptrdiff_t{0}, ptrdiff_t{1}}) {
          const auto begin = static_cast<ptrdiff_t>(boundary) + shift;
          if (begin < 0 || static_cast<size_t>(begin) > region) continue;
          const auto offset = static_cast<size_t>(begin);
          const size_t bytes = std::min(region - offset, size_t{4} * chunk + 1);
          const Status status = post(region, offset, bytes, chunk);
          ASSERT_TRUE(status.is_ok()) << region << " bytes, chunk at " << offset << ": " << status.to_string();
        }
      }
      const Status at_the_end = post(region, region, 0, chunk);
      ASSERT_TRUE(at_the_end.is_ok()) << "nothing at the end of " << region << " bytes: " << at_the_end.to_string();
    }
  }
}

TEST(ConnectionRegistrations, MemoryThatWasNeverRegisteredHereIsRefused) {
  Pipeline p;
  std::byte anything[16];
  EXPECT_EQ(p.recv->submit({}).status().code(), Code::kOk) << "nothing, at the begin of the first registration";
  EXPECT_EQ(p.recv->submit({.memory = {.data = anything, .bytes = 16, .first_handle = 1}, .bytes = 16}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(p.recv->submit({.memory = {.data = anything, .bytes = 0, .first_handle = 7}}).status().code(),
            Code::kInvalidArgument);
  const auto [raw_send, raw_recv] = p.fake.make_wire();
  auto bare = Connection::create(Comm(p.fake, raw_recv), {}, p.clock).value();
  EXPECT_EQ(bare->submit({}).status().code(), Code::kInvalidArgument) << "nothing is registered at all";
  EXPECT_TRUE(p.fake.close(raw_send).is_ok());
}

}  // namespace
}  // namespace tcpx
