// Calls that an Endpoint refuses: unknown ids, memory that is not registered, slots that are forged, stale or another
// connection's, metadata that is none. Each says why, touches no memory, and leaves the connection of use.
//
// What is to be refused before it begins is started and not waited for: nobody would end it, should it begin all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/same_bytes.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::GuardedBuffer;

class EndpointRefusals : public testing::EndpointPairTest {
 protected:
  static constexpr size_t kBytes = 100000;

  void prepare() override {
    make_pair({.operation_timeout = milliseconds(10000)}, {.operation_timeout = milliseconds(10000)});
    fill_pattern(mine_.span(), 1);
    near_ = range(a_, mine_.span());
    far_ = range(b_, theirs_.span());
    slot_ = b_->advertise(b_.conn, far_).value();
  }
  void TearDown() override {
    if (b_.endpoint == nullptr || HasFailure()) return;  // what should have been refused stands in the way
    EXPECT_TRUE(theirs_.is_clear()) << "refused, and written all the same";
    const auto received = b_->recv_async(b_.conn, {&far_, 1});
    EXPECT_TRUE(done(a_, a_->send_async(a_.conn, {&near_, 1})));
    EXPECT_TRUE(done(b_, received));
    EXPECT_TRUE(verify_pattern(theirs_.span(), 1).is_ok());
  }
  /// Of a write and a read of `bytes` bytes. @return the code of both
  Code one_sided(const RemoteSlot& slot, uint64_t offset, size_t bytes, ConnId conn) {
    const LocalRange part{near_.memory, near_.data, bytes};
    const RemoteRange place{slot, offset};
    const Status written = a_->write(conn, {&part, 1}, {&place, 1});
    const Status read = a_->read(conn, {&part, 1}, {&place, 1});
    EXPECT_EQ(written.code(), read.code()) << written.to_string() << "; " << read.to_string();
    EXPECT_EQ(written.is_ok(), written.detail().empty());
    return written.code();
  }
  Code one_sided(const RemoteSlot& slot, uint64_t offset = 0, size_t bytes = kBytes) {
    return one_sided(slot, offset, bytes, a_.conn);
  }

  GuardedBuffer mine_{kBytes}, theirs_{kBytes};
  LocalRange near_, far_;
  RemoteSlot slot_;
};
TCPX_OVER_SETUPS(EndpointRefusals, testing::few_setups());

TEST_P(EndpointRefusals, UnknownIds) {
  const LocalRange unknown{MemoryId{99}, near_.data, 8};
  const RemoteRange place{slot_, 0};
  for (const ConnId conn : {ConnId{0}, ConnId{99}, ConnId{~uint64_t{0}}}) {
    EXPECT_EQ(a_->send_async(conn, {&near_, 1}).status().code(), Code::kNotFound);
    EXPECT_EQ(a_->recv_async(conn, {&near_, 1}).status().code(), Code::kNotFound);
    EXPECT_EQ(a_->write_async(conn, {&near_, 1}, {&place, 1}).status().code(), Code::kNotFound);
    EXPECT_EQ(a_->read_async(conn, {&near_, 1}, {&place, 1}).status().code(), Code::kNotFound);
    EXPECT_EQ(a_->advertise(conn, near_).status().code(), Code::kNotFound);
    EXPECT_EQ(a_->notify(conn, {.name = "n", .msg = "m"}).code(), Code::kNotFound);
    EXPECT_EQ(a_->remove_connection(conn).code(), Code::kNotFound);
  }
  EXPECT_EQ(a_->send_async(a_.conn, {&unknown, 1}).status().code(), Code::kNotFound);
  EXPECT_EQ(a_->advertise(a_.conn, unknown).status().code(), Code::kNotFound);
  EXPECT_EQ(a_->deregister(MemoryId{99}).code(), Code::kNotFound);
  EXPECT_EQ(a_->completion_event(OperationId{99}).status().code(), Code::kNotFound);
  EXPECT_EQ(a_->stats().operations_outstanding, 0u);
}

// It ends with the first that begins: further ones lead to addresses where no memory is.
TEST_P(EndpointRefusals, RangesBeyondTheirRegistration) {
  std::byte* const first = static_cast<std::byte*>(near_.data);
  for (const LocalRange& bad :
       {LocalRange{near_.memory, first, kBytes + 1}, LocalRange{near_.memory, first + 1, kBytes},
        LocalRange{near_.memory, first - 1, 1}, LocalRange{near_.memory, first + kBytes, 1},
        LocalRange{near_.memory, first + kBytes + 1, 0}, LocalRange{near_.memory, nullptr, 1},
        LocalRange{near_.memory, first, ~size_t{0}}, LocalRange{near_.memory, first + 2, ~size_t{0} - 1}}) {
    const LocalRange with_good[] = {near_, bad};
    ASSERT_EQ(a_->send_async(a_.conn, {&bad, 1}).status().code(), Code::kInvalidArgument);
    ASSERT_EQ(a_->recv_async(a_.conn, with_good).status().code(), Code::kInvalidArgument);
    ASSERT_EQ(a_->advertise(a_.conn, bad).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(a_->register_memory(nullptr, 8).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->register_memory(first, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->register_memory(first, ~size_t{0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->stats().operations_outstanding, 0u) << "a refused call leaves no operation behind";
}

TEST_P(EndpointRefusals, CallsThatMakeNoSense) {
  const NotifyMsg message{.name = "n", .msg = "m"};
  const NotifyMsg long_name{.name = std::string(257, 'n'), .msg = ""},
      long_text{.name = "", .msg = std::string((1 << 20) + 1, 'm')};
  const RemoteRange place{slot_, 0};
  EXPECT_EQ(a_->recv_async(a_.conn, {&near_, 1}, {.notify = &message}).status().code(), Code::kInvalidArgument);
  for (const NotifyMsg& bad : {long_name, long_text}) {
    EXPECT_EQ(a_->send_async(a_.conn, {&near_, 1}, {.notify = &bad}).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(a_->notify(a_.conn, bad).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(a_->send_async(a_.conn, {&near_, 1}, {.timeout = milliseconds(0)}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->send_async(a_.conn, {&near_, 1}, {.timeout = milliseconds(-5)}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->write_async(a_.conn, {&near_, 1}, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->write_async(a_.conn, {}, {&place, 1}).status().code(), Code::kInvalidArgument);
  const std::vector<LocalRange> many(Endpoint::kMaxRanges + 1, LocalRange{near_.memory, near_.data, 1});
  EXPECT_EQ(a_->send_async(a_.conn, many).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->recv_async(a_.conn, many).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->connect("127.0.0.1", 0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->connect("127.0.0.1", 0, 65536).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->connect("127.0.0.1", -1, 80).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->stats().operations_outstanding, 0u);
}

TEST_P(EndpointRefusals, SlotsThatAreNone) {
  RemoteSlot bad = slot_;
  bad.magic[0] ^= 1;
  EXPECT_EQ(one_sided(bad), Code::kInvalidArgument);
  bad = slot_;
  bad.version = 7;
  EXPECT_EQ(one_sided(bad), Code::kUnsupported);
  bad = slot_;
  bad.id = {};
  EXPECT_EQ(one_sided(bad), Code::kInvalidArgument);
  EXPECT_EQ(one_sided(RemoteSlot{}), Code::kInvalidArgument);
  // Errors that only the advertising end can detect, for short and for long transfers.
  for (const size_t bytes : {size_t{0}, size_t{8}, kBytes}) {
    bad = slot_;
    ++bad.id.low;
    EXPECT_EQ(one_sided(bad, 0, bytes), bytes == 0 ? Code::kOk : Code::kNotFound) << bytes;
  }
}

TEST_P(EndpointRefusals, RangesBeyondASlot) {
  for (const auto& [offset, bytes] : {std::pair<uint64_t, size_t>{0, kBytes}, {kBytes, 1}, {kBytes - 7, 8}, {~uint64_t{0}, 8}}) {
    RemoteSlot smaller = slot_;
    smaller.bytes = kBytes - 1;
    EXPECT_EQ(one_sided(smaller, offset, bytes), Code::kInvalidArgument) << "refused here";
    if (offset == 0) continue;
    // A slot that claims more than was advertised is refused where that is known.
    RemoteSlot larger = slot_;
    larger.bytes = ~uint64_t{0};
    ASSERT_EQ(one_sided(larger, offset, bytes), Code::kInvalidArgument) << "refused there";
  }
  RemoteSlot larger = slot_;
  larger.bytes = 2 * kBytes;
  EXPECT_EQ(one_sided(larger, 1, kBytes), Code::kInvalidArgument);
}

TEST_P(EndpointRefusals, SlotsOfAnotherConnection) {
  testing::Side other = make();
  testing::Side again;
  again.endpoint = std::move(b_.endpoint);  // a second connection to the same endpoint
  connect(other, again);
  b_.endpoint = std::move(again.endpoint);
  GuardedBuffer buffer(kBytes);
  const LocalRange part = range(other, buffer.span());
  const RemoteRange place{slot_, 0};
  EXPECT_EQ(other->write(other.conn, {&part, 1}, {&place, 1}).code(), Code::kNotFound);
  EXPECT_EQ(other->read(other.conn, {&part, 1}, {&place, 1}).code(), Code::kNotFound);
  const RemoteSlot theirs = b_->advertise(again.conn, far_).value();
  EXPECT_EQ(one_sided(theirs), Code::kNotFound);
}

TEST_P(EndpointRefusals, SlotsOfMemoryThatWasDeregistered) {
  GuardedBuffer buffer(kBytes);
  const LocalRange gone = range(b_, buffer.span());
  const RemoteSlot slot = b_->advertise(b_.conn, gone).value();
  ASSERT_TRUE(b_->deregister(gone.memory).is_ok());
  EXPECT_EQ(one_sided(slot), Code::kNotFound);
  EXPECT_EQ(one_sided(slot, 0, 8), Code::kNotFound);
  EXPECT_EQ(b_->deregister(gone.memory).code(), Code::kNotFound);
  EXPECT_EQ(b_->recv(b_.conn, {&gone, 1}).code(), Code::kNotFound);
  // Registered again it is another region with another slot.
  const LocalRange anew = range(b_, buffer.span());
  EXPECT_NE(anew.memory, gone.memory);
  EXPECT_EQ(one_sided(slot), Code::kNotFound);
  EXPECT_EQ(one_sided(b_->advertise(b_.conn, anew).value()), Code::kOk);
}

TEST_P(EndpointRefusals, MemoryInUseStaysRegistered) {
  GuardedBuffer buffer(kBytes);
  testing::Side c = make(), d = make();
  connect(c, d);
  const LocalRange into = range(c, buffer.span());
  const auto received = c->recv_async(c.conn, {&into, 1}, {.timeout = milliseconds(20000)});
  EXPECT_EQ(c->deregister(into.memory, milliseconds(50)).code(), Code::kTimeout);
  ASSERT_TRUE(c->recv_async(c.conn, {&into, 1}).is_ok()) << "it is of use as before";
  const LocalRange from = range(d, mine_.span());
  EXPECT_TRUE(d->send(d.conn, {&from, 1}).is_ok());
  EXPECT_TRUE(done(c, received));
  EXPECT_TRUE(verify_pattern(buffer.span(), 1).is_ok());
}

TEST_P(EndpointRefusals, DeregisteringWaitsForTheTransferUnderWay) {
  constexpr size_t kLarge = 8u << 20;
  for (int round = 0; round < 5; ++round) {
    GuardedBuffer source(kLarge), target(kLarge);
    fill_pattern(source.span(), 5);
    const LocalRange from = range(a_, source.span()), to = range(b_, target.span());
    const RemoteRange place{b_->advertise(b_.conn, to).value(), 0};
    const auto written = a_->write_async(a_.conn, {&from, 1}, {&place, 1});
    for (int i = 0; i < round * 20; ++i) std::this_thread::yield();
    ASSERT_TRUE(b_->deregister(to.memory).is_ok());
    // From here on the memory is the application's: its bytes there stay.
    std::fill_n(target.data(), kLarge, std::byte{0x11});
    const Status status = a_->wait(*written, milliseconds(20000));
    EXPECT_TRUE(status.is_ok() || status.code() == Code::kNotFound) << status.to_string();
    ASSERT_TRUE(a_->deregister(from.memory).is_ok());
    EXPECT_TRUE(testing::all_are(target.span(), std::byte{0x11}));
  }
}

TEST_P(EndpointRefusals, MetadataThatIsNone) {
  const std::vector<uint8_t> good = b_->get_metadata();
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    const std::span<const uint8_t> cut(good.data(), bytes);
    EXPECT_EQ(Endpoint::read_metadata(cut).status().code(), Code::kInvalidArgument) << bytes;
    EXPECT_EQ(a_->add_remote_endpoint(cut).status().code(), Code::kInvalidArgument) << bytes;
  }
  std::vector<uint8_t> bad = good;
  bad.push_back(0);
  EXPECT_EQ(a_->add_remote_endpoint(bad).status().code(), Code::kInvalidArgument);
  bad = good;
  bad[0] ^= 1;
  EXPECT_EQ(a_->add_remote_endpoint(bad).status().code(), Code::kInvalidArgument);
  bad = good;
  ++bad[6];  // the version's low byte
  EXPECT_EQ(a_->add_remote_endpoint(bad).status().code(), Code::kUnsupported);
  EXPECT_EQ(a_->stats().connections.size(), 1u);
}

}  // namespace
}  // namespace tcpx
