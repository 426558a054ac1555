#include "wire/set_up_messages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/text.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::must;

std::vector<Handle> some_handles(size_t count) {
  std::vector<Handle> handles(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < kHandleBytes; ++k) handles[i].bytes[k] = static_cast<std::byte>(i * 31 + k);
  }
  return handles;
}

template <class T>
Frame patched(Frame frame, size_t offset, T value) {
  std::memcpy(frame.payload.data() + offset, &value, sizeof value);
  return frame;
}

Frame shortened(Frame frame, size_t bytes) {
  frame.payload.resize(frame.payload.size() - bytes);
  return frame;
}

Frame lengthened(Frame frame) {
  frame.payload.push_back(std::byte{0});
  return frame;
}

TEST(BootstrapMessage, HandlesOneAndMany) {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{17}, kMaxHandlesPerFrame}) {
    const auto frame = must(encode_handles(some_handles(count)));
    EXPECT_EQ(frame.payload.size(), 8 + count * 128);
    const auto decoded = must(decode_handles(frame, count));
    EXPECT_EQ(decoded, some_handles(count));
  }
}

TEST(BootstrapMessage, HandleCountsOutOfRangeAreRefused) {
  EXPECT_EQ(encode_handles({}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(encode_handles(some_handles(kMaxHandlesPerFrame + 1)).status().code(), Code::kInvalidArgument);
  const Frame two = *encode_handles(some_handles(2));
  EXPECT_EQ(decode_handles(two, 1).status().code(), Code::kProtocol) << "more than asked for";
  for (const uint32_t count : {0u, 1u, 3u, 257u, 0x02000001u, 0xffffffffu}) {
    EXPECT_EQ(decode_handles(patched(two, 0, count), 1000).status().code(), Code::kProtocol) << count;
  }
  EXPECT_EQ(decode_handles(patched(two, 4, uint32_t{64}), 1000).status().code(), Code::kProtocol) << "handle size";
  EXPECT_EQ(decode_handles(shortened(two, 1), 2).status().code(), Code::kProtocol);
  EXPECT_EQ(decode_handles(lengthened(two), 2).status().code(), Code::kProtocol);
  EXPECT_EQ(decode_handles(Frame{FrameType::kHandles, {}}, 2).status().code(), Code::kProtocol);
}

// Lists that are valid except for their length.
TEST(BootstrapMessage, ListsOfNoneOrOfOneTooManyAreRefused) {
  const Frame one = *encode_handles(some_handles(1));
  EXPECT_EQ(decode_handles(shortened(patched(one, 0, 0u), kHandleBytes), 1).status().code(), Code::kProtocol);
  Frame handles = *encode_handles(some_handles(kMaxHandlesPerFrame));
  handles.payload.resize(handles.payload.size() + kHandleBytes);
  const auto too_many = static_cast<uint32_t>(kMaxHandlesPerFrame) + 1;
  EXPECT_EQ(decode_handles(patched(handles, 0, too_many), 1000).status().code(), Code::kProtocol);

  Parameters most;
  for (size_t i = 0; i < kMaxParameters; ++i) most[std::to_string(i)] = "";
  Frame parameters = *encode_parameters(most);
  const Frame another = *encode_parameters({{"another", ""}});
  parameters.payload.insert(parameters.payload.end(), another.payload.begin() + sizeof(uint32_t), another.payload.end());
  parameters = patched(parameters, 0, static_cast<uint32_t>(kMaxParameters) + 1);
  EXPECT_EQ(decode_parameters(parameters).status().code(), Code::kProtocol);
}

TEST(BootstrapMessage, ParametersTravelAsTheyAre) {
  Parameters largest;
  for (size_t i = 0; i < kMaxParameters; ++i) {
    std::string name = std::to_string(i);
    name.resize(kMaxParameterBytes, 'n');
    largest[name] = std::string(kMaxParameterBytes, 'v');
  }
  for (const Parameters& sent : {Parameters{}, Parameters{{"bytes", "4096"}, {"memory", "cuda"}, {"empty", ""}}, largest}) {
    const auto frame = must(encode_parameters(sent));
    ASSERT_LE(frame.payload.size(), kMaxSetUpPayloadBytes);
    const auto got = must(decode_parameters(frame));
    EXPECT_EQ(got, sent);
  }
}

TEST(BootstrapMessage, ParametersThatDoNotAddUpAreRefused) {
  Parameters many;
  for (size_t i = 0; i <= kMaxParameters; ++i) many[std::to_string(i)] = "";
  EXPECT_EQ(encode_parameters(many).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(encode_parameters({{"x", std::string(kMaxParameterBytes + 1, 'v')}}).status().code(), Code::kInvalidArgument);

  const Frame good = *encode_parameters({{"a", "1"}, {"b", "2"}});
  for (size_t cut = 1; cut <= good.payload.size(); ++cut) {
    EXPECT_EQ(decode_parameters(shortened(good, cut)).status().code(), Code::kProtocol) << cut;
  }
  EXPECT_EQ(decode_parameters(lengthened(good)).status().code(), Code::kProtocol);
  for (const uint32_t count : {0u, 1u, 3u, 31u, 0xffffffffu}) {
    EXPECT_EQ(decode_parameters(patched(good, 0, count)).status().code(), Code::kProtocol) << count;
  }
  EXPECT_EQ(decode_parameters(patched(good, 4, uint16_t{0xffff})).status().code(), Code::kProtocol) << "length of a name";
  EXPECT_EQ(decode_parameters(patched(good, 12, 'a')).status().code(), Code::kProtocol) << "the same name twice";
}

TEST(BootstrapMessage, HelloIsMadePrintable) {
  EXPECT_EQ(*decode_hello(encode_hello("0.1.0")), "0.1.0");
  EXPECT_EQ(*decode_hello(encode_hello("0.1\x1b[2J\n")), "0.1.[2J.");
  EXPECT_EQ(decode_hello(lengthened(encode_hello("x"))).status().code(), Code::kProtocol);
  EXPECT_EQ(decode_hello(shortened(encode_hello("x"), 1)).status().code(), Code::kProtocol);
  const Frame longest = encode_hello(std::string(2000, 'x'));
  EXPECT_EQ(decode_hello(longest)->size(), 1024u);
  EXPECT_EQ(decode_hello(lengthened(patched(longest, 0, uint16_t{1025}))).status().code(), Code::kProtocol);
}

TEST(BootstrapMessage, FinishCarriesEveryCodeAndItsText) {
  Status reported(Code::kInternal, "before", "");
  ASSERT_TRUE(decode_finish(encode_finish(Status::ok()), reported).is_ok());
  EXPECT_TRUE(reported.is_ok());
  for (int32_t code = 1; code <= static_cast<int32_t>(kLastCode); ++code) {
    const Status sent(static_cast<Code>(code), "connect", "refused", Domain::kErrno, 111);
    ASSERT_TRUE(decode_finish(encode_finish(sent), reported).is_ok());
    EXPECT_EQ(reported.code(), sent.code());
    EXPECT_EQ(reported.detail(), "connect: refused (errno 111)");
  }
  ASSERT_TRUE(decode_finish(encode_finish(Status(Code::kInternal, "x", std::string(5000, 'y'))), reported).is_ok());
  EXPECT_EQ(reported.detail().size(), 1024u) << "long texts are cut, not refused";
}

TEST(BootstrapMessage, AnUnknownCodeIsAFailureToo) {
  Frame frame = encode_finish(Status(Code::kCuda, "launch", "no"));
  for (const uint64_t code : {static_cast<uint64_t>(kLastCode) + 1, ~uint64_t{0}}) {
    frame.value = code;
    Status reported;
    ASSERT_TRUE(decode_finish(frame, reported).is_ok());
    EXPECT_EQ(reported.to_string(), concat("TCPX_E_PROTOCOL: peer reported: unknown code ", code, ": launch: no"));
  }
}

TEST(BootstrapMessage, OneTypeIsNotTakenForAnother) {
  const Frame barrier = encode_barrier(3);
  EXPECT_EQ(*decode_barrier(barrier), 3u);
  EXPECT_EQ(decode_barrier(encode_hello("12345678")).status().code(), Code::kProtocol);
  EXPECT_EQ(decode_hello(barrier).status().code(), Code::kProtocol);
  EXPECT_EQ(decode_parameters(barrier).status().code(), Code::kProtocol);
  const Status status = decode_handles(barrier, 1).status();
  EXPECT_EQ(status.detail(), "expected a handles frame, got barrier");
}

}  // namespace
}  // namespace tcpx
