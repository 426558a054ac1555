// Encrypted streams over sockets that take and give bytes in any number: what arrives does not depend on it, and what does not arrive
// whole is not told to have come.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "secure/record_reader.h"
#include "secure/record_writer.h"
#include "tests/support/ok.h"
#include "tests/support/prover.h"
#include "tests/support/socket_pair.h"

namespace tcpx::testing {
namespace {

constexpr uint64_t kFewRecords = 5;  // of a key

std::unique_ptr<RecordCipher> cipher_for(RecordCipher::Work work) {
  return must(RecordCipher::create(secret_of(7), work, kFewRecords));
}

std::vector<std::byte> numbers(size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 31 + (i >> 8));
  return made;
}

class RecordStream : public ::testing::Test {
 protected:
  /// Writes what is left as one piece, or as pieces of up to `piece` bytes. @return false: the socket is full
  bool write_some(std::span<const std::byte> all, size_t& gone, size_t piece) {
    std::vector<iovec> pieces;
    for (size_t at = gone; at < all.size(); at += piece)
      pieces.push_back({const_cast<std::byte*>(all.data()) + at, std::min(piece, all.size() - at)});
    const size_t n = must(writer_.write(pieces));
    gone += n;
    return n > 0;
  }
  /// All that was sent, as it was on the wire.
  std::vector<std::byte> on_the_wire(std::span<const std::byte> content) {
    size_t gone = 0;
    while (gone < content.size()) EXPECT_TRUE(write_some(content, gone, content.size()));
    std::vector<std::byte> wire(content.size() + 100000);
    const ssize_t n = ::recv(sockets_.b.get(), wire.data(), wire.size(), MSG_DONTWAIT);
    wire.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return wire;
  }
  Result<std::optional<size_t>> read_into(std::span<std::byte> room) {
    const iovec piece{room.data(), room.size()};
    return reader_.read({&piece, 1});
  }

  Sockets sockets_ =
      unix_pair();  // it is full after a few hundred kilobytes, and never in the middle of a send that it takes whole
  RecordWriter writer_{sockets_.a.get(), cipher_for(RecordCipher::Work::kSeals)};
  RecordReader reader_{sockets_.b.get(), cipher_for(RecordCipher::Work::kOpens)};
};

TEST_F(RecordStream, ArrivesWhateverTheSizesOfPiecesAndOfRooms) {
  const auto sent = numbers(1'000'000);
  std::mt19937 random(1);
  int size = 5000;
  ASSERT_EQ(::setsockopt(sockets_.a.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
  for (const size_t piece : {1u, 48u, 16384u, 16385u, 1000000u}) {
    RecordWriter writer(sockets_.a.get(), cipher_for(RecordCipher::Work::kSeals));
    RecordReader reader(sockets_.b.get(), cipher_for(RecordCipher::Work::kOpens));
    const size_t bytes = piece == 1 ? 20000 : sent.size();
    std::vector<std::byte> come(bytes + 1);
    size_t gone = 0, arrived = 0, full = 0;
    while (arrived < bytes) {
      std::vector<iovec> pieces, rooms;
      for (size_t at = gone; at < bytes && pieces.size() < 500; at += piece)
        pieces.push_back({const_cast<std::byte*>(sent.data()) + at, std::min(piece, bytes - at)});
      if (gone < bytes || writer.has_unsent()) {
        const size_t n = must(writer.write(pieces));
        gone += n;
        full += n == 0 ? 1 : 0;
      }
      for (size_t at = arrived; at < come.size() && rooms.size() < 3;) {
        rooms.push_back({come.data() + at, std::min<size_t>(random() % 30000, come.size() - at)});
        at += rooms.back().iov_len;
      }
      size_t room = 0;
      for (const iovec& each : rooms) room += each.iov_len;
      if (room == 0) continue;
      const auto n = must(reader.read(rooms));
      if (!n) continue;
      ASSERT_GT(*n, 0u);
      ASSERT_LE(*n, room);
      arrived += *n;
      ASSERT_LE(gone, bytes);
    }
    EXPECT_EQ(gone, bytes) << "all has arrived, so all is gone";
    EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(bytes), come.begin())) << piece;
    EXPECT_TRUE(piece <= 48 || full > 0) << "the socket was never full";
    EXPECT_EQ(reader.held(), 0u);
  }
}

// What the kernel has half of a record of is not gone, and the memory of what is sealed may change.
TEST_F(RecordStream, ContentIsGoneWithItsWholeRecord) {
  auto sent = numbers(3'000'000);
  const auto as_sent = sent;
  size_t gone = 0;
  while (write_some(sent, gone, sent.size())) continue;
  ASSERT_TRUE(writer_.has_unsent());
  ASSERT_EQ(gone % RecordCipher::kContentBytes, 0u);
  std::fill_n(sent.begin() + static_cast<std::ptrdiff_t>(gone), RecordCipher::kContentBytes, std::byte{0});
  std::vector<std::byte> come(sent.size());
  size_t arrived = 0;
  for (bool more = true; more;) {
    const auto n = must(read_into(std::span(come).subspan(arrived)));
    more = n.has_value();
    arrived += n.value_or(0);
    if (!more && writer_.has_unsent()) {
      gone += must(writer_.write({}));
      more = true;
    }
  }
  EXPECT_EQ(arrived, gone);
  EXPECT_TRUE(std::equal(come.begin(), come.begin() + static_cast<std::ptrdiff_t>(arrived), as_sent.begin()));
}

TEST_F(RecordStream, EveryCutOfAStreamArrivesOrIsWaitedFor) {
  const auto sent = numbers(40000);
  const auto wire = on_the_wire(sent);
  std::vector<std::byte> come(sent.size());
  for (size_t cut = 0; cut < wire.size(); cut += cut < 100 || cut % 16406 > 16300 || cut % 16406 < 50 ? 1 : 509) {
    const Sockets pair = unix_pair();
    RecordReader reader(pair.b.get(), cipher_for(RecordCipher::Work::kOpens));
    ASSERT_EQ(::send(pair.a.get(), wire.data(), cut, 0), static_cast<ssize_t>(cut));
    const iovec room{come.data(), come.size()};
    size_t arrived = cut == 0 ? 0 : must(reader.read({&room, 1})).value_or(0);
    ASSERT_EQ(arrived, std::min(cut / RecordCipher::kMostBytes * RecordCipher::kContentBytes, sent.size()));
    const iovec rest{come.data() + arrived, come.size() - arrived};
    ASSERT_FALSE(must(reader.read({&rest, 1})));
    ASSERT_EQ(reader.held(), cut % RecordCipher::kMostBytes);
    ASSERT_EQ(::send(pair.a.get(), wire.data() + cut, wire.size() - cut, 0), static_cast<ssize_t>(wire.size() - cut));
    ASSERT_EQ(must(reader.read({&rest, 1})), sent.size() - arrived);
    ASSERT_EQ(come, sent);
  }
}

TEST_F(RecordStream, NothingOfAForgedRecordReachesTheRoom) {
  const auto sent = numbers(40000);
  const auto wire = on_the_wire(sent);
  for (const size_t changed : {size_t{0}, size_t{3}, size_t{4}, size_t{5}, size_t{1000}, size_t{16404}, size_t{16405}}) {
    auto forged = wire;
    forged[RecordCipher::kMostBytes + changed] ^= std::byte{0x40};  // of the second record
    const Sockets pair = unix_pair();
    RecordReader reader(pair.b.get(), cipher_for(RecordCipher::Work::kOpens));
    ASSERT_EQ(::send(pair.a.get(), forged.data(), forged.size(), 0), static_cast<ssize_t>(forged.size()));
    std::vector<std::byte> come(sent.size());
    const iovec room{come.data(), come.size()};
    Status status;
    for (int i = 0; i < 2 && status.is_ok(); ++i) status = reader.read({&room, 1}).status();
    EXPECT_EQ(status.code(), Code::kProtocol) << changed;
    const auto second = come.begin() + RecordCipher::kContentBytes;
    EXPECT_EQ(std::count(second, come.end(), std::byte{0}), come.end() - second) << changed;
  }
}

TEST_F(RecordStream, TheEndComesAfterTheLastRecord) {
  const auto sent = numbers(100);
  size_t gone = 0;
  ASSERT_TRUE(write_some(sent, gone, 100));
  sockets_.a.reset();
  std::vector<std::byte> come(100);
  EXPECT_EQ(must(read_into(std::span(come).first(60))), 60u);
  EXPECT_EQ(must(read_into(std::span(come).subspan(60))), 40u);
  EXPECT_EQ(come, sent);
  EXPECT_EQ(must(read_into(come)), 0u);
}

TEST_F(RecordStream, ReflectedRecordsAreRefused) {
  const auto wire = on_the_wire(numbers(100));
  ASSERT_EQ(::send(sockets_.b.get(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  Secret other = must(Secret::zeros(32));  // each direction has its own
  RecordReader back(sockets_.a.get(), must(RecordCipher::create(std::move(other), RecordCipher::Work::kOpens)));
  std::byte room[100];
  const iovec piece{room, sizeof room};
  EXPECT_EQ(back.read({&piece, 1}).status().code(), Code::kProtocol);
}

TEST_F(RecordStream, RoomThatHasGoneEndsTheStreamAlone) {
  size_t gone = 0;
  ASSERT_TRUE(write_some(numbers(4096), gone, 4096));
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::munmap(memory, 4096), 0);
  EXPECT_EQ(read_into({static_cast<std::byte*>(memory), 4096}).status().native(), EFAULT);
}

}  // namespace
}  // namespace tcpx::testing
