// A receiving comm of the software plugin whose headers come on the control socket, against a peer that is driven by the test.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "measure/pattern.h"
#include "net/soft/header_queue.h"
#include "tests/support/apart_fixture.h"

namespace tcpx::testing {
namespace {

using namespace soft;

/// A receiving comm whose other end is driven by the test.
class ApartReceiver : public SoftApart {
 protected:
  static constexpr size_t kRoom = 1 << 20;
  void SetUp() override {
    SoftApart::SetUp();
    start();
  }
  void start(MemoryType type = MemoryType::kHost, int control_buffer = 0) {
    comm_.reset();
    wire_ = wire();
    if (control_buffer > 0) set_buffers(wire_->theirs.control, wire_->ours.control, control_buffer);
    comm_ = receiver(std::move(wire_->ours));
    target_ = *memory_->allocate_device(0, kRoom);
    region_ = must(comm_->register_region(target_.device(), kRoom, type));
  }
  abi::TcpxRequest* post(size_t bytes, size_t at = 0) {
    return must(comm_->irecv(target_.device() + at, static_cast<int>(bytes), 0, region_));
  }
  void send_header(const ChunkHeader& header) { send_bytes(wire_->theirs.control, encoded(header)); }
  void send_payload(size_t socket, std::span<const std::byte> bytes) { send_bytes(wire_->theirs.data[socket], bytes); }
  bool is_untouched() const {
    return std::all_of(target_.host(), target_.host() + kRoom, [](std::byte each) { return each == std::byte{}; });
  }
  /// A message of `bytes` bytes in one chunk.
  static ChunkHeader whole(uint64_t sequence, uint32_t bytes, uint16_t socket = 0) {
    return {.sequence = sequence, .total = bytes, .offset = 0, .bytes = bytes, .cut = kLongestApart, .socket = socket};
  }

  std::unique_ptr<Wire> wire_;
  MemoryBuffer target_;
  std::unique_ptr<SoftRecvComm> comm_;
  SoftRegion* region_ = nullptr;
};

// Payload comes before its header and after it, on sockets out of step, in pieces that end anywhere.
TEST_F(ApartReceiver, StreamsMayBeCutAnywhere) {
  std::mt19937 random(7);
  const size_t sizes[] = {0, 1, 8, 1023, 4096, kLongestApart - 1, kLongestApart, kLongestApart + 1, 5 * kLongestApart + 77};
  for (const MemoryType type : {MemoryType::kHost, MemoryType::kCuda}) {
    start(type);
    uint64_t sequence = 0;
    for (int round = 0; round < 40; ++round) {
      std::array<std::vector<std::byte>, 3> streams;  // two of data, and the headers
      std::vector<std::vector<std::byte>> messages(kQueueDepth);
      for (std::vector<std::byte>& message : messages) {
        message.resize(sizes[random() % std::size(sizes)]);
        fill_pattern(message, sequence + 1);
        const auto total = static_cast<uint32_t>(message.size());
        const uint32_t cut = random() % 2 == 0 ? kPageBytes : kLongestApart;
        for (uint32_t offset = 0; offset == 0 || offset < total; offset += cut) {
          const auto socket = static_cast<uint16_t>(random() % 2);
          const uint32_t bytes = std::min(cut, total - offset);
          const auto header =
              encoded({.sequence = sequence, .total = total, .offset = offset, .bytes = bytes, .cut = cut, .socket = socket});
          streams[2].insert(streams[2].end(), header.begin(), header.end());
          streams[socket].insert(streams[socket].end(), message.begin() + offset, message.begin() + offset + bytes);
        }
        ++sequence;
      }
      constexpr size_t kEach = 6 * kLongestApart;
      std::vector<abi::TcpxRequest*> requests;
      const size_t early = random() % (kQueueDepth + 1);
      while (requests.size() < early) requests.push_back(post(kEach, requests.size() * kEach));
      const size_t most = round % 2 == 0 ? 500 : 100'000;
      std::array<size_t, 3> sent{};
      while (sent[0] + sent[1] + sent[2] < streams[0].size() + streams[1].size() + streams[2].size()) {
        const size_t i = random() % 3, n = std::min<size_t>(1 + random() % most, streams[i].size() - sent[i]);
        const auto piece = std::span(streams[i]).subspan(sent[i], n);
        send_bytes(i == 2 ? wire_->theirs.control : wire_->theirs.data[i], piece);
        sent[i] += n;
      }
      while (requests.size() < kQueueDepth) requests.push_back(post(kEach, requests.size() * kEach));
      for (size_t i = 0; i < kQueueDepth; ++i) {
        ASSERT_TRUE(is_done(*comm_, requests[i])) << round << ", " << i;
        ASSERT_EQ(requests[i]->size, static_cast<int>(messages[i].size()));
        std::vector<std::byte> arrived(target_.host() + i * kEach, target_.host() + i * kEach + messages[i].size());
        if (type == MemoryType::kCuda) {
          const auto* list = static_cast<const Fragment*>(requests[i]->unpack_slot.mem);
          for (uint64_t f = 0; f < *requests[i]->unpack_slot.cnt; ++f) {
            ASSERT_LE(list[f].dst_off + list[f].len, arrived.size());
            std::memcpy(arrived.data() + list[f].dst_off, pool_->host_base() + list[f].src_off, list[f].len);
          }
        }
        ASSERT_TRUE(arrived == messages[i]) << round << ", " << i;
        ASSERT_OK(comm_->consumed(requests[i]));
      }
    }
  }
}

// Nothing waits where memory has no bound: headers that nobody needs yet stay in the kernel, and none is lost.
TEST_F(ApartReceiver, HeadersWithoutPayloadAreBoundedAndLoseNothing) {
  start(MemoryType::kHost, 4096);
  constexpr uint64_t kMany = 20'000;
  uint64_t sent = 0, left = 0;
  std::array<std::byte, kChunkHeaderBytes> header;
  const auto send_on = [&] {  // true: there is no room
    for (;; left = 0) {
      if (left == 0) {
        if (sent == kMany) return false;
        header = encoded(whole(sent, 1, static_cast<uint16_t>(sent / 100 % 2)));
        ++sent;
        left = header.size();
      }
      while (left > 0) {
        const ssize_t n = ::send(wire_->theirs.control.get(), header.end() - left, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) return true;
        left -= static_cast<size_t>(n);
      }
    }
  };
  uint64_t before = 0;
  do {
    before = sent;
    ASSERT_TRUE(send_on());
    wait_until_quiet(wire_->theirs.control);
  } while (before != sent);
  EXPECT_GT(sent, HeaderQueue::kMost);
  uint64_t paid = 0;
  for (uint64_t sequence = 0; sequence < sent && sequence < 2000; ++sequence) {
    abi::TcpxRequest* request = post(1);
    (void)send_on();
    for (; paid <= sequence + 3 && paid < sent; ++paid) {
      const std::byte payload = static_cast<std::byte>(paid);
      send_payload(paid / 100 % 2, {&payload, 1});
    }
    ASSERT_TRUE(is_done(*comm_, request)) << sequence;
    ASSERT_EQ(*target_.host(), static_cast<std::byte>(sequence));
    ASSERT_OK(comm_->consumed(request));
  }
}

TEST_F(ApartReceiver, AHeaderThatLiesEndsTheConnectionAndWritesNothing) {
  struct Lie {
    const char* reason;
    std::function<void(ChunkHeader&)> tell;
  };
  const Lie lies[] = {
      {"data socket 2 of 2", [](ChunkHeader& header) { header.socket = 2; }},
      {"data socket 65535 of 2", [](ChunkHeader& header) { header.socket = 0xffff; }},
      {"message 0 after message 1", [](ChunkHeader& header) { header.sequence = 0; }},
      {"were agreed", [](ChunkHeader& header) { header.cut = 2 * kLongestApart; }},
      {"chunk of", [](ChunkHeader& header) { header.bytes += 1; }},
      {"message of", [](ChunkHeader& header) { header.total = 0xffffffff; }},
  };
  for (const Lie& lie : lies) {
    start();
    abi::TcpxRequest *first = post(0), *second = post(kLongestApart);
    send_header(whole(0, 0));
    send_header(whole(1, 0));
    ASSERT_TRUE(is_done(*comm_, first));
    ASSERT_TRUE(is_done(*comm_, second));
    abi::TcpxRequest* third = post(kLongestApart);
    ChunkHeader header = whole(2, 100);
    lie.tell(header);
    send_header(header);
    send_payload(0, std::vector<std::byte>(100, std::byte{1}));
    const Status status = error_of(*comm_, third);
    EXPECT_EQ(status.code(), Code::kPeerGone);
    EXPECT_NE(status.detail().find(lie.reason), std::string::npos) << status.to_string();
    EXPECT_TRUE(is_untouched()) << lie.reason;
  }
}

TEST_F(ApartReceiver, AFlippedByteOfAHeaderEndsTheConnection) {
  for (size_t i = 0; i < kChunkHeaderBytes; ++i) {
    start();
    abi::TcpxRequest* request = post(100);
    auto header = encoded(whole(0, 100));
    header[i] ^= std::byte{0x10};
    send_payload(0, std::vector<std::byte>(100, std::byte{1}));
    send_bytes(wire_->theirs.control, header);
    EXPECT_EQ(error_of(*comm_, request).code(), Code::kPeerGone) << i;
    EXPECT_TRUE(is_untouched()) << i;
  }
}

TEST_F(ApartReceiver, AMessageThatContradictsItselfEndsTheConnection) {
  abi::TcpxRequest* request = post(4 * kLongestApart);
  const ChunkHeader first = {.total = 2 * kLongestApart, .offset = 0, .bytes = kLongestApart, .cut = kLongestApart};
  send_header(first);
  send_header(first);
  send_payload(0, std::vector<std::byte>(2 * kLongestApart));
  const Status status = error_of(*comm_, request);
  EXPECT_NE(status.detail().find("came twice"), std::string::npos) << status.to_string();
}

TEST_F(ApartReceiver, WhatIsCompleteStaysSoThoughThePeerHasGone) {
  std::vector<std::byte> message(5000);
  fill_pattern(message, 3);
  send_payload(1, message);
  send_header(whole(0, 0));
  send_header(whole(1, 5000, 1));
  send_header(whole(2, 0));
  wire_->theirs = {};
  std::vector<abi::TcpxRequest*> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(post(kLongestApart));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(is_done(*comm_, requests[i])) << i;
  EXPECT_TRUE(std::equal(message.begin(), message.end(), target_.host()));
  EXPECT_EQ(error_of(*comm_, requests[3]).code(), Code::kPeerGone);
}

// Every way to lose one socket, in every state: an error, and no hang.
TEST_F(ApartReceiver, IsToldWhicheverSocketIsLost) {
  const std::pair<const char*, std::function<void()>> states[] = {
      {"nothing sent", [] {}},
      {"half a header", [&] { send_bytes(wire_->theirs.control, std::vector<std::byte>(kChunkHeaderBytes / 2)); }},
      {"a header without payload", [&] { send_header(whole(0, 100)); }},
      {"headers without end",
       [&] {
         for (uint64_t i = 0; i < 2 * HeaderQueue::kMost; ++i) send_header(whole(i, 100));
       }},
      {"payload without a header",
       [&] {
         send_payload(0, std::vector<std::byte>(100));
         send_payload(1, std::vector<std::byte>(100));
       }},
      {"half a payload",
       [&] {
         send_header(whole(0, 100, 1));
         send_payload(1, std::vector<std::byte>(50));
       }},
      {"a later message",
       [&] {
         send_header(whole(5, 100));
         send_payload(0, std::vector<std::byte>(100));
       }},
  };
  struct Loss {
    std::string name;
    std::unique_ptr<Wire> wire;
    MemoryBuffer target;
    std::unique_ptr<SoftRecvComm> comm;
    abi::TcpxRequest* request;
  };
  std::vector<Loss> losses;
  for (const auto& [state, send] : states) {
    for (const size_t lost : {0, 1, 2}) {
      for (const bool reset : {false, true}) {
        start();
        abi::TcpxRequest* request = post(kLongestApart);
        send();
        UniqueFd& fd = lost == 2 ? wire_->theirs.control : wire_->theirs.data[lost];
        const linger at_once = {.l_onoff = reset, .l_linger = 0};
        ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        fd.reset();
        losses.push_back({concat(state, ", socket ", lost, reset ? " reset" : " ended"), std::move(wire_), std::move(target_),
                          std::move(comm_), request});
      }
    }
  }
  size_t untold = losses.size();
  wait_until([&] {
    for (Loss& loss : losses) {
      if (loss.request == nullptr) continue;
      const auto answer = loss.comm->test(loss.request);
      if (answer.is_ok() && !answer->done) continue;
      const Code code = answer.status().code();
      EXPECT_TRUE(code == Code::kPeerGone || code == Code::kSystem) << loss.name << ": " << answer.status().to_string();
      loss.request = nullptr;
      --untold;
    }
    return untold == 0;
  });
  for (const Loss& loss : losses) EXPECT_EQ(loss.request, nullptr) << loss.name << ": a hang";
}

TEST(HeaderQueueTest, TellsWhoWaits) {
  using Pushed = HeaderQueue::Pushed;
  HeaderQueue queue;
  EXPECT_FALSE(queue.is_awaited());
  EXPECT_FALSE(queue.take().header);
  EXPECT_TRUE(queue.is_awaited());
  EXPECT_EQ(queue.push({.sequence = 0}), Pushed::kAwaited);
  EXPECT_FALSE(queue.is_awaited());
  EXPECT_EQ(queue.untaken_bytes(), kChunkHeaderBytes);
  for (uint64_t i = 1; i < HeaderQueue::kMost; ++i) EXPECT_EQ(queue.push({.sequence = i}), Pushed::kQueued);
  auto taken = queue.take();
  EXPECT_FALSE(taken.from_full) << "nobody was refused";
  EXPECT_EQ(queue.untaken_bytes(), 0u) << "they wait for the payload of the one taken";
  EXPECT_EQ(queue.push({.sequence = HeaderQueue::kMost}), Pushed::kQueued);
  EXPECT_EQ(queue.push({}), Pushed::kFull);
  queue.end();
  for (uint64_t i = 1; i <= HeaderQueue::kMost; ++i) {
    taken = queue.take();
    ASSERT_TRUE(taken.header && !taken.is_end);
    EXPECT_EQ(taken.header->sequence, i);
    EXPECT_EQ(taken.from_full, i == 1);
  }
  EXPECT_TRUE(queue.take().is_end);
}

}  // namespace
}  // namespace tcpx::testing
