// Lanes with checksums, and a bit flipped where a job's bytes are between its ends: in the ring of one host, or in what a plugin has
// delivered into its bounce pool. Also in the words that say where they are: the ring's counters, and the plugin's fragments.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "tests/lanes/two_ends.h"
#include "tests/support/expect_log.h"
#include "tests/support/flip_seed.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

const Setting kFlippedSettings[] = {
    {.name = "Ring", .on_host = true, .way = Way::kRing, .sums = true},
    {.name = "Plugin", .sums = true, .gpu = true},
    {.name = "EagerPlugin", .eager = true, .sums = true, .gpu = true},
};

class LaneFlips : public ::testing::TestWithParam<Setting> {
 protected:
  static constexpr size_t kMostBytes = 40'000;
  static constexpr int kManySteps = 1000;  // more than most jobs take

  void SetUp() override { allow_log("TCPX_E_"); }
  void make_ends() {
    ends_ = std::make_unique<TwoEnds>(GetParam());
    for (std::byte& byte : ends_->sender.memory) byte = static_cast<std::byte>(random_());
    ends_->network().rewrite = [this](uint64_t, ReceivedMessage&, std::vector<Fragment>& list) { flip_in_pool(list); };
    seen_ = 0;
  }
  void flip(void* at, uint64_t bit) {
    static_cast<std::byte*>(at)[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    due_ = false;
  }
  void flip_in_pool(std::vector<Fragment>& list) {
    if (!due_ || list.empty() || random_() % 3 == 0) return;
    Fragment& fragment = list[random_() % list.size()];
    if (in_words_) return flip(&fragment, random_() % (8 * sizeof fragment));
    auto* const pool = const_cast<std::byte*>(ends_->network().pool().base);
    flip(pool + fragment.src_off, random_() % (8 * uint64_t{fragment.len}));
  }
  // Between two steps: the sender has put there what the receiver has not looked at.
  void flip_in_ring() {
    if (GetParam().way != Way::kRing) return;
    BulkRing& ring = ends_->sender.host.area.bulk_ring(true);
    const uint64_t written = ring.written.load(), before = std::exchange(seen_, written);
    if (!due_ || written == before || random_() % 3 == 0) return;
    if (!in_words_) return flip(&ring.bytes[(before + random_() % (written - before)) % BulkRing::kBytes], random_() % 8);
    (random_() % 2 == 0 ? ring.written : ring.read).fetch_xor(uint64_t{1} << random_() % 64);
    due_ = false;
  }
  bool has_failed(const TwoEnds::End& end) const {
    const auto& all = end.lanes->all();
    return std::any_of(all.begin(), all.end(), [](const Lane* lane) { return !lane->status().is_ok(); });
  }
  bool both_ended() const { return !ends_->sender.ended.empty() && !ends_->receiver.ended.empty(); }
  /// @return how the job ended at the receiver
  std::string move(uint64_t number);

  uint64_t seed_ = next_flip_seed();
  std::mt19937_64 random_{seed_};
  std::unique_ptr<TwoEnds> ends_;
  uint64_t seen_ = 0;      // the ring's counter of bytes written
  bool due_ = false;       // a bit is to be flipped
  bool in_words_ = false;  // not in the bytes
};
INSTANTIATE_TEST_SUITE_P(Ways, LaneFlips, ::testing::ValuesIn(kFlippedSettings),
                         [](const auto& setting) { return std::string(setting.param.name); });

std::string LaneFlips::move(uint64_t number) {
  const size_t bytes = 1 + random_() % kMostBytes;
  const Parts from = random_parts(bytes, kMostBytes / 2, random_), to = random_parts(bytes, kMostBytes / 2, random_);
  std::fill_n(ends_->receiver.memory.begin(), kMostBytes + 64, std::byte{0xee});
  EXPECT_TRUE(ends_->begin(from, to, number).is_ok());
  int steps = 0;  // since a word has been wrong
  EXPECT_TRUE(wait_until([&] {
    ends_->step();
    flip_in_ring();
    if (in_words_ && !due_) ++steps;
    return both_ended() || has_failed(ends_->sender) || has_failed(ends_->receiver) || steps > kManySteps;
  }));
  // A connection ends with a lane, and an operation at its deadline.
  const bool failed = has_failed(ends_->sender) || has_failed(ends_->receiver);
  if (!both_ended()) {
    for (TwoEnds::End* end : {&ends_->sender, &ends_->receiver}) end->lanes->fail(Status(Code::kTimeout, "test", "deadline"));
  }
  EXPECT_TRUE(wait_until([&] {
    ends_->step();
    return both_ended();
  }));
  const Status status = ends_->receiver.ended.empty() ? Status() : ends_->receiver.ended[0].status;
  std::vector<std::byte> sent, arrived;
  for (const auto& [offset, part] : from)
    sent.insert(sent.end(), &ends_->sender.memory[offset], &ends_->sender.memory[offset + part]);
  for (const auto& [offset, part] : to)
    arrived.insert(arrived.end(), &ends_->receiver.memory[offset], &ends_->receiver.memory[offset + part]);
  EXPECT_TRUE(!status.is_ok() || sent == arrived) << number << " is done with other bytes than were sent";
  EXPECT_TRUE(std::all_of(&ends_->receiver.memory[bytes], &ends_->receiver.memory[kMostBytes + 64],
                          [](std::byte byte) { return byte == std::byte{0xee}; }))
      << number << " wrote beside its ranges";
  ends_->sender.ended.clear();
  ends_->receiver.ended.clear();
  if (status.is_ok()) return "harmless";
  if (status.code() == Code::kCorrupt) return "job corrupt";
  return failed ? "lane failed" : "deadline passed";
}

TEST_P(LaneFlips, NoFlippedBitBetweenTheEndsIsDoneWithWrongBytes) {
  std::map<std::string, size_t> outcomes;
  uint64_t number = 0;
  for (size_t flips = 0; flips < kFlips && !HasFailure();) {
    if (ends_ == nullptr) make_ends();
    in_words_ = random_() % 4 == 0;
    due_ = true;
    const std::string outcome = move(++number);
    const bool flipped = !std::exchange(due_, false);
    EXPECT_TRUE(flipped || outcome == "harmless") << outcome << " though nothing was flipped";
    if (flipped) {
      EXPECT_TRUE(in_words_ || outcome == "job corrupt") << outcome;
      ++outcomes[concat(in_words_ ? "words: " : "bytes: ", outcome)];
      ++flips;
    }
    if (in_words_ && flipped) ends_.reset();
  }
  print_flips(seed_, outcomes);
}

}  // namespace
}  // namespace tcpx::testing
