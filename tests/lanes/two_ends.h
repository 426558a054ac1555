// Both ends of a connection's lanes, in one thread and step by step: what one end offers the other takes, and says Go over a stream.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "lanes/lanes.h"
#include "tests/lanes/file_lane.h"
#include "tests/lanes/parts.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/fake_unpacker.h"
#include "tests/support/manual_clock.h"
#include "tests/support/several_gpus.h"
#include "tests/support/slow_copier.h"
#include "tests/support/stream_pair.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

/// What makes bytes take a way.
struct Setting {
  std::string_view name;
  bool on_host = false, reads = false;  ///< both ends are of one host; they may read each other's memory
  bool eager = false;
  Way way = Way::kNetwork;  ///< the one that a Go names then
  bool lists = false;       ///< the plugin takes lists
  bool sums = false;        ///< what arrives is compared by checksums
  bool gpu = false;         ///< the memory passes for that of a GPU
  bool one_process = false;  ///< as far as the ends can tell; without a GPU's memory they always are
};
inline void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name;
}

class TwoEnds {
 public:
  static constexpr size_t kMemory = 300'000;

  struct Ended {
    uint64_t number = 0;
    bool received = false;
    Status status;
  };

  /// One of the two.
  struct End final : ControlSink {
    TwoEnds* both = nullptr;
    ControlStream stream;
    HostPeer host;
    std::unique_ptr<Lanes> lanes;
    std::map<uint64_t, std::pair<std::unique_ptr<Job>, WaySet>> offered;  // until the Go, with the ways of the offer
    std::vector<Ended> ended;
    std::vector<Way> gone;  // ways that Gos of the peer have named
    Bytes memory = Bytes(kMemory);
    MemoryId region{};

    Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override {
      switch (static_cast<FrameType>(header.type)) {
        case FrameType::kGo:
          return take<GoFrame>(header, payload);
        case FrameType::kBegin:
          return take<BeginFrame>(header, payload);
        case FrameType::kLane:
          return take<LaneFrame>(header, payload);
        default:
          return Status(Code::kProtocol, "read", "no frame of lanes");
      }
    }

   private:
    template <class Frame>
    Status take(const FrameHeader& header, std::span<const std::byte> payload) {
      Frame frame;
      TCPX_RETURN_IF_ERROR(decode(header, payload, frame));
      return on(frame);
    }
    Status on(const GoFrame& frame) {
      auto offer = offered.extract(frame.operation);
      if (offer.empty()) return Status(Code::kProtocol, "read go", "not offered");
      auto& [job, ways] = offer.mapped();
      gone.push_back(frame.way);
      const std::string_view objection = lanes->objection_to(frame, job->ranges, ways);
      if (!objection.empty()) return Status(Code::kProtocol, "read go", std::string(objection));
      lanes->send(std::move(job), frame);
      return Status::ok();
    }
    Status on(const BeginFrame& frame) {
      return lanes->begin(frame.operation, frame.of_read) ? Status::ok() : Status(Code::kProtocol, "read begin", "not awaited");
    }
    template <class Frame>
    Status on(const Frame& frame) {
      return lanes->on(frame);
    }
  };

  explicit TwoEnds(const Setting& setting) : setting_(setting) {
    auto& ways = ways_on_host();
    if (setting.way == kFile) ways.insert(ways.begin(), {kFile, make_file_lane});
    if (shares_gpu()) static_cast<SeveralGpus&>(*ops_).let_share();
    Sockets sockets = unix_pair();
    sender.stream.attach(std::move(sockets.a));
    receiver.stream.attach(std::move(sockets.b));
    if (setting.on_host) {
      const UniqueFd area = SharedArea::make().value();
      for (End* end : {&sender, &receiver}) {
        end->host.area = SharedArea::map(area.get(), end == &sender).value();
        end->host.pid = getpid();
        end->host.same_process = setting.one_process || !shares_gpu();
        end->host.reads_memory = end->host.is_read = setting.reads;
      }
    }
    auto [there, here] = pipelines();
    auto [back_there, back_here] = pipelines();
    make(sender, std::move(there), std::move(back_here));
    make(receiver, std::move(back_there), std::move(here));
    if (setting.way == kFile) ways.erase(ways.begin());
  }
  ~TwoEnds() {
    // Where one end has failed, so does the other.
    for (End* end : {&sender, &receiver}) end->lanes->fail(Status(Code::kCancelled, "test", "over"));
    for (int i = 0; i < 1000 && !(sender.lanes->closed() && receiver.lanes->closed()); ++i) step();
  }

  std::unique_ptr<Job> job(End& end, const Parts& parts, uint64_t number, bool of_peer) {
    return job_on(hold(registry_, end.region, end.memory.data(), parts), number, of_peer);
  }
  Result<Offer> offer_of(const Job& sent) {
    EXPECT_TRUE(
        wait_until([&] { return sender.lanes->is_ready_to_offer(sent.ranges, preferred_packing(sent.ranges, sent.bytes)); }));
    return sender.lanes->offer({.operation = sent.number}, sent.ranges, sent.bytes);
  }
  /// The sender offers, the receiver takes and, sooner or later, says Go. The one who takes has been asked by the peer.
  /// @return the error of the end that could not
  Status begin(const Parts& from, const Parts& to, uint64_t number) {
    auto sent = job(sender, from, number, false), received = job(receiver, to, number, true);
    TCPX_ASSIGN_OR_RETURN(const Offer offer, offer_of(*sent));
    if (shares_gpu()) {  // the receiver has heard of the memory by now
      (void)sender.stream.flush();
      (void)receiver.stream.receive(receiver, true);
    }
    Packing over_network = offer.packing;
    if (over_network == Packing::kRanges && lengths(from) != lengths(to)) over_network = Packing::kPacked;
    sender.offered.emplace(number, std::pair(std::move(sent), offer.ways));
    TCPX_RETURN_IF_ERROR(receiver.lanes->check(offer.others, received->bytes));
    GoFrame go{.operation = number};
    TCPX_RETURN_IF_ERROR(receiver.lanes->take(received->ranges, offer.others, over_network, go));
    receiver.lanes->receive(std::move(received), offer.others, go);
    return Status::ok();
  }
  /// Both ends do what they can.
  void step() {
    clock_.advance(std::chrono::microseconds(100));
    for (End* end : {&receiver, &sender}) {
      (void)end->stream.flush();
      (void)end->stream.receive(*end, true);
      uint32_t told = 0;
      for (Lane* lane : end->lanes->all()) {
        if (!lane->has_work()) continue;
        (void)lane->progress(clock_.now());
        if (before_sums) before_sums(*end, *lane);
        (void)end->lanes->compare_sums(*lane);
        for (; Job* const job = end->lanes->ended(*lane); lane->drop_ended())
          end->ended.push_back({job->number, lane->receives(), job->status});
        told |= lane->take_told();
      }
      if (told != 0) end->stream.wake(told);
    }
  }

 private:
  bool shares_gpu() const { return setting_.gpu && setting_.way == Way::kPull; }
  static std::vector<size_t> lengths(const Parts& parts) {
    std::vector<size_t> all;
    for (const auto& [offset, bytes] : parts) all.push_back(bytes);
    return all;
  }
  std::pair<std::unique_ptr<Pipeline>, std::unique_ptr<Pipeline>> pipelines() {
    const auto [send, recv] = fake_.make_wire();
    const PipelineOptions options{.limits = {.window = kQueueDepth}, .chunk_bytes = 4096, .max_transfers = kMaxLaneTransfers};
    return {Pipeline::create(Comm(fake_, send), {}, clock_, options).value(),
            Pipeline::create(Comm(fake_, recv), {.unpacker = &unpacker_, .pool = fake_.pool()}, clock_, options).value()};
  }
  void make(End& end, std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv) {
    end.both = this;
    end.lanes = std::make_unique<Lanes>(
        std::move(send), std::move(recv), LaneParts{.staging = staging_, .device_copier = gpu_copier_, .host_copier = *copier_},
        setting_.on_host ? &end.host : nullptr,
        PullParts{.memory = *ops_, .gpu_copier = gpu_copier_, .host_copier = host_copier_, .unmapper = unmapper_}, end.stream,
        setting_.eager, setting_.sums ? std::make_shared<const ByteSumKey>(1) : nullptr);
    const MemoryType type = setting_.gpu ? MemoryType::kCuda : MemoryType::kHost;
    end.region = registry_.add(end.memory.data(), kMemory, type).value();
  }

  const Setting setting_;
  ManualClock clock_;
  FakeNetPlugin fake_{{.page_count = 1024, .lists = setting_.lists}};
  FakeUnpacker unpacker_;
  SlowCopier gpu_copier_;
  std::shared_ptr<MemoryOps> ops_ =
      setting_.gpu ? std::unique_ptr<MemoryOps>(std::make_unique<SeveralGpus>(1)) : make_host_memory_ops();
  std::unique_ptr<SegmentCopier> copier_ = ops_->make_segment_copier(0).value();
  HostCopier host_copier_{1};
  Unmapper unmapper_{ops_, 0, {}};
  StagingBuffers staging_{*ops_, *ops_, 0, kStagingBytes, unmapper_};
  MemoryRegistry registry_{1};

 public:
  FakeNetPlugin& network() { return fake_; }
  SlowCopier& gpu_copier() { return gpu_copier_; }
  /// True while something holds the memory of this end.
  bool is_held(const End& end) { return registry_.try_remove(end.region).status().code() == Code::kExhausted; }
  End sender, receiver;
  std::function<void(End& end, const Lane& lane)> before_sums;  ///< called when the lane has made progress
};

}  // namespace tcpx::testing
