// A link whose peer is of the same host. The peer is the test, in the same process, so that what one end reads of the other is
// checked byte by byte.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/count_allocations.h"
#include "tests/support/link_fixture.h"

namespace tcpx::testing {

class NearLinkTest : public LinkTest {
 protected:
  explicit NearLinkTest(size_t copy_threads = 8) : LinkTest(copy_threads) { renew(make_host(true)); }
  /// The things that both share. @param reads each can read the other's memory
  std::unique_ptr<HostPeer> make_host(bool reads) {
    const UniqueFd memory = SharedArea::make().value();
    peer_area_ = SharedArea::map(memory.get(), false).value();
    auto host = std::make_unique<HostPeer>();
    host->area = SharedArea::map(memory.get(), true).value();
    host->pid = getpid();
    host->same_process = true;
    host->reads_memory = host->is_read = reads;
    host_peer_ = host.get();
    return host;
  }
  static constexpr uint64_t kOperation = 41;

  std::atomic<uint64_t>& peer_alive() { return peer_area_.alive(false); }
  /// Of the peer's memory, at `offset`.
  WireSource source(size_t offset, size_t bytes, uint64_t share = kHostMemory) const {
    return {.share = share, .address = reinterpret_cast<uint64_t>(peers_.data() + offset), .bytes = bytes};
  }
  /// A long write, whose bytes the link may copy or, without sources, only take from the ring.
  void offer_write(std::vector<WireSource> sources, std::vector<WireRange> ranges = {}, bool ring = true) {
    OperationPayload payload;
    payload.ranges = std::move(ranges);
    if (payload.ranges.empty()) payload.ranges = {advertised(host_id_, 0, kLong)};
    payload.sources = std::move(sources);
    payload.ring = ring;
    say(FrameType::kWrite, kOperation, 0, kLong, Packing::kPacked, &payload);
  }
  void offer_send(std::vector<WireSource> sources, bool ring = true) {
    OperationPayload payload;
    payload.sources = std::move(sources);
    payload.ring = ring;
    say(FrameType::kSend, kOperation, 0, kLong, Packing::kPacked, &payload);
  }
  /// The answer to a read.
  void offer_read(OperationId id, const std::vector<WireSource>& sources, uint64_t bytes = kLong) {
    say_raw(make_header(FrameType::kReady, static_cast<uint64_t>(id), 0, bytes), offers_of(sources));
  }
  void say_pull(PullTalk what, uint64_t share, std::span<const std::byte> words = {}) {
    say_raw(make_header(FrameType::kLane, share, static_cast<uint64_t>(what), is_to_sender(what) ? 1 : 0, Packing::kWhole,
                        Way::kPull),
            words);
  }
  /// The peer lets the link use these sources as one slot, once the word of that place is `word`.
  void say_lease(uint64_t place, uint64_t word, const SlotId& slot, const std::vector<WireSource>& sources,
                 SlotAccess access = SlotAccess::kReadWrite) {
    const WireLease head{.slot = slot, .word = word, .access = static_cast<uint64_t>(access)};
    std::vector<std::byte> words(sizeof head + sources.size() * sizeof(WireSource));
    std::memcpy(words.data(), &head, sizeof head);
    if (!sources.empty()) std::memcpy(words.data() + sizeof head, sources.data(), words.size() - sizeof head);
    say_pull(PullTalk::kLease, place, words);
  }
  void share(uint64_t number, const MemoryShare& memory) {
    say_pull(PullTalk::kShare, number, std::as_bytes(std::span(&memory, 1)));
  }
  /// The peer puts these bytes into the bulk ring, as long as there is room. @return how many
  size_t put(std::span<const std::byte> bytes) {
    BulkRing& ring = peer_area_.bulk_ring(false);
    const uint64_t written = ring.written;
    const size_t count = std::min<size_t>(bytes.size(), BulkRing::kBytes - (written - ring.read));
    for (size_t i = 0; i < count; ++i) ring.bytes[(written + i) % BulkRing::kBytes] = bytes[i];
    ring.written = written + count;
    return count;
  }
  /// A turn of the link that gets no memory from `new`, once it has had so many allocations. @return true: one was refused
  bool progress_without_memory(uint64_t left, uint64_t most = UINT64_MAX) {
    const NoMemory none(left, most);
    try {
      (void)link_->progress(true);
    } catch (const std::bad_alloc&) {
      link_->fail_without_memory();
    }
    return NoMemory::refused();
  }
  /// The next frame of that type.
  std::optional<FrameHeader> await(FrameType type) {
    std::optional<FrameHeader> header;
    (void)drive([&] { return header || (header = hear(type)).has_value(); });
    return header;
  }
  /// The oldest message of that kind about pulls that has come and was not taken: its header and its words. The others stay.
  std::optional<std::pair<FrameHeader, Bytes>> hear_pull(PullTalk what) {
    for (auto frame = heard_.frames.begin(); frame != heard_.frames.end(); ++frame) {
      LaneFrame lane;
      if (frame->header.type != static_cast<uint8_t>(FrameType::kLane) || !decode(frame->header, frame->payload, lane).is_ok() ||
          lane.what != static_cast<uint64_t>(what))
        continue;
      EXPECT_EQ(lane.to_sender, is_to_sender(what));
      std::pair heard(frame->header, Bytes(lane.words.begin(), lane.words.end()));
      heard_.frames.erase(frame);
      return heard;
    }
    return std::nullopt;
  }
  /// The payload of the next frame of that type, which offers bytes.
  std::optional<OperationPayload> offer(FrameType type) {
    std::optional<OperationPayload> offered;
    (void)drive([&] {
      const auto found = std::find_if(heard_.frames.begin(), heard_.frames.end(),
                                      [type](const auto& f) { return f.header.type == static_cast<uint8_t>(type); });
      if (found == heard_.frames.end()) return false;
      OperationPayload payload;
      if (decode_operation_payload(found->header, found->payload, payload).is_ok()) offered = std::move(payload);
      return true;
    });
    return offered;
  }
  /// The peer has all bytes of a send and a write: the one is over, the other waits for the peer's word.
  void expect_ends(OperationId sent, OperationId written) {
    ASSERT_TRUE(drive([&] { return !pending(sent); }));
    EXPECT_TRUE(end_of(sent).is_ok());
    steps(3);
    EXPECT_TRUE(pending(written));
    say_done(written);
    ASSERT_TRUE(drive([&] { return !pending(written); }));
    EXPECT_TRUE(end_of(written).is_ok());
  }
  bool went(Way way, bool of_read = false) {
    const auto go = await(FrameType::kGo);
    return go && go->way == static_cast<uint8_t>(way) && (go->value == 1) == of_read;
  }
  bool pulled(bool of_read = false) { return went(Way::kPull, of_read); }
  void expect_refused(Code code = Code::kProtocol) {
    EXPECT_TRUE(drive([&] { return !link_->status().is_ok(); }));
    EXPECT_EQ(link_->status().code(), code) << link_->status().to_string();
    EXPECT_TRUE(drive([&] { return link_->closed(); }));
  }

  SharedArea peer_area_;
  HostPeer* host_peer_ = nullptr;
};

}  // namespace tcpx::testing
