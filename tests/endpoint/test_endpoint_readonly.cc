// Memory that may only be read, such as a mapped file of weights, is a source: for sends and writes of this end and for reads of the
// other. What would change it is refused by the call that asks for it, because a store to it ends the process.
#include <gtest/gtest.h>

#include <algorithm>

#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/mapping.h"

namespace tcpx {
namespace {

using testing::GuardedBuffer;
using testing::Mapping;

class EndpointReadonly : public testing::EndpointPairTest {
 protected:
  static constexpr size_t kBytes = 1 << 20, kPage = 4096;

  void prepare() override {
    make_pair();
    fill_pattern(weights_.span(), 1);
    Mapping::make_read_only(weights_.span());
    near_ = range(a_, weights_.span());
    far_ = range(b_, theirs_.span());
    slot_ = b_->advertise(b_.conn, far_).value();
  }
  void TearDown() override {
    if (b_.endpoint == nullptr) return;
    EXPECT_TRUE(verify_pattern(weights_.span(), 1).is_ok());
    // The connection is of use as before.
    const auto received = b_->recv_async(b_.conn, far_);
    EXPECT_TRUE(done(a_, a_->send_async(a_.conn, near_)));
    EXPECT_TRUE(done(b_, received));
    EXPECT_TRUE(verify_pattern(theirs_.span(), 1).is_ok());
  }
  LocalRange part(size_t bytes) const { return {near_.memory, near_.data, bytes}; }
  static ::testing::AssertionResult refused(const Status& status) {
    if (status.code() == Code::kInvalidArgument && status.detail().find("may only be read") != std::string::npos)
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << status.to_string();
  }

  Mapping weights_{kBytes};
  GuardedBuffer theirs_{kBytes};
  LocalRange near_, far_;
  RemoteSlot slot_;
};
TCPX_OVER_SETUPS(EndpointReadonly, testing::few_setups());

TEST_P(EndpointReadonly, IsASourceOfBothEnds) {
  for (const size_t bytes : {size_t{100}, kBytes}) {
    const LocalRange source = part(bytes), target{far_.memory, far_.data, bytes};
    theirs_.clear();
    EXPECT_TRUE(done(a_, a_->write_async(a_.conn, source, {slot_})));
    EXPECT_TRUE(verify_pattern(theirs_.span().first(bytes), 1).is_ok());
    theirs_.clear();
    const RemoteSlot own = a_->advertise(a_.conn, source).value();
    EXPECT_TRUE(done(b_, b_->read_async(b_.conn, target, {own})));
    EXPECT_TRUE(verify_pattern(theirs_.span().first(bytes), 1).is_ok());
    EXPECT_EQ(b_->write(b_.conn, target, {own}).code(), Code::kInvalidArgument);
  }
}

TEST_P(EndpointReadonly, IsNotAdvertisedForWriting) {
  const AdvertiseOptions for_writing{.after_stream = {}, .access = SlotAccess::kReadWrite};
  for (const Status& status : {a_->advertise(a_.conn, near_, for_writing).status(), a_->advertise(near_, for_writing).status(),
                               a_->advertise(part(1), for_writing).status()})
    EXPECT_TRUE(refused(status));
  EXPECT_EQ(a_->stats().advertised_ranges, 0u);
}

TEST_P(EndpointReadonly, IsNoTarget) {
  GuardedBuffer own(kBytes);
  const LocalRange good = range(a_, own.span().first(kPage));
  for (const size_t bytes : {size_t{1}, size_t{100}, kBytes}) {
    EXPECT_TRUE(refused(a_->recv(a_.conn, part(bytes)))) << bytes;
    EXPECT_TRUE(refused(a_->read(a_.conn, part(bytes), {slot_}))) << bytes;
  }
  const LocalRange with_good[] = {good, part(8), good};
  const RemoteRange places[] = {{slot_}, {slot_, kPage}, {slot_, 2 * kPage}};
  EXPECT_TRUE(refused(a_->recv(a_.conn, with_good)));
  EXPECT_TRUE(refused(a_->read(a_.conn, with_good, places)));
  // More of them than a peer is told of at once.
  std::vector<LocalRange> many(Endpoint::kMaxRanges + 1, LocalRange{good.memory, good.data, 1});
  many.back() = part(1);
  EXPECT_TRUE(refused(a_->read(a_.conn, many, std::vector<RemoteRange>(many.size(), RemoteRange{slot_}))));
  EXPECT_EQ(a_->stats().operations_outstanding, 0u) << "a refused call leaves no operation behind";
  // Nothing is written of nothing.
  const LocalRange with_nothing[] = {part(0), good};
  EXPECT_TRUE(done(a_, a_->read_async(a_.conn, with_nothing, std::span(places).first(2))));
}

TEST_P(EndpointReadonly, IsNoTargetOfAPlan) {
  GuardedBuffer own(kBytes);
  const LocalRange good = range(a_, own.span().first(kPage));
  const LocalRange ranges[] = {good, part(kPage), good};
  const RemoteRange places[] = {{slot_}, {slot_, kPage}, {slot_, 2 * kPage}};
  const TransferPlan plan = a_->prepare(ranges, places).value();
  EXPECT_TRUE(refused(a_->read_async(a_.conn, plan).status()));
  const uint32_t first_and_last[] = {0, 2}, two[] = {2, 1};
  EXPECT_TRUE(done(a_, a_->read_async(a_.conn, plan, first_and_last))) << "those that may be written";
  EXPECT_TRUE(refused(a_->read_async(a_.conn, plan, two).status()));
  EXPECT_TRUE(done(a_, a_->write_async(a_.conn, plan)));
  const TransferPlan blocks = a_->prepare_blocks(near_, {slot_}, kPage).value();
  EXPECT_TRUE(refused(a_->read_async(a_.conn, blocks).status()));
  EXPECT_TRUE(refused(a_->read_async(a_.conn, blocks, two, two).status()));
  EXPECT_TRUE(done(a_, a_->write_async(a_.conn, blocks)));
}

TEST_P(EndpointReadonly, MemoryThatCannotBeReadIsNone) {
  Mapping memory(kBytes);
  Mapping::take_away(memory.span().subspan(kBytes / 2, kPage));
  const auto reg = [&](std::span<std::byte> bytes) {
    return a_->register_memory(bytes.data(), bytes.size(), setup_.memory).status();
  };
  for (const Status& status :
       {reg(memory.span()), reg(memory.span().first(kBytes / 2 + 1)), reg(memory.span().subspan(kBytes / 2 + 8, 8))}) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.detail().find("may not read"), std::string::npos) << status.to_string();
  }
  EXPECT_TRUE(reg(memory.span().first(kBytes / 2)).is_ok());
}

TEST_P(EndpointReadonly, RegisteredAnewItIsWhatItIsNow) {
  Mapping memory(kBytes);
  Mapping::make_read_only(memory.span());
  const LocalRange before = range(a_, memory.span());
  EXPECT_EQ(range(a_, memory.span()).memory, before.memory);
  Mapping::make_writable(memory.span());
  const LocalRange after = range(a_, memory.span());
  EXPECT_TRUE(done(a_, a_->read_async(a_.conn, after, {slot_})));
  EXPECT_TRUE(a_->advertise(after).is_ok());
  EXPECT_TRUE(refused(a_->advertise(before, {.after_stream = {}, .access = SlotAccess::kReadWrite}).status()));
  for (const LocalRange& one : {before, before, after}) EXPECT_TRUE(a_->deregister(one.memory).is_ok());
}

}  // namespace
}  // namespace tcpx
