// Sends from memory that the host cannot read, over sockets whose other ends the test reads.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "measure/pattern.h"
#include "net/soft/send_socket.h"
#include "tests/support/expect_log.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/io_blocker.h"
#include "tests/support/soft_wire.h"
#include "tests/support/units.h"

namespace tcpx::testing {

using namespace soft;

/// Data received from one data socket so far.
class Reader {
 public:
  Reader(int fd, uint32_t most_chunk_bytes) : fd_(fd), most_chunk_bytes_(most_chunk_bytes) {}
  size_t chunks = 0;  ///< begun

  /// Reads the available bytes into `messages`, which have their sizes already.
  void read(std::vector<std::vector<std::byte>>& messages, size_t& bytes_read) {
    for (;;) {
      std::span<std::byte> into = std::span(header_).subspan(header_read_);
      if (into.empty())
        into = std::span(messages.at(chunk_.sequence)).subspan(chunk_.offset + payload_read_, chunk_.bytes - payload_read_);
      const ssize_t n = ::recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
      if (n <= 0) return;
      if (header_read_ < kChunkHeaderBytes) {
        header_read_ += static_cast<size_t>(n);
        if (header_read_ < kChunkHeaderBytes) continue;
        const auto header = must(decode_chunk_header(header_, most_chunk_bytes_));
        ASSERT_LT(header.sequence, messages.size());
        ASSERT_EQ(header.total, messages[header.sequence].size());
        chunk_ = header;
        payload_read_ = 0;
        ++chunks;
      } else {
        payload_read_ += static_cast<uint32_t>(n);
        bytes_read += static_cast<size_t>(n);
      }
      if (payload_read_ == chunk_.bytes) header_read_ = 0;
    }
  }

 private:
  int fd_;
  uint32_t most_chunk_bytes_;
  std::array<std::byte, kChunkHeaderBytes> header_{};
  size_t header_read_ = 0;
  ChunkHeader chunk_;
  uint32_t payload_read_ = 0;
};

/// A sending comm with hidden memory full of a pattern, and its peer.
class Sender {
 public:
  Sender(HiddenMemoryOps& memory, std::shared_ptr<IoPool> io, std::shared_ptr<StagingPool> staging, uint32_t chunk_bytes,
         size_t bytes, uint64_t seed, int buffer_bytes, size_t data_sockets = 2, bool spare_copies = false, bool encrypts = false)
      : wire(chunk_bytes, buffer_bytes, data_sockets), content(bytes), source(std::move(*memory.allocate_device(0, bytes))) {
    wire.ours.spare_copies = spare_copies;
    for (size_t i = 0; encrypts && i < data_sockets; ++i)
      wire.ours.ciphers.push_back(must(RecordCipher::create(must(Secret::zeros(32)), RecordCipher::Work::kSeals)));
    comm = must(SoftSendComm::create(memory, 0, std::move(io), std::move(staging), std::move(wire.ours)));
    fill_pattern(content, seed);
    EXPECT_TRUE((*memory.make_copy_lane(0))->copy(source.device(), content.data(), bytes).is_ok());
    for (const UniqueFd& fd : wire.theirs.data) readers.emplace_back(fd.get(), wire.chunk_bytes());
  }

  void register_source() { region = must(comm->register_region(source.device(), content.size(), MemoryType::kCuda)); }
  abi::TcpxRequest* post(size_t offset, size_t bytes) { return post(source.device(), region, offset, bytes); }
  /// Posts the same bytes, from memory that the host can read.
  abi::TcpxRequest* post_from_host(size_t offset, size_t bytes) {
    if (host_region == nullptr) host_region = *comm->register_region(content.data(), content.size(), MemoryType::kHost);
    return post(content.data(), host_region, offset, bytes);
  }
  abi::TcpxRequest* post(const std::byte* from, SoftRegion* with, size_t offset, size_t bytes) {
    requests.push_back(must(comm->isend(from + offset, static_cast<int>(bytes), 0, with)));
    sent.emplace_back(offset, bytes);
    arrived.emplace_back(bytes);
    return requests.back();
  }
  /// Reads the available bytes. True when all posted messages have arrived.
  bool read() {
    for (Reader& reader : readers) reader.read(arrived, bytes_read);
    size_t posted = 0;
    for (const auto& message : arrived) posted += message.size();
    return bytes_read == posted;
  }
  bool has_read_more_than(size_t bytes) {
    read();
    return bytes_read > bytes;
  }
  void expect_done() {
    for (; tested < requests.size(); ++tested)
      ASSERT_TRUE(wait_until([&] { return comm->test(requests[tested])->done; })) << "message " << tested;
  }
  void expect_arrived_and_done() {
    expect_arrived();
    expect_done();
  }
  /// The comm may have been closed.
  void expect_arrived() {
    ASSERT_TRUE(wait_until([&] { return read(); })) << bytes_read << " bytes";
    for (; compared < requests.size(); ++compared) {
      const auto [offset, bytes] = sent[compared];
      EXPECT_TRUE(
          std::equal(arrived[compared].begin(), arrived[compared].end(), content.begin() + static_cast<std::ptrdiff_t>(offset)))
          << "message " << compared;
    }
  }

  Wire wire;
  const int data_fd = wire.ours.data[0].get();  // the comm's
  std::vector<std::byte> content;
  MemoryBuffer source;
  std::unique_ptr<SoftSendComm> comm;
  SoftRegion *region = nullptr, *host_region = nullptr;
  std::vector<Reader> readers;
  std::vector<std::pair<size_t, size_t>> sent;
  std::vector<std::vector<std::byte>> arrived;
  std::vector<abi::TcpxRequest*> requests;
  size_t bytes_read = 0, tested = 0, compared = 0;
};

class SoftStaging : public ::testing::Test {
 protected:
  void SetUp() override { allow_log("tcpx-soft"); }
  void TearDown() override {
    EXPECT_EQ(memory_.held_copies(), 0u);
    EXPECT_EQ(staging_.use_count(), 1) << "a comm is left";
    EXPECT_EQ(staging_->free_count(), prepared_ ? StagingPool::kSlots : 0) << "slots lost";
    staging_.reset();
    EXPECT_EQ(memory_.mapped_bytes(), 0u);
  }
  std::unique_ptr<Sender> make(uint32_t chunk_bytes, size_t bytes, uint64_t seed = 1, int buffer_bytes = 0,
                               size_t data_sockets = 2) {
    prepared_ = true;
    auto sender = std::make_unique<Sender>(memory_, io_, staging_, chunk_bytes, bytes, seed, buffer_bytes, data_sockets,
                                           spare_copies_, encrypts_);
    sender->register_source();
    return sender;
  }
  /// A sender by one socket whose message of kUnread bytes is done, though its peer has room for a part only: the kernel has the rest.
  std::unique_ptr<Sender> make_unread(uint64_t seed) {
    auto sender = make(kMiB, kMiB, seed, 0, 1);
    const int room = 256 * 1024, little = 64 * 1024;
    EXPECT_EQ(::setsockopt(sender->wire.theirs.data[0].get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    EXPECT_EQ(::setsockopt(sender->data_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    sender->post(0, kUnread);
    sender->expect_done();
    return sender;
  }
  void send_through_all_slots(uint64_t seed) {
    auto other = make(kMiB, kMiB, seed);
    for (uint32_t i = 0; i < StagingPool::kSlots; ++i) {
      other->post(0, kMiB);
      other->expect_arrived_and_done();
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  bool all_slots_come_back() {
    return wait_until([&] { return staging_->free_count() == StagingPool::kSlots; });
  }
  std::vector<StagingPool::Slot> take_all_slots() {
    std::vector<StagingPool::Slot> all;
    while (auto slot = staging_->try_take()) all.push_back(std::move(slot));
    return all;
  }
  /// Lets one socket of `sender` be full with a message from host memory, and the next message wait in line: all slots are taken.
  void fill_and_wait_in_line(Sender& sender, std::vector<StagingPool::Slot>& all) {
    Blocker blocker(*io_);
    all = take_all_slots();
    sender.post_from_host(0, kLarge);
    sender.post(0, 1000);
    blocker.release();
    ASSERT_TRUE(wait_until([&] { return staging_->is_contended(); }));
  }
  /// Sends until isend starts a copy itself: the sockets are idle once their handlers have run, after the first messages.
  bool copies_itself(Sender& sender) {
    return wait_until([&] {
      sender.post(0, 8);
      sender.expect_arrived_and_done();
      return memory_.copies_started_by(std::this_thread::get_id()) > 0;
    });
  }
  bool some_copy_held(size_t count = 1) {
    return wait_until([&] { return memory_.held_copies() >= count; });
  }

  HiddenMemoryOps memory_;
  std::shared_ptr<IoPool> io_ = *IoPool::create(2);
  std::shared_ptr<StagingPool> staging_ = std::make_shared<StagingPool>(memory_, 0);
  bool prepared_ = false, spare_copies_ = false, encrypts_ = false;
  static constexpr size_t kUnread = 256 * 1024;
  static constexpr uint32_t kLarge = Chunking::kLeastChunkBytes;  // on one socket, and more than small buffers take
};

}  // namespace tcpx::testing
