// PulledLane: the lane of the end whose memory a peer on the same host copies out of. It says where the bytes lie, shares GPU memory
// first, and grants leases of its slots. It helps the peer with joint copies by lease (base/joint_copy.h), as far as the memory is there.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/host_copier.h"
#include "base/joint_copy.h"
#include "base/memory_ops.h"
#include "base/text.h"
#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "lanes/pull/offered_sums.h"
#include "lanes/pull/sources.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// The lane of the data sender, whose memory is read: its jobs have already ended when the receiver's Go comes.
class PulledLane final : public Lane {
 public:
  /// All must outlive this.
  explicit PulledLane(const LaneMaking& making)
      : Lane(Way::kPull, false),
        memory_(making.parts.memory),
        host_copier_(making.parts.host_copier),
        host_(making.host),
        stream_(making.stream),
        sources_(making.host, making.parts.memory, making.parts.unmapper, making.stream),
        sums_(making.sum_key, making.parts, making.stream),
        leases_(std::make_shared<SlotLeases>(making.host.own_leases(), making.host.same_process)) {}
  ~PulledLane() override { leases_->close(); }
  bool is_ready(std::span<const HeldRange> ranges) override { return sources_.are_ready(ranges); }
  bool expect(std::span<const HeldRange> ranges) override {
    return !status_.is_ok() || sources_.count() >= kMaxExpectedShares || sources_.are_ready(ranges, true);
  }
  bool offer(std::span<const HeldRange> ranges, std::vector<std::byte>& words) override;
  /// GPU memory: a frame costs a copy to the host and one from it, each as long as one copy from GPU to GPU.
  bool beats_frames(std::span<const HeldRange> ranges) override;
  void lease(MemoryRegistry& registry, ConnId conn, const SlotId& slot) override;
  void begin_sum(const OfferName& of, std::span<const HeldRange> ranges, std::span<const RegionUse> uses) override {
    sums_.begin(of, ranges, uses);
  }
  void give_sum(const OfferName& of, JobSum& sum) override { sums_.give(of, sum); }
  void push(std::unique_ptr<Job>&& job, std::span<const std::byte> /*words*/, const GoFrame& /*go*/) override {
    ended_.push_back(std::move(job));
    enter(*ended_.back());
  }
  Status on(const LaneFrame& frame) override {
    return frame.what == static_cast<uint64_t>(PullTalk::kJoin) ? on_join(frame) : sources_.on_unshared(frame);
  }
  bool progress(TimePoint /*now*/) override {
    const bool helped = help();
    return sums_.progress() || helped;
  }
  void fail(const Status& reason) override {
    if (status_.is_ok()) status_ = reason;
    help_.reset();
    sums_.stop();
    leases_->end_all();
  }
  void abandon() override { leases_->close(); }
  bool closed() const override { return idle() && (!leases_->is_touched() || host_.has_ended()); }
  MemoryBuffer close() override {
    leases_->close();
    return {};
  }
  bool has_work() const override { return !idle() || (!status_.is_ok() && leases_->is_touched()); }
  const Status& status() const override { return status_; }
  bool idle() const override { return ended_.empty() && sums_.idle() && !help_; }
  bool is_told() const override { return !has_ended() && sums_.idle() && !help_; }
  bool serves(MemoryId region) const override {
    return leases_->is_touched(region) || (help_ && help_->range.region().id == region);
  }
  void forget(MemoryId region) override {
    sources_.forget(region);
    looks_.erase(static_cast<uint64_t>(region));
  }
  bool peer_holds(MemoryId region) const override { return sources_.is_mapped(region); }
  bool is_read() const override { return leases_->is_read(); }
  /// Adds the bytes that the peer has read and written without asking.
  void add_to(ConnectionStats& stats) const override {
    stats.bytes_sent += host_.own_leases().bytes_read.load();
    stats.bytes_received += host_.own_leases().bytes_written.load();
  }
  std::string flight_record() const override { return concat("copied by the peer: ", ended_.size(), " to be reported"); }

 private:
  /// At the ends of host memory that were not there.
  struct Look {
    std::shared_ptr<HostCopy> reads;
    bool in_vain = false;  // nor were they there when they had been read
  };
  /// A joint copy that the peer has begun.
  struct Help {
    HeldRange range;  // the slot
    bool writes;      // into it
    JointCopy joint;
  };
  bool has_ends(const Region& region);
  Status on_join(const LaneFrame& frame);
  bool help();

  MemoryOps& memory_;
  HostCopier& host_copier_;
  const HostPeer& host_;
  ControlStream& stream_;
  Sources sources_;
  OfferedSums sums_;
  const std::shared_ptr<SlotLeases> leases_;  // which the registry knows, too
  std::unordered_map<uint64_t, Look> looks_;  // by region
  MemoryRegistry* registry_ = nullptr;        // of the leases, with the connection; null: there was none
  ConnId conn_{};
  std::optional<Help> help_;
  Status status_;
};

}  // namespace tcpx
