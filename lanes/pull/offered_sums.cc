#include "lanes/pull/offered_sums.h"

#include <algorithm>
#include <utility>

#include "lanes/pull/sources.h"

namespace tcpx {
namespace {

// False where somebody else holds the memory, who may let go of it before the GPU has read it.
bool is_held(std::span<const HeldRange> ranges, std::span<const RegionUse> uses) {
  const Region* held = nullptr;  // of the range before: often the same again
  for (const HeldRange& range : ranges) {
    const Region* const region = &range.region();
    if (held == region) continue;
    if (!range.use && std::none_of(uses.begin(), uses.end(), [&](const RegionUse& use) { return &use.region() == region; }))
      return false;
    held = region;
  }
  return true;
}

}  // namespace

void OfferedSums::begin(const OfferName& of, std::span<const HeldRange> ranges, std::span<const RegionUse> uses) {
  if (key_ == nullptr || stopped_ || ranges.empty() || is_of_host(ranges.front().region(), parts_.memory)) return;
  if (!is_held(ranges, uses)) return;
  if (std::any_of(sums_.begin(), sums_.end(), [&](const Sum& one) { return one.of == of; })) return;
  if (sums_.size() >= kMost) {
    const auto known = std::find_if(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.is_known(); });
    if (known == sums_.end()) return;
    sums_.erase(known);
  }
  sums_.push_back({.of = of, .ranges = {ranges.begin(), ranges.end()}, .uses = {uses.begin(), uses.end()}, .summing = nullptr});
}

void OfferedSums::give(const OfferName& of, JobSum& sum) {
  const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& one) { return one.of == of; });
  if (found == sums_.end()) return;
  if (found->is_known()) sum.known = found->value;
  sum.summing = std::move(found->summing);
  sums_.erase(found);
}

bool OfferedSums::progress() {
  bool advanced = false;
  for (auto sum = sums_.begin(); sum != sums_.end();) {
    if (sum->summing == nullptr && !stopped_) {
      // The peer's copy takes longer than the sum, so the offer goes first.
      if (!sum->is_known() && stream_.backlog() == 0) {
        sum->summing = Summing::begin(key_, sum->ranges, parts_);
        advanced = true;
      }
      ++sum;
      continue;
    }
    const Result<bool> done = sum->summing != nullptr ? sum->summing->is_done() : Result<bool>(true);
    if (done.is_ok() && !*done) {
      ++sum;
      continue;
    }
    advanced = true;
    if (!done.is_ok() || stopped_) {  // after an error the job begins a sum of its own, whose error it gets
      sum = sums_.erase(sum);
      continue;
    }
    sum->value = sum->summing->sum();
    stream_.send(talk(sum->of.of_read ? PullTalk::kSumOfRead : PullTalk::kSum, sum->of.operation,
                      std::as_bytes(std::span(&sum->value, 1))));
    sum->summing = nullptr;
    sum->ranges.clear();
    sum->uses.clear();
    ++sum;
  }
  return advanced;
}

bool OfferedSums::idle() const {
  return std::all_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.is_known(); });
}

void OfferedSums::stop() {
  stopped_ = true;
  for (const Sum& sum : sums_) {
    if (sum.summing != nullptr) sum.summing->stop();
  }
}

}  // namespace tcpx
