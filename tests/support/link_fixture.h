// One Link by itself, driven step by step under a manual clock: its peer is a control stream and two pipeline halves that the
// test moves, and copies of device memory end when the test says so. Nothing happens in between.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "endpoint/link.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/fake_unpacker.h"
#include "tests/support/manual_clock.h"
#include "tests/support/same_bytes.h"
#include "tests/support/shared_pair.h"
#include "tests/support/slow_copier.h"
#include "tests/support/stream_pair.h"
#include "tests/support/wait_until.h"
#include "tests/support/window_model.h"
#include "wire/credit_windows.h"

namespace tcpx::testing {

/// Work of the GPU, which ends when the test says so.
struct Gate {
  bool open = false;
  Status failure;
  int asked = 0;  ///< how often it was asked whether it is open
};

class LinkTest : public ::testing::Test {
 protected:
  static constexpr ConnId kConn{7};
  static constexpr size_t kPart = 256 * 1024;
  static constexpr uint32_t kInline = 16384;  ///< longest inline message of the link
  static constexpr size_t kShort = kInline;   ///< a short message
  static constexpr int kWindowful = 63;       ///< short sends that may be ahead of the peer
  static constexpr size_t kLong = 100'000;    ///< a message that goes over the lanes
  /// More short messages than the window takes.
  static constexpr int kMany = 300;

  struct Start {
    std::vector<HeldRange> ranges = {};
    std::vector<WireRange> remote = {};
    std::optional<NotifyMsg> notify = {};
    Gate* after = nullptr;
    Duration timeout = std::chrono::seconds(30);
  };

  /// @param copy_threads of the HostCopier; so few as 5 are those of few cores
  explicit LinkTest(size_t copy_threads = 8) : host_copier_(copy_threads) {
    allow_log("has ended: ");
    renew();
  }
  ~LinkTest() override {
    copier_.fail_query = copier_.fail_submit = Status::ok();
    copier_.release();
    link_.reset();
  }
  /// A link, and a peer that has said and heard nothing. Operations begun on the one before end.
  /// @param host what both share, when the peer is to be of the same host
  void renew(std::unique_ptr<HostPeer> host = {}) {
    link_.reset();
    peer_ = std::make_unique<ControlStream>();
    heard_.frames.clear();
    std::copy(std::begin(kWindowSizes), std::end(kWindowSizes), room_.begin());
    if (windows_ == CreditWindows::Size::kSmall) room_.fill(kSmallWindowBytes);
    sends_ = receives_ = 0;
    LinkParts parts;
    parts.own_windows = parts.peers_windows = windows_;
    parts.eager = eager_;
    parts.inline_bytes = kInline;
    parts.sum_key = sum_key_;
    if (peers_memory_ != nullptr) parts.place = peers_memory_->admit("10.0.0.1", true).value();
    parts.stream = std::make_unique<ControlStream>();
    if (shared_) {
      parts.stream->attach(shared_->a());
      peer_->attach(shared_->b());
    } else {
      Sockets sockets = unix_pair();
      parts.stream->attach(std::move(sockets.a));
      peer_->attach(std::move(sockets.b));
    }
    link_fd_ = parts.stream->fd();
    std::tie(parts.send, peer_recv_) = lane(budget_);
    std::tie(peer_send_, parts.recv) = lane();
    parts.peer_name = "the test";
    parts.host = std::move(host);
    link_ = std::make_unique<Link>(
        LinkShared{
            .operations = operations_,
            .memory = registry_,
            .copies = copies_,
            .inbox = inbox_,
            .lanes = {.staging = *pool_, .device_copier = *bulk_copier_, .host_copier = *bulk_copier_},
            .pulls = {.memory = *machine_, .gpu_copier = *bulk_copier_, .host_copier = host_copier_, .unmapper = unmapper_},
            .clock = clock_,
            .repeats = repeats_},
        kConn, std::move(parts), "test");
  }

  HeldRange host(size_t offset, size_t bytes) { return range(host_id_, host_, offset, bytes); }
  HeldRange device(size_t offset, size_t bytes) { return range(device_id_, device_, offset, bytes); }
  static std::vector<HeldRange> one(HeldRange range) {
    std::vector<HeldRange> ranges;
    ranges.push_back(std::move(range));
    return ranges;
  }
  /// A range of this end, for its peer. @param after work of the GPU that the peer's bytes come after
  WireRange advertised(MemoryId memory, size_t offset, size_t bytes, Gate* after = nullptr) {
    std::byte* const data = (memory == host_id_ ? host_ : device_).data() + offset;
    auto mark = after == nullptr ? nullptr : std::make_unique<Mark>(*after);
    return {registry_.advertise(kConn, memory, data, bytes, SlotAccess::kReadWrite, std::move(mark), after).value().id, 0, bytes};
  }

  OperationId start(OperationKind kind, Start what) {
    Operation& operation = *operations_.acquire().value();
    operation.kind = kind;
    operation.conn = kConn;
    operation.submitted_at = clock_.now();
    operation.deadline = clock_.now() + what.timeout;
    for (HeldRange& held : what.ranges) {
      operation.bytes += held.bytes;
      if (held.bytes > 0) operation.ranges.push_back(std::move(held));
    }
    operation.remote = what.remote;
    if (what.notify) operation.notify = std::make_unique<NotifyMsg>(*what.notify);
    if (what.after != nullptr) operation.after.push_back(std::make_unique<Mark>(*what.after));
    if (kind == OperationKind::kSend) operation.sequence = sends_++;
    if (kind == OperationKind::kRecv) operation.sequence = receives_++;
    const OperationId id = operation.id;
    link_->submit(operation);
    return id;
  }
  OperationId send(HeldRange range) { return start(OperationKind::kSend, {.ranges = one(std::move(range))}); }
  OperationId receive(HeldRange range) { return start(OperationKind::kRecv, {.ranges = one(std::move(range))}); }
  /// A write to a slot of the peer. @param kind or a read of it
  OperationId write(HeldRange range, OperationKind kind = OperationKind::kWrite) {
    const uint64_t bytes = range.bytes;
    return start(kind, {.ranges = one(std::move(range)), .remote = {{.slot = {0, 1}, .offset = 0, .bytes = bytes}}});
  }
  OperationId read(HeldRange range) { return write(std::move(range), OperationKind::kRead); }
  void cancel(OperationId id) {
    EXPECT_TRUE(operations_.request_cancel(id));
    ASSERT_TRUE(operations_.take_cancel_requests());
    link_->take_cancel_requests();
  }
  bool pending(OperationId id) { return operations_.wait(id, Deadline(TimePoint{}), Duration::zero()) == false; }
  /// The end of an operation, which must have ended; ok when well.
  Status end_of(OperationId id) {
    const OperationAnswer answer = operations_.poll(id);
    EXPECT_TRUE(answer.state == OperationState::kDone || answer.state == OperationState::kFailed)
        << "has not ended; " << link_->flight_record();
    return answer.state == OperationState::kPending ? Status(Code::kTimeout, "test", "it is still pending") : answer.status;
  }

  // The peer.
  void say_raw(const FrameHeader& header, std::span<const std::byte> payload = {}) { peer_->send(RawFrame{header, payload}); }
  void say(FrameType type, uint64_t operation = 0, uint64_t value = 0, uint64_t bytes = 0, Packing packing = Packing::kWhole,
           const OperationPayload* payload = nullptr) {
    std::vector<std::byte> encoded;
    if (payload != nullptr) append_operation_payload(encoded, *payload);
    say_raw(make_header(type, operation, value, bytes, packing), encoded);
  }
  /// Of a transfer that has begun.
  void say_begun(FrameType type, uint64_t operation, uint64_t value, const OperationPayload* payload = nullptr,
                 uint64_t bytes = kLong, Packing packing = Packing::kWhole) {
    FrameHeader header = make_header(type, operation, value, bytes, packing);
    header.flags = kBegunFlag;
    std::vector<std::byte> encoded;
    if (payload != nullptr) append_operation_payload(encoded, *payload);
    say_raw(header, encoded);
  }
  /// Of an operation of the link.
  void say_of(OperationId id, FrameType type, uint64_t value = 0) { say(type, static_cast<uint64_t>(id), value); }
  void say_done(OperationId id, Code code = Code::kOk) { say_of(id, FrameType::kDone, static_cast<uint64_t>(code)); }
  /// A long send.
  void say_offer(uint64_t operation, uint64_t sequence, std::optional<NotifyMsg> notify = {}) {
    OperationPayload payload;
    put(payload, std::move(notify));
    say(FrameType::kSend, operation, sequence, kLong, Packing::kWhole, &payload);
  }
  /// A long write to the host's memory, or a read of it. @param after work of the GPU that it comes after
  void say_go(OperationId operation, Way way, bool of_read = false) {
    say_raw(make_header(FrameType::kGo, static_cast<uint64_t>(operation), of_read ? 1 : 0, 0, Packing::kWhole, way));
  }
  void ask(FrameType type, uint64_t operation, std::optional<NotifyMsg> notify = {}, Gate* after = nullptr) {
    OperationPayload payload;
    payload.ranges = {advertised(host_id_, 0, kLong, after)};
    put(payload, std::move(notify));
    say(type, operation, 0, kLong, Packing::kWhole, &payload);
  }
  /// The peer's half takes what the link's lane sends.
  TransferId receive_at_peer() {
    const RegisteredMemory memory = peer_recv_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
    return peer_recv_->submit({.memory = memory, .bytes = kLong}).value();
  }
  /// An inline message, as a peer that keeps to its window says it.
  void say_inline(FrameType type, uint64_t operation, uint64_t value, const OperationPayload& payload) {
    const WindowUse use = use_of(type, payload.data.size(), payload, kInline);
    ASSERT_GE(room_[use.window], use.bytes) << "a peer would wait here for ever";
    room_[use.window] -= use.bytes;
    say(type, operation, value, payload.data.size(), Packing::kWhole, &payload);
  }
  void say_send(uint64_t sequence, std::span<const std::byte> data, std::optional<NotifyMsg> notify = {}) {
    OperationPayload payload;
    payload.data = data;
    put(payload, notify);
    say_inline(FrameType::kSendData, 1000 + sequence, sequence, payload);
  }
  void say_write(uint64_t operation, WireRange range, std::span<const std::byte> data, std::optional<NotifyMsg> notify = {}) {
    OperationPayload payload;
    payload.ranges = {range};
    payload.data = data;
    put(payload, notify);
    say_inline(FrameType::kWriteData, operation, 0, payload);
  }
  static void put(OperationPayload& payload, std::optional<NotifyMsg> notify) {
    payload.has_notify = notify.has_value();
    if (!notify) return;
    payload.notify_name = std::move(notify->name);
    payload.notify_text = std::move(notify->msg);
  }
  /// The oldest frame of that type that has come and was not taken; the others stay.
  std::optional<FrameHeader> hear(FrameType type) {
    auto& frames = heard_.frames;
    const auto found = std::find_if(frames.begin(), frames.end(),
                                    [&](const auto& frame) { return frame.header.type == static_cast<uint8_t>(type); });
    if (found == frames.end()) return std::nullopt;
    const FrameHeader header = found->header;
    frames.erase(found);
    return header;
  }
  /// One millisecond, in which the link and its peer do what they can. @param peer_reads the peer takes what has come
  void step(bool peer_reads = true) {
    clock_.advance(std::chrono::milliseconds(1));
    (void)peer_->flush();
    (void)link_->progress(true);
    if (!peer_reads) return;
    const size_t before = heard_.frames.size();
    (void)peer_->receive(heard_);
    for (size_t i = before; i < heard_.frames.size(); ++i) {
      const FrameHeader& header = heard_.frames[i].header;
      if (header.type == static_cast<uint8_t>(FrameType::kCredit)) room_[header.operation] += header.bytes;
    }
  }
  void steps(int count, bool peer_reads = true) {
    for (int i = 0; i < count; ++i) step(peer_reads);
  }
  /// The same, with the pipeline halves of the peer; threads that copy have time for it.
  template <class Condition>
  bool drive(Condition until) {
    constexpr int kWithoutPause = 2000;
    const Deadline deadline = Deadline::after(kTestDeadline);
    for (int round = 0; !until(); ++round) {
      if (deadline.expired()) return false;
      if (round >= kWithoutPause) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      step();
      (void)peer_send_->progress();
      (void)peer_recv_->progress();
    }
    return true;
  }
  bool alive() const { return link_->status().is_ok(); }
  /// The memory begins with that many bytes of the peer's.
  bool has_peers(const Bytes& memory, size_t bytes) const {
    return same(std::span(peers_).first(bytes), std::span(memory).first(bytes));
  }
  size_t notified() { return inbox_.take_all().size(); }

  ManualClock clock_;
  FakeNetPlugin fake_{{.page_count = 1024}};
  FakeUnpacker unpacker_;
  std::shared_ptr<MemoryOps> ops_ = make_host_memory_ops();
  MemoryOps* machine_ = ops_.get();  // for copies within the host, of links made from now on; must outlive them
  SlowCopier copier_;
  std::unique_ptr<SegmentCopier> bulk_copier_ = ops_->make_segment_copier(0).value();
  HostCopier host_copier_;
  Unmapper unmapper_{ops_, 0, {}};
  InlineCopies copies_{*ops_, copier_, 0};
  StagingBuffers staging_{*ops_, *ops_, 0, kStagingBytes, unmapper_};
  StagingBuffers* pool_ = &staging_;  // of links made from now on; must outlive them
  NotifyInbox inbox_{4};
  Bytes host_ = pattern(kPart, 1), device_ = pattern(kPart, 2), peers_ = pattern(kPart, 3);
  CreditWindows::Size windows_ = CreditWindows::Size::kWhole;  // of links made from now on, and of their peers
  bool eager_ = false;                                         // links made from now on
  std::shared_ptr<const ByteSumKey> sum_key_;                  // and their peers; null: no checksums
  bool repeats_ = false;                                       // as in LinkShared, of links made from now on
  PeerMemory* peers_memory_ = nullptr;                         // and what holds their places; must outlive them
  ChunkBudget* budget_ = nullptr;                              // of what links made from now on send; must outlive them
  MemoryRegistry registry_{1};
  const MemoryId host_id_ = registry_.add(host_.data(), kPart, MemoryType::kHost).value();
  const MemoryId device_id_ = registry_.add(device_.data(), kPart, MemoryType::kCuda).value();
  OperationTable operations_{4096};
  std::unique_ptr<Pipeline> peer_send_, peer_recv_;
  std::unique_ptr<SharedPair> shared_;  // of links made from now on: their control stream goes through it
  std::unique_ptr<Link> link_;
  int link_fd_ = -1;

  std::unique_ptr<ControlStream> peer_;
  Recorder heard_;
  std::array<uint64_t, 4> room_{};  ///< of the peer, in each window
  uint64_t sends_ = 0, receives_ = 0;

 private:
  class Mark final : public GpuMark {
   public:
    explicit Mark(Gate& gate) : gate_(gate) {}
    Result<bool> reached() override {
      ++gate_.asked;
      if (!gate_.failure.is_ok()) return gate_.failure;
      return gate_.open;
    }

   private:
    Gate& gate_;
  };

  HeldRange range(MemoryId id, Bytes& memory, size_t offset, size_t bytes) {
    return {registry_.use(id, memory.data() + offset, bytes).value(), memory.data() + offset, bytes};
  }
  std::pair<std::unique_ptr<Pipeline>, std::unique_ptr<Pipeline>> lane(ChunkBudget* budget = nullptr) {
    const auto [send, recv] = fake_.make_wire();
    const PipelineOptions options{.limits = {.window = kQueueDepth}, .chunk_bytes = 4096, .max_transfers = kMaxLaneTransfers};
    PipelineOptions limited = options;
    limited.limits.budget = budget;
    return {Pipeline::create(Comm(fake_, send), {}, clock_, limited).value(),
            Pipeline::create(Comm(fake_, recv), {.unpacker = &unpacker_, .pool = fake_.pool()}, clock_, options).value()};
  }
};

}  // namespace tcpx::testing
