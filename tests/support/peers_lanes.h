// The pipeline halves of a peer whose frames a test says: transfers of one link, one at a time in each direction.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tests/support/stream_pair.h"
#include "transfer/pipeline.h"

namespace tcpx::testing {

class PeersLanes {
 public:
  static constexpr size_t kLongest = 64 * 1024;

  /// Both must outlive this.
  PeersLanes(Pipeline& sends, Pipeline& receives)
      : sends_(sends),
        receives_(receives),
        from_(sends.register_memory(out_.data(), out_.size(), MemoryType::kHost).value()),
        into_(receives.register_memory(in_.data(), in_.size(), MemoryType::kHost).value()) {}
  PeersLanes(const PeersLanes&) = delete;

  void send(const Bytes& data) {
    ASSERT_TRUE(rests() && data.size() <= kLongest);
    std::copy(data.begin(), data.end(), out_.begin());
    sent_ = sends_.submit({.memory = from_, .bytes = data.size()}).value();
  }
  void receive(uint64_t bytes) {
    ASSERT_TRUE(rests() && bytes <= kLongest);
    received_ = receives_.submit({.memory = into_, .bytes = bytes}).value();
  }
  /// Moves both along. @return nothing is under way
  bool rests() {
    const bool sent = has_ended(sends_, sent_), received = has_ended(receives_, received_);
    return sent && received;
  }
  /// Begins with the bytes of the last transfer.
  const Bytes& received() const { return in_; }

 private:
  static bool has_ended(Pipeline& half, std::optional<TransferId>& transfer) {
    (void)half.progress();
    if (transfer && half.poll(*transfer).state != TransferState::kPending) transfer.reset();
    return !transfer;
  }

  Pipeline& sends_;
  Pipeline& receives_;
  Bytes out_ = Bytes(kLongest), in_ = Bytes(kLongest);
  RegisteredMemory from_, into_;
  std::optional<TransferId> sent_, received_;
};

}  // namespace tcpx::testing
