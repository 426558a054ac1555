// Endpoints over a plugin with the habits that GPUDirect-TCPX has about memory: GPU memory in whole pages only, nothing received
// into host memory, and registrations that are refused. Host memory stands in for a GPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "base/text.h"
#include "lanes/net/net_lane.h"
#include "measure/pattern.h"
#include "tests/support/counting_memory_ops.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/process_state.h"
#include "tests/support/units.h"
#include "tests/support/verbs.h"

namespace tcpx::testing {
namespace {


using Verb = OperationKind;

class EndpointSteered : public EndpointTest {
 protected:
  void SetUp() override {
    if (make_machine_memory_ops()->has_gpu())
      GTEST_SKIP() << "host memory cannot stand in for a GPU's: SteeredGpu is the same with one";
  }
  /// Connects `a_` and `b_` over such a plugin.
  void start(FaultPolicy policy = {}) {
    ASSERT_NO_FATAL_FAILURE(set_up({.memory = MemoryType::kCuda}));
    below_ = plugin_;
    policy.vendor_rules = true;
    auto faulty = std::make_unique<FaultyNetPlugin>(*below_, std::move(policy));
    faulty_ = faulty.get();
    plugin_ = std::make_shared<LockedNetPlugin>(std::move(faulty));
    ASSERT_NO_FATAL_FAILURE(make_pair());
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
  }

  static std::vector<LocalRange> registered(const Side& side, const std::vector<std::span<std::byte>>& spans, MemoryType type) {
    std::vector<LocalRange> ranges;
    for (const auto& span : spans) {
      const auto id = side->register_memory(span.data(), span.size(), type);
      EXPECT_TRUE(id.is_ok()) << id.status().to_string();
      ranges.push_back({id.is_ok() ? *id : MemoryId{}, span.data(), span.size()});
    }
    return ranges;
  }

  std::pair<Status, Status> move(Verb verb, std::vector<LocalRange> from, std::vector<LocalRange> to) {
    return testing::move(verb, {*a_.endpoint, a_.conn, std::move(from)}, {*b_.endpoint, b_.conn, std::move(to)});
  }
  /// All of it arrives, and nothing beside it.
  void expect_moves(Verb verb, size_t bytes, size_t from_off, size_t to_off, MemoryType from_type, MemoryType to_type) {
    GuardedBuffer source(bytes + from_off), target(bytes + to_off);
    fill_pattern(source.span(), ++seed_);
    const auto part = [](GuardedBuffer& buffer, size_t off) { return buffer.span().subspan(off); };
    const auto from = registered(a_, {part(source, from_off)}, from_type), to = registered(b_, {part(target, to_off)}, to_type);
    const auto [sent, received] = move(verb, from, to);
    SCOPED_TRACE(concat(name_of(verb), " of ", bytes));
    EXPECT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
    EXPECT_TRUE(std::ranges::equal(part(source, from_off), part(target, to_off)));
    EXPECT_TRUE(target.guards_intact());
    EXPECT_TRUE(a_->deregister(from[0].memory).is_ok() && b_->deregister(to[0].memory).is_ok());
  }

  std::shared_ptr<NetPlugin> below_;
  FaultyNetPlugin* faulty_ = nullptr;
  uint64_t seed_ = 0;
};

TEST_F(EndpointSteered, A2_TwentyOddSizesAndAlignmentsOfGpuMemory) {
  ASSERT_NO_FATAL_FAILURE(start());
  const std::pair<size_t, size_t> odd[] = {
      {4097, 0},       {5000, 1},        {8191, 4095},   {8192, 1},         {12289, 16},    {16383, 2048},     {65537, 4},
      {100000, 3},     {131071, 77},     {200001, 4000}, {262143, 8},       {300000, 512},  {524289, 5},       {777777, 4093},
      {1000003, 1000}, {kMiB - 1, 4094}, {kMiB + 1, 1},  {3 * kMiB + 7, 9}, {4 * kMiB, 13}, {5 * kMiB - 3, 2},
  };
  static_assert(std::size(odd) == 20);
  size_t i = 0;
  for (const auto& [bytes, off] : odd)
    expect_moves(kVerbs[i++ % 3], bytes, off, 4096 - off, MemoryType::kCuda, MemoryType::kCuda);
  EXPECT_EQ(faulty_->refusals(), 0u);
}

TEST_F(EndpointSteered, A2_WhatIsRefusedAsItIsGoesThroughStaging) {
  GuardedBuffer source(3 * kMiB + 5), target(3 * kMiB + 5), fine_source(3 * kMiB + 5), fine_target(3 * kMiB + 5);
  const auto lies_in = [](GuardedBuffer& buffer, const void* data, size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(data);
    return first < buffer.data() + buffer.size() && buffer.data() < first + bytes;
  };
  ASSERT_NO_FATAL_FAILURE(start({.refuses = [&](const void* data, size_t bytes, MemoryType) {
    return lies_in(source, data, bytes) || lies_in(target, data, bytes);
  }}));
  for (const bool in_two : {false, true}) {
    const auto parts = [in_two](GuardedBuffer& buffer) {
      const auto all = buffer.span();
      return in_two ? std::vector{all.first(kMiB), all.subspan(kMiB)} : std::vector{all};
    };
    for (const auto& [from, to] : {std::pair(&source, &fine_target), {&fine_source, &target}, {&source, &target}}) {
      for (const Verb verb : kVerbs) {
        to->clear();
        fill_pattern(from->span(), ++seed_);
        const auto [sent, received] =
            move(verb, registered(a_, parts(*from), MemoryType::kCuda), registered(b_, parts(*to), MemoryType::kCuda));
        ASSERT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
        EXPECT_TRUE(verify_pattern(to->span(), seed_).is_ok()) << name_of(verb);
        EXPECT_TRUE(to->guards_intact());
      }
    }
  }
  EXPECT_GE(faulty_->refusals(), 2u);
  EXPECT_LE(faulty_->refusals(), 6u) << "a lane asks for a region once";
}

/// A driver that gives no dma-buf of anything.
class NoExports final : public CountingMemoryOps {
 public:
  using CountingMemoryOps::CountingMemoryOps;
  Status check_export(int, const Pages& pages) override {
    EXPECT_TRUE(reinterpret_cast<uintptr_t>(pages.begin) % kPageBytes == 0 && pages.bytes % kPageBytes == 0);
    ++asked;
    return Status(Code::kUnsupported, "export GPU memory", "refused by the test");
  }
  std::atomic<int> asked = 0;
};

// The plugin would not notice, and take another descriptor for that of the memory.
TEST_F(EndpointSteered, A2_WhatTheDriverDoesNotExportNeverReachesThePlugin) {
  const auto below = make_host_memory_ops();
  const auto memory = std::make_shared<NoExports>(*below);
  memory_ = memory;
  ASSERT_NO_FATAL_FAILURE(start({.refuses = [](const void*, size_t bytes, MemoryType) { return bytes != kStagingBytes; }}));
  for (const Verb verb : kVerbs) expect_moves(verb, 2 * kMiB + 3, 5, 7, MemoryType::kCuda, MemoryType::kCuda);
  EXPECT_EQ(memory->asked, 6);
  EXPECT_EQ(faulty_->refusals(), 0u) << "the plugin has been given staging buffers alone";
  a_.reset();
  b_.reset();
  memory_.reset();
}

TEST_F(EndpointSteered, A2_ARefusalFailsItsOperationAtBothEndsAndNoOther) {
  GuardedBuffer bad(2 * kMiB + 5), good(2 * kMiB + 5);  // on pages of their own
  std::atomic<bool> refusing{true};
  ASSERT_NO_FATAL_FAILURE(start({.refuses = [&](const void* data, size_t bytes, MemoryType) {
    const auto* const first = static_cast<const std::byte*>(data);
    // Refused memory cannot be staged either.
    return refusing && (bytes == kStagingBytes || (first < bad.data() + bad.size() && bad.data() < first + bytes));
  }}));
  for (const Verb verb : kVerbs) {
    for (const bool source_is_bad : {true, false}) {
      SCOPED_TRACE(concat(name_of(verb), source_is_bad ? " from" : " to", " bad memory"));
      const auto from = registered(a_, {(source_is_bad ? bad : good).span()}, MemoryType::kCuda);
      const auto to = registered(b_, {(source_is_bad ? good : bad).span()}, MemoryType::kCuda);
      const auto [sent, received] = move(verb, from, to);
      const bool taken_back = verb == Verb::kSend && source_is_bad;
      EXPECT_EQ(sent.code(), Code::kPlugin) << sent.to_string();
      EXPECT_EQ(received.code(), taken_back ? Code::kCancelled : Code::kPlugin) << received.to_string();
      EXPECT_NE(sent.detail().find("refused by the test"), std::string::npos) << sent.to_string();
      expect_moves(verb, 2 * kMiB + 1, 1, 2, MemoryType::kCuda, MemoryType::kCuda);
    }
  }
  // Memory for staging is there again: refused memory goes that way from now on.
  refusing = false;
  for (const Verb verb : kVerbs) {
    fill_pattern(bad.span(), ++seed_);
    const auto [sent, received] =
        move(verb, registered(a_, {bad.span()}, MemoryType::kCuda), registered(b_, {good.span()}, MemoryType::kCuda));
    EXPECT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
    EXPECT_TRUE(verify_pattern(good.span(), seed_).is_ok());
  }
}

TEST_F(EndpointSteered, A3_HostMemoryBeyondTheInlineLimitMovesOverFlowsThatAreSteeredToTheGpu) {
  ASSERT_NO_FATAL_FAILURE(start());
  constexpr MemoryType kTypes[] = {MemoryType::kHost, MemoryType::kCuda};
  for (const Verb verb : kVerbs) {
    for (const MemoryType from : kTypes) {
      for (const MemoryType to : kTypes) {
        for (const size_t bytes : {size_t{100}, size_t{4097}, kMiB + 3}) expect_moves(verb, bytes, 3, 5, from, to);
      }
    }
  }
  // More than the staging buffers hold at once.
  expect_moves(Verb::kWrite, (kIsChecked ? 3 : 20) * kMiB + 1, 3, 5, MemoryType::kHost, MemoryType::kHost);
  EXPECT_EQ(faulty_->refusals(), 0u) << "no receive was posted with host memory";
}

TEST_F(EndpointSteered, A3_VectorsOfHostMemoryMoveOverFlowsThatAreSteeredToTheGpu) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (const size_t each : {size_t{3001}, 300 * kKiB + 1}) {
    std::vector<std::byte> source(24 * each), target(24 * each);
    std::vector<std::span<std::byte>> from, to;
    for (size_t i = 0; i < 24; ++i) {
      from.push_back(std::span(source).subspan(i * each, each));
      to.push_back(std::span(target).subspan(i * each, each));
    }
    for (const Verb verb : kVerbs) {
      fill_pattern(source, ++seed_);
      const auto [sent, received] = move(verb, registered(a_, from, MemoryType::kHost), registered(b_, to, MemoryType::kHost));
      EXPECT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
      EXPECT_TRUE(verify_pattern(target, seed_).is_ok()) << name_of(verb) << " of ranges of " << each;
    }
  }
  EXPECT_EQ(faulty_->refusals(), 0u);
}

}  // namespace
}  // namespace tcpx::testing
