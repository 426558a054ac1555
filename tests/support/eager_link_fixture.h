// A link whose transfers begin by themselves (wire/messages.h), and what its peer begins.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "tests/support/link_fixture.h"
#include "tests/support/same_bytes.h"

namespace tcpx::testing {

class EagerLinkTest : public LinkTest {
 protected:
  EagerLinkTest() {
    eager_ = true;
    renew();
  }

  /// A write of kLong bytes that has begun.
  void begin_write(uint64_t operation, const std::vector<WireRange>& ranges, Packing packing = Packing::kWhole) {
    OperationPayload payload;
    payload.ranges = ranges;
    say_begun(FrameType::kWrite, operation, 0, &payload, kLong, packing);
  }
  void begin_send(uint64_t operation, uint64_t sequence, uint64_t bytes = kLong, Packing packing = Packing::kWhole) {
    OperationPayload payload;
    say_begun(FrameType::kSend, operation, sequence, &payload, bytes, packing);
  }
  RegisteredMemory peers_memory() {
    if (!sends_from_) sends_from_ = peer_send_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
    return *sends_from_;
  }
  /// Memory of this end that the plugin does not take.
  WireRange refused() {
    (void)peers_memory();
    fake_.fail_call(Call::kRegister, 1, Status(Code::kPlugin, "register memory", "not this"), 1);
    refused_ = registry_.add(host_.data(), kPart - 1, MemoryType::kHost).value();
    return {registry_.advertise(kConn, refused_, host_.data(), kLong).value().id, 0, kLong};
  }
  /// Bytes of the peer's memory on their way, in transfers of those lengths.
  void move(size_t from, std::initializer_list<size_t> lengths = {kLong}) {
    const RegisteredMemory memory = peers_memory();
    for (const size_t bytes : lengths) {
      ASSERT_TRUE(peer_send_->submit({.memory = memory, .offset = from, .bytes = bytes}).is_ok());
      from += bytes;
    }
  }
  bool has_moved() {
    return drive([&] { return peer_send_->pending() == 0 && peer_send_->in_flight() == 0; });
  }
  /// The link's memory from `to` has the peer's bytes from `from`.
  bool is_there(size_t to, size_t from, size_t bytes = kLong) const {
    return same(std::span(peers_).subspan(from, bytes), std::span(host_).subspan(to, bytes));
  }
  /// The next frame of that type.
  std::optional<FrameHeader> await(FrameType type) {
    std::optional<FrameHeader> frame;
    (void)drive([&] { return frame.has_value() || (frame = hear(type)).has_value(); });
    return frame;
  }
  /// Of an operation of the peer.
  std::optional<Code> answer_to(uint64_t operation) {
    const auto done = await(FrameType::kDone);
    if (!done || done->operation != operation) return std::nullopt;
    return static_cast<Code>(done->value);
  }
  /// A transfer that comes behind another one is not mixed up with it.
  void expect_next_arrives() {
    begin_write(99, {advertised(host_id_, 0, kLong)});
    move(kNext);
    EXPECT_EQ(answer_to(99), Code::kOk) << link_->flight_record();
    EXPECT_TRUE(is_there(0, kNext));
    EXPECT_TRUE(alive()) << link_->status().to_string();
  }

  static constexpr size_t kNext = 50'000;  // where the bytes of `expect_next_arrives` lie
  std::optional<RegisteredMemory> sends_from_;
  MemoryId refused_{};
};

}  // namespace tcpx::testing
