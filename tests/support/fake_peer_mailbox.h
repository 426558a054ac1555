// A PeerMailbox between two connections in one process, as two queues that a test can inspect, write to and break.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "wire/peer_mailbox.h"

namespace tcpx::testing {

/// Two ends of a link; posts of one wait until the other pumps.
class FakePeerMailbox final : public PeerMailbox {
 public:
  struct Queue {
    std::deque<std::pair<PeerMessage, std::vector<std::byte>>> messages;
    Status broken;                      ///< status of both ends from now on
    bool finished = false;              ///< the peer sends nothing after these messages, and has finished cleanly
    size_t most_per_pump = ~size_t{0};  ///< messages delivered at once
  };
  FakePeerMailbox(std::shared_ptr<Queue> in, std::shared_ptr<Queue> out) : in_(std::move(in)), out_(std::move(out)) {}

  void deliver_to(PeerMessageSink* sink) override { sink_ = sink; }
  Status post(PeerMessage type, std::span<const std::byte> payload) override {
    if (in_->finished) return Status(Code::kProtocol, "post", "the peer has finished, this end has not");
    if (out_->broken.is_ok()) out_->messages.push_back({type, {payload.begin(), payload.end()}});
    return out_->broken;
  }
  Result<bool> pump() override {
    size_t left = in_->most_per_pump;
    for (; in_->broken.is_ok() && !in_->messages.empty() && left > 0; in_->messages.pop_front(), --left) {
      if (sink_ != nullptr) sink_->on_peer_message(in_->messages.front().first, in_->messages.front().second);
    }
    if (!in_->broken.is_ok()) return in_->broken;
    return !in_->finished || !in_->messages.empty();
  }

 private:
  std::shared_ptr<Queue> in_, out_;
  PeerMessageSink* sink_ = nullptr;
};

}  // namespace tcpx::testing
