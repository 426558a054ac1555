// A program written for the RDMA engine of UCCL compiles against our header alone, and moves its bytes; so does each of its calls.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <string>
#include <vector>

#include "measure/pattern.h"
#include "tcpx/uccl.h"
#include "tests/support/endpoint_pair.h"

using namespace tcpx::uccl;  // NOLINT(google-build-using-namespace): as in a program that moves over
#include "tests/support/engine_program.h"

namespace tcpx::testing {
namespace {

TEST(EngineProgram, MovesOverByChangingAnInclude) {
  auto first = make_endpoint(), second = make_endpoint();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  uccl::Endpoint here(std::move(first)), there(std::move(second));
  std::vector<char> ours(1 << 20), theirs(ours.size());
  for (size_t i = 0; i < ours.size(); ++i) ours[i] = static_cast<char>(i * 131 >> 7);
  const std::string failed = engine_program<uccl::Endpoint, FifoItem>(here, there, ours, theirs);
  EXPECT_EQ(failed, "") << uccl::Endpoint::last_error().to_string();
}

/// Two connected endpoints under the names of the engine, each with memory of two regions.
class EngineCalls : public ::testing::Test {
 protected:
  static constexpr size_t kHalf = 100'000;
  EngineCalls() {
    const auto [ip, port, gpu] = uccl::Endpoint::parse_metadata(b.get_metadata());
    std::string from;
    int from_gpu = -1;
    auto accepted = std::async(std::launch::async, [&] { return b.accept(from, from_gpu, to_a); });
    EXPECT_TRUE(a.connect(ip, gpu, port, to_b)) << uccl::Endpoint::last_error().to_string();
    EXPECT_TRUE(accepted.get());
    EXPECT_EQ(from, "127.0.0.1");
    EXPECT_EQ(from_gpu, 0);
    EXPECT_TRUE(a.regv({ours[0], ours[1]}, sizes, out));
    EXPECT_TRUE(b.regv({theirs[0], theirs[1]}, sizes, in));
    std::vector<char> texts(3 * kRemoteSlotBytes);
    char *const first = texts.data(), *const second = first + kRemoteSlotBytes, *const third = second + kRemoteSlotBytes;
    EXPECT_TRUE(b.advertisev(to_a, in, theirs, sizes, {first, second}, 2));
    EXPECT_TRUE(b.advertise(to_a, in[0], theirs[0], kHalf, third));
    slots.resize(2);
    uccl::deserialize_fifo_item(first, &slots[0]);
    uccl::deserialize_fifo_item(second, &slots[1]);
    uccl::deserialize_fifo_item(third, &slot);
  }
  bool ends(uccl::Endpoint& side, uint64_t transfer) {
    bool done = false, good = false;
    const bool ended = wait_until([&] {
      good = side.poll_async(transfer, &done);
      return done;
    });
    return ended && good;
  }

  uccl::Endpoint a{make_endpoint()}, b{make_endpoint()};
  uint64_t to_b = 0, to_a = 0, id = 0;
  std::vector<std::byte> at_a = std::vector<std::byte>(2 * kHalf), at_b = at_a;
  std::vector<void*> ours = {at_a.data(), at_a.data() + kHalf}, theirs = {at_b.data(), at_b.data() + kHalf};
  const std::vector<const void*> source = {ours[0], ours[1]};
  const std::vector<size_t> sizes = {kHalf, kHalf};
  std::vector<uint64_t> out, in;
  std::vector<uccl::FifoItem> slots;
  uccl::FifoItem slot;
};

TEST_F(EngineCalls, EachMovesItsBytes) {
  struct Case {
    const char* name;
    bool reads, whole;  ///< whole: both regions
    std::function<bool()> call;
  };
  const Case cases[] = {
      {"send", false, false,
       [&] { return b.recv_async(to_a, in[0], theirs[0], kHalf, &id) && a.send(to_b, out[0], source[0], kHalf) && ends(b, id); }},
      {"recv", false, false,
       [&] { return a.send_async(to_b, out[0], source[0], kHalf, &id) && b.recv(to_a, in[0], theirs[0], kHalf) && ends(a, id); }},
      {"sendv", false, true,
       [&] { return b.recvv_async(to_a, in, theirs, sizes, 2, &id) && a.sendv(to_b, out, source, sizes, 2) && ends(b, id); }},
      {"recvv", false, true,
       [&] { return a.sendv_async(to_b, out, source, sizes, 2, &id) && b.recvv(to_a, in, theirs, sizes, 2) && ends(a, id); }},
      {"write", false, false, [&] { return a.write(to_b, out[0], ours[0], kHalf, slot); }},
      {"write_async", false, false, [&] { return a.write_async(to_b, out[0], ours[0], kHalf, slot, &id) && ends(a, id); }},
      {"writev", false, true, [&] { return a.writev(to_b, out, ours, sizes, slots, 2); }},
      {"writev_async", false, true, [&] { return a.writev_async(to_b, out, ours, sizes, slots, 2, &id) && ends(a, id); }},
      {"read", true, false, [&] { return a.read(to_b, out[0], ours[0], kHalf, slot); }},
      {"read_async", true, false, [&] { return a.read_async(to_b, out[0], ours[0], kHalf, slot, &id) && ends(a, id); }},
      {"readv", true, true, [&] { return a.readv(to_b, out, ours, sizes, slots, 2); }},
      {"readv_async", true, true, [&] { return a.readv_async(to_b, out, ours, sizes, slots, 2, &id) && ends(a, id); }},
  };
  uint64_t seed = 0;
  for (const auto& [name, reads, whole, call] : cases) {
    fill_pattern(reads ? at_b : at_a, ++seed);
    EXPECT_TRUE(call()) << name << ": " << uccl::Endpoint::last_error().to_string();
    EXPECT_TRUE(verify_pattern(std::span(reads ? at_a : at_b).first(whole ? 2 * kHalf : kHalf), seed).is_ok()) << name;
  }
  EXPECT_TRUE(a.send_notif(to_b, {.name = "n", .msg = "m"}));
  EXPECT_TRUE(wait_until([&] { return !b.get_notifs().empty(); }));
}

TEST_F(EngineCalls, TellWhyTheyRefuse) {
  EXPECT_EQ(std::get<1>(uccl::Endpoint::parse_metadata({1, 2, 3})), 0);
  EXPECT_EQ(slot.id, slots[0].id) << "the same range has the same slot";
  EXPECT_FALSE(a.write(to_b, out[0], ours[0], kHalf + 1, slot));
  EXPECT_EQ(uccl::Endpoint::last_error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(a.writev(to_b, out, ours, sizes, slots, 3)) << "more than the vectors hold";
  EXPECT_EQ(uccl::Endpoint::last_error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(a.dereg(999));
  EXPECT_EQ(uccl::Endpoint::last_error().code(), Code::kNotFound);
  EXPECT_FALSE(a.send(999, out[0], source[0], 1));
  bool done = false;
  EXPECT_FALSE(a.poll_async(999, &done));
  EXPECT_TRUE(done) << "so that loops end";
  for (const uint64_t region : out) EXPECT_TRUE(a.dereg(region));
  EXPECT_TRUE(a.remove_remote_endpoint(to_b));
  EXPECT_FALSE(a.remove_remote_endpoint(to_b));
}

}  // namespace
}  // namespace tcpx::testing
