// A link whose peer is of the same host, moved step by step: it copies from the peer's memory by itself, and says where its own
// lies.
#include <sys/wait.h>
#include <unistd.h>

#include "lanes/pull/pull_lane.h"
#include "tests/support/near_link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkPulls : public NearLinkTest {};

TEST_F(LinkPulls, AWriteOfThePeer) {
  offer_write({source(0, kLong)});
  ASSERT_TRUE(pulled());
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(has_peers(host_, kLong));
  EXPECT_EQ(link_->stats().bytes_received, kLong);
  EXPECT_EQ(link_->stats().chunks_in_flight, 0u);
}

// Cut at other places at each end.
TEST_F(LinkPulls, PiecesOfAnyLength) {
  std::vector<WireSource> sources;
  std::vector<WireRange> ranges;
  Bytes wanted;
  size_t from = kPart;
  for (size_t at = 0, length = 1; at < kLong; at += length, length = length * 3 % 997 + 1) {
    length = std::min(length, kLong - at);
    from -= length;  // backwards
    sources.push_back(source(from, length));
    wanted.insert(wanted.end(), peers_.begin() + static_cast<ptrdiff_t>(from),
                  peers_.begin() + static_cast<ptrdiff_t>(from + length));
  }
  for (size_t at = 0, length = 1; at < kLong; at += length, length = length * 5 % 1009 + 1) {
    length = std::min(length, kLong - at);
    ranges.push_back(advertised(host_id_, at, length));
  }
  offer_write(sources, ranges);
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), host_.begin()));
}

TEST_F(LinkPulls, AReceiveThatComesLater) {
  offer_send({source(0, kLong)});
  steps(3);
  EXPECT_FALSE(hear(FrameType::kGo));
  const OperationId id = receive(host(0, kLong));
  ASSERT_TRUE(pulled());
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(host_, kLong));
}

TEST_F(LinkPulls, AReadOfItsOwn) {
  const OperationId id = read(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kRead));
  offer_read(id, {source(0, kLong)});
  ASSERT_TRUE(pulled(true));
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(host_, kLong));
}

// More long ones are under way than run at once.
TEST_F(LinkPulls, AShortOneDoesNotWaitBehindLongOnes) {
  constexpr size_t kEach = 2 * HostCopier::kAtOnceAlone, kCount = 2 * PullLane::kMaxRunning;
  const Bytes theirs = pattern(kEach, 4);
  Bytes here(kCount * kEach);
  const MemoryId id = registry_.add(here.data(), here.size(), MemoryType::kHost).value();
  OperationPayload payload;
  for (size_t i = 0; i < kCount; ++i) {
    payload.ranges = {{registry_.advertise(kConn, id, here.data() + i * kEach, kEach).value().id, 0, kEach}};
    payload.sources = {{.share = kHostMemory, .address = reinterpret_cast<uint64_t>(theirs.data()), .bytes = kEach}};
    say(FrameType::kWrite, kOperation + 1 + i, 0, kEach, Packing::kPacked, &payload);
  }
  offer_write({source(0, kLong)});
  size_t before = 0;  // long ones that end before it
  for (bool found = false; !found; before += found ? 0 : 1) {
    const auto done = await(FrameType::kDone);
    ASSERT_TRUE(done);
    found = done->operation == kOperation;
  }
  EXPECT_LT(before, PullLane::kMaxRunning);
  EXPECT_TRUE(has_peers(host_, kLong));
  for (size_t i = before; i < kCount; ++i) ASSERT_TRUE(await(FrameType::kDone));
  for (size_t i = 0; i < kCount; ++i)
    EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), here.begin() + static_cast<ptrdiff_t>(i * kEach)));
}

// The places that it names in its own memory are true, and the operation ends with the peer's word.
TEST_F(LinkPulls, ThePeerCopies) {
  const OperationId written = write(host(7, kLong)), sent = send(device(9, kLong));
  for (const auto& [type, id, memory, offset] :
       {std::tuple{FrameType::kWrite, written, &host_, 7}, std::tuple{FrameType::kSend, sent, &device_, 9}}) {
    const auto offered = offer(type);
    ASSERT_TRUE(offered);
    ASSERT_EQ(offered->sources.size(), 1u);
    EXPECT_EQ(offered->sources[0].share, kHostMemory);
    EXPECT_EQ(offered->sources[0].address, reinterpret_cast<uint64_t>(memory->data() + offset));
    EXPECT_EQ(offered->sources[0].bytes, kLong);
    EXPECT_TRUE(pending(id));
    say_go(id, Way::kPull);
  }
  expect_ends(sent, written);
}

TEST_F(LinkPulls, ThePeerReads) {
  ask(FrameType::kRead, kOperation);
  const auto ready = await(FrameType::kReady);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->bytes, kLong);
  EXPECT_EQ(ready->payload_bytes, 2 * sizeof(OfferHeader) + sizeof(WireSource));
  EXPECT_TRUE(link_->serves(host_id_));
  say_go(OperationId{kOperation}, Way::kPull, true);
  steps(3);
  EXPECT_TRUE(alive());
  EXPECT_FALSE(link_->serves(host_id_));
  EXPECT_EQ(link_->stats().bytes_sent, kLong);
}

// Memory that is pulled may be such as the plugin does not take, and nothing is registered or staged for the network in vain.
TEST_F(LinkPulls, TheNetworkIsNotAsked) {
  const uint64_t asked = fake_.calls(Call::kRegister);
  fake_.fail_call(Call::kRegister, 1, Status(Code::kExhausted, "register memory", "the plugin takes none"));
  const OperationId written = write(host(0, kLong)), sent = send(device(0, kLong));
  for (const auto& [type, id] : {std::pair{FrameType::kWrite, written}, {FrameType::kSend, sent}}) {
    ASSERT_TRUE(offer(type));
    say_go(id, Way::kPull);
  }
  expect_ends(sent, written);
  ask(FrameType::kRead, kOperation);
  ASSERT_TRUE(await(FrameType::kReady));
  say_go(OperationId{kOperation}, Way::kPull, true);
  offer_write({source(0, kLong)});
  ASSERT_TRUE(pulled());
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(alive());
  EXPECT_EQ(fake_.calls(Call::kRegister), asked);
}

// Whoever asks for the network all the same gets what any memory is fit for, and the next time what this memory is.
TEST_F(LinkPulls, ThePeerWantsTheNetwork) {
  for (const Packing over_network : {Packing::kPacked, Packing::kWhole}) {
    const OperationId id = write(host(0, kLong));
    const auto offered = await(FrameType::kWrite);
    ASSERT_TRUE(offered);
    EXPECT_EQ(offered->packing, static_cast<uint8_t>(over_network));
    EXPECT_NE(offered->payload_bytes, 0u);
    std::fill(peers_.begin(), peers_.end(), std::byte{0});
    (void)receive_at_peer();
    say(FrameType::kGo, static_cast<uint64_t>(id), 0, 0, over_network);
    ASSERT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
    say_done(id);
    ASSERT_TRUE(drive([&] { return !pending(id); }));
    EXPECT_TRUE(end_of(id).is_ok());
    EXPECT_TRUE(has_peers(host_, kLong));
  }
}

// It may have copied what was no longer kept for it: nothing of that counts.
TEST_F(LinkPulls, WhatAPeerHasGivenUpDoesNotCount) {
  const OperationId id = receive(host(0, kLong));
  peer_alive() = 0;
  offer_send({source(0, kLong)});
  expect_refused(Code::kPeerGone);
  EXPECT_EQ(end_of(id).code(), Code::kPeerGone);
  EXPECT_FALSE(hear(FrameType::kGo));
}

TEST_F(LinkPulls, TheEndIsSaidBeforeMemoryIsGivenBack) {
  const OperationId id = write(host(0, kLong));
  steps(3);
  EXPECT_EQ(host_peer_->own_alive(), 1u);
  link_->fail(Status(Code::kTimeout, "test", "given up"));
  EXPECT_EQ(end_of(id).code(), Code::kTimeout);
  EXPECT_EQ(peer_area_.alive(true), 0u);
}

// Memory that cannot be pulled goes over the lanes.
TEST_F(LinkPulls, TheLanesTakeTheRest) {
  host_peer_->reads_memory = false;
  offer_write({source(0, kLong)});
  const auto go = await(FrameType::kGo);
  ASSERT_TRUE(go);
  EXPECT_NE(go->way, static_cast<uint8_t>(Way::kPull));
  EXPECT_TRUE(alive());
}

// The process is there and does not let itself be read, as one whose first thread has ended: what has begun comes through the ring,
// and so does the next, of which nothing is tried.
TEST_F(LinkPulls, APeerThatMayNoLongerBeReadIsLeftToTheRing) {
  allow_log("from now on it comes through memory that both share");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  offer_write({source(0, kLong)});
  ASSERT_TRUE(pulled());
  ASSERT_TRUE(await(FrameType::kDone));
  host_peer_->pid = child;
  std::fill(host_.begin(), host_.end(), std::byte{0});
  const OperationId id = read(device(0, kLong));
  ASSERT_TRUE(await(FrameType::kRead));
  offer_read(id, {source(0, kLong)});
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, kLong)};
  payload.sources = {source(kPart - kLong, kLong)};
  payload.ring = true;
  say(FrameType::kWrite, kOperation + 1, 0, kLong, Packing::kPacked, &payload);
  const auto first = await(FrameType::kGo), second = await(FrameType::kGo);  // in the order in which their copies have failed
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->value, second->value) << "one of them is the read's";
  for (const auto& go : {first, second}) {
    EXPECT_EQ(go->way, static_cast<uint8_t>(Way::kRing));
    const bool of_read = go->value == 1;
    EXPECT_EQ(put(of_read ? std::span(peers_).first(kLong) : std::span(peers_).last(kLong)), kLong);
  }
  ASSERT_TRUE(await(FrameType::kDone));
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(device_, kLong));
  EXPECT_TRUE(std::equal(peers_.end() - kLong, peers_.end(), host_.begin()));
  host_peer_->pid = ::getpid();
  offer_write({source(0, kLong)});
  const auto go = await(FrameType::kGo);
  ASSERT_TRUE(go);
  EXPECT_EQ(go->way, static_cast<uint8_t>(Way::kRing)) << "not tried again";
}

// Memory that is not there is no matter of rights.
TEST_F(LinkPulls, MemoryThatIsGoneEndsTheLink) {
  offer_write({{.share = kHostMemory, .address = 4096, .bytes = kLong}});
  expect_refused(Code::kSystem);
}

// GPU memory that is no GPU's cannot be mapped: it is not pulled, and the number stays taken.
TEST_F(LinkPulls, SharesAreChecked) {
  const MemoryShare memory{.kind = ShareKind::kIpc, .base = 4096, .bytes = 4096};
  share(2, memory);
  offer_write({source(0, kLong, 2)});
  const auto go = await(FrameType::kGo);
  ASSERT_TRUE(go);
  EXPECT_NE(go->way, static_cast<uint8_t>(Way::kPull));
  say_pull(PullTalk::kUnshare, 2);
  steps(3);
  EXPECT_TRUE(alive());
  share(3, memory);
  share(3, memory);
  expect_refused();
}

TEST_F(LinkPulls, SharesAreBounded) {
  const MemoryShare memory{.kind = ShareKind::kIpc, .base = 4096, .bytes = 4096};
  for (uint64_t number = 2; number < 2 + kMaxShares; ++number) {
    share(number, memory);
    if (number % 256 == 0) step();
  }
  steps(3);
  EXPECT_TRUE(alive());
  share(1'000'000, memory);
  expect_refused();
}

TEST_F(LinkPulls, WhatNoPeerOfOursSays) {
  const std::pair<const char*, std::vector<WireSource>> cases[] = {
      {"fewer bytes than are said", {source(0, kLong - 1)}},
      {"more", {source(0, kLong), source(0, 1)}},
      {"an empty one", {source(0, 0), source(0, kLong)}},
      {"one that wraps", {{.share = 0, .address = ~uint64_t{0}, .bytes = kLong}}},
      {"a sum that wraps", {{.share = 0, .address = 0, .bytes = ~uint64_t{0}}, {.share = 0, .address = 0, .bytes = kLong + 1}}}};
  for (const auto& [name, sources] : cases) {
    for (const FrameType type : {FrameType::kReady, FrameType::kSend, FrameType::kWrite}) {
      SCOPED_TRACE(std::string(name) + ", " + std::string(name_of(type)));
      allow_log("has ended: ");
      renew(make_host(true));
      if (type == FrameType::kSend) {
        offer_send(sources);
      } else if (type == FrameType::kWrite) {
        offer_write(sources);
      } else {
        const OperationId id = read(host(0, kLong));
        ASSERT_TRUE(await(FrameType::kRead));
        offer_read(id, sources);
      }
      expect_refused();
    }
  }
}

TEST_F(LinkPulls, SourcesThatAreCutOff) {
  std::vector<std::byte> offers;
  append_offer(Way::kPull, std::vector<std::byte>(sizeof(WireSource) + 1), offers);
  const OperationId id = read(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kRead));
  say_raw(make_header(FrameType::kReady, static_cast<uint64_t>(id), 0, kLong), offers);
  expect_refused();
}

TEST_F(LinkPulls, MessagesThatNoLaneUnderstands) {
  const MemoryShare memory{.kind = ShareKind::kIpc, .base = 4096, .bytes = 4096};
  const auto words = std::as_bytes(std::span(&memory, 1));
  const auto lane = [](uint64_t what, uint64_t to_sender, Way way) {
    return make_header(FrameType::kLane, 2, what, to_sender, Packing::kWhole, way);
  };
  const std::tuple<const char*, FrameHeader, std::span<const std::byte>> cases[] = {
      {"a share that is cut off", lane(0, 0, Way::kPull), words.first(words.size() - 1)},
      {"of an unknown kind", lane(3, 0, Way::kPull), words},
      {"a share to the sender", lane(0, 1, Way::kPull), words},
      {"to the ring", lane(0, 0, Way::kRing), {}},
      {"to a way that this end has not", lane(0, 0, Way{9}), {}}};
  for (const auto& [name, header, payload] : cases) {
    SCOPED_TRACE(name);
    allow_log("has ended: ");
    renew(make_host(true));
    say_raw(header, payload);
    expect_refused();
  }
}

// A later build may have more ways than this one.
TEST_F(LinkPulls, AnOfferByAWayThatThisEndHasNot) {
  std::vector<std::byte> offers;
  append_offer(Way{9}, std::vector<std::byte>(5), offers);
  const std::vector<std::byte> known = offers_of({source(0, kLong)});
  offers.insert(offers.end(), known.begin(), known.end());
  const OperationId id = read(host(0, kLong));
  ASSERT_TRUE(await(FrameType::kRead));
  say_raw(make_header(FrameType::kReady, static_cast<uint64_t>(id), 0, kLong), offers);
  ASSERT_TRUE(pulled(true));
  EXPECT_TRUE(end_of(id).is_ok());
  EXPECT_TRUE(has_peers(host_, kLong));
}

TEST_F(LinkPulls, AnUnshareOfNothing) {
  say_pull(PullTalk::kUnshare, 5);
  expect_refused();
}

}  // namespace
}  // namespace tcpx::testing
