// An unpacker whose copies happen late: a ticket is done after a chosen number of queries, and its bytes move at that moment, so
// that returning bounce pages too early delivers wrong data.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "rx/unpacker.h"

namespace tcpx::testing {

class FakeUnpacker final : public Unpacker {
 public:
  /// Queries of the oldest ticket until it is done; 1 means done at the first.
  uint32_t queries_needed = 1;
  uint32_t max_in_flight = 16;
  /// The n-th submit or query from now fails (0: none), and every later one.
  uint32_t fail_submit_at = 0;
  uint32_t fail_query_at = 0;

  /// Accepted submits.
  uint64_t submitted() const { return next_ticket_ - 1; }
  /// Number of blocks in each of them.
  const std::vector<size_t>& batches() const { return batches_; }
  /// Submits that found it full.
  uint64_t refused() const { return refused_; }
  uint64_t queries() const { return queries_; }
  size_t in_flight() const { return jobs_.size(); }

  const char* name() const override { return "fake"; }

  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    if (counts_down(fail_submit_at)) return Status(Code::kCuda, "submit unpack", "scripted", Domain::kCuda, 700);
    if (jobs_.size() >= max_in_flight) {
      ++refused_;
      return Status(Code::kExhausted, "submit unpack", "too many in flight");
    }
    batches_.push_back(blocks.size());
    jobs_.push_back({{blocks.begin(), blocks.end()}, queries_needed});
    return UnpackTicket{next_ticket_++};
  }

  Result<bool> query(UnpackTicket ticket) override {
    ++queries_;
    if (counts_down(fail_query_at)) {
      jobs_.clear();
      return Status(Code::kCuda, "query unpack", "scripted", Domain::kCuda, 700);
    }
    const uint64_t oldest = next_ticket_ - jobs_.size();
    const auto wanted = static_cast<uint64_t>(ticket);
    if (wanted < oldest) return true;
    if (wanted > oldest) return false;
    if (jobs_.front().queries_left > 1) {
      --jobs_.front().queries_left;
      return false;
    }
    for (const DescriptorBlock& block : jobs_.front().blocks) cpu_unpack(block);
    jobs_.pop_front();
    return true;
  }

 private:
  struct Job {
    std::vector<DescriptorBlock> blocks;
    uint32_t queries_left;
  };
  // 1 is "now", and stays 1: the error sticks.
  static bool counts_down(uint32_t& count) {
    if (count == 0) return false;
    if (count == 1) return true;
    --count;
    return false;
  }

  std::deque<Job> jobs_;
  std::vector<size_t> batches_;
  uint64_t refused_ = 0;
  uint64_t queries_ = 0;
  uint64_t next_ticket_ = 1;
};

}  // namespace tcpx::testing
