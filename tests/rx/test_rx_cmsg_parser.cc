// Both dialects, every refusal, and random message sequences whose outcome is known by construction.
#include "rx/rx_cmsg_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/support/cmsg_builder.h"
#include "tests/support/guarded_bytes.h"

namespace tcpx {
namespace {

using testing::CmsgBuilder;
using testing::GuardedBytes;
using testing::kCmsgHeaderBytes;
using testing::kSolSocket;

constexpr uint64_t kFourGiB = uint64_t{1} << 32;
constexpr int kIpProto = 0;     // IPPROTO_IP
constexpr int kTimestamp = 29;  // SO_TIMESTAMP

class RxCmsgParser : public ::testing::TestWithParam<CmsgDialect> {
 protected:
  ParsedCmsg parse(uint64_t received_bytes, uint64_t dst_off = 0, bool truncated = false) const {
    const GuardedBytes control(cmsgs_.bytes());
    return parse_rx_cmsg({control.get(), truncated, received_bytes, dst_off, GetParam()});
  }
  void expect_error(const ParsedCmsg& parsed, CmsgError error, size_t at, std::vector<uint32_t> tokens) const {
    EXPECT_EQ(name_of(parsed.error), name_of(error));
    EXPECT_EQ(parsed.error_at, at);
    EXPECT_EQ(parsed.tokens, tokens);
    EXPECT_TRUE(parsed.fragments.empty());
  }
  std::vector<std::byte> payload(size_t bytes) const { return std::vector<std::byte>(bytes, std::byte{0x5A}); }

  CmsgBuilder cmsgs_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Dialects, RxCmsgParser, ::testing::Values(CmsgDialect::kGoogle, CmsgDialect::kLinux),
                         [](const auto& which) { return which.param == CmsgDialect::kGoogle ? "Google" : "Linux"; });

TEST_P(RxCmsgParser, FragmentsFollowEachOtherFromDstOff) {
  cmsgs_.device(8192, 4096, 7);
  cmsgs_.device(100, 53, 8);
  cmsgs_.device(0, 1, 0xFFFFFFFF);
  const ParsedCmsg parsed = parse(4150, 1000);
  ASSERT_EQ(name_of(parsed.error), name_of(CmsgError::kNone));
  EXPECT_EQ(parsed.fragments, (std::vector<Fragment>{{8192, 4096, 1000}, {100, 53, 5096}, {0, 1, 5149}}));
  EXPECT_EQ(parsed.tokens, (std::vector<uint32_t>{7, 8, 0xFFFFFFFF}));
  EXPECT_EQ(parsed.linear_bytes, 0u);
}

TEST_P(RxCmsgParser, EndOfStreamIsNoError) {
  const ParsedCmsg parsed = parse(0);
  EXPECT_EQ(parsed.error, CmsgError::kNone);
  EXPECT_TRUE(parsed.fragments.empty());
  EXPECT_TRUE(parsed.tokens.empty());
}

TEST_P(RxCmsgParser, BytesWithoutAnyRecord) {
  expect_error(parse(1), CmsgError::kNoRecord, 0, {});
  cmsgs_.message(kIpProto, 8, payload(4));
  expect_error(parse(1), CmsgError::kNoRecord, 24, {});
}

TEST_P(RxCmsgParser, MessagesOfOtherLevelsAreSkipped) {
  cmsgs_.message(kIpProto, cmsgs_.device_type(), payload(3));
  cmsgs_.device(0, 10, 1);
  cmsgs_.message(6, cmsgs_.linear_type(), payload(40));
  cmsgs_.message(kIpProto, 8, {});
  cmsgs_.device(10, 10, 2);
  const ParsedCmsg parsed = parse(20);
  EXPECT_EQ(parsed.error, CmsgError::kNone);
  EXPECT_EQ(parsed.fragments, (std::vector<Fragment>{{0, 10, 0}, {10, 10, 10}}));
  EXPECT_EQ(parsed.tokens, (std::vector<uint32_t>{1, 2}));
}

TEST_P(RxCmsgParser, UnknownSocketTypeIsAnErrorAndLaterTokensAreKept) {
  cmsgs_.device(0, 10, 1);
  const size_t at = cmsgs_.message(kSolSocket, kTimestamp, payload(cmsgs_.record_bytes()));
  cmsgs_.device(10, 10, 2);
  expect_error(parse(20), CmsgError::kUnknownType, at, {1, 2});
}

TEST_P(RxCmsgParser, TheOtherDialectIsNotGuessed) {
  CmsgBuilder other(GetParam() == CmsgDialect::kGoogle ? CmsgDialect::kLinux : CmsgDialect::kGoogle);
  other.device(0, 10, 1);
  cmsgs_.bytes() = other.bytes();
  expect_error(parse(10), CmsgError::kUnknownType, 0, {});
}

TEST_P(RxCmsgParser, Trap23_LinearBytesAreATypedErrorNotAnExit) {
  cmsgs_.device(0, 10, 1);
  const size_t at = cmsgs_.linear(66);
  cmsgs_.linear(4);
  cmsgs_.device(4096, 10, 2);
  const ParsedCmsg parsed = parse(90);
  expect_error(parsed, CmsgError::kLinear, at, {1, 2});
  EXPECT_EQ(parsed.linear_bytes, 70u);
}

TEST_P(RxCmsgParser, ACallerWithHostMemoryIsToldWhatLiesThere) {
  cmsgs_.linear(66);
  cmsgs_.device(4096, 100, 1);
  cmsgs_.linear(4);
  const GuardedBytes control(cmsgs_.bytes());
  CmsgInput input{control.get(), false, 170, 1000, GetParam(), true};
  ParsedCmsg parsed = parse_rx_cmsg(input);
  ASSERT_EQ(name_of(parsed.error), name_of(CmsgError::kNone));
  EXPECT_EQ(parsed.fragments, (std::vector<Fragment>{{4096, 100, 1066}}));
  EXPECT_EQ(parsed.linear, (std::vector<Fragment>{{0, 66, 1000}, {66, 4, 1166}}));
  EXPECT_EQ(parsed.linear_bytes, 70u);

  for (const uint64_t received : {169, 171}) {
    input.received_bytes = received;
    parsed = parse_rx_cmsg(input);
    EXPECT_EQ(name_of(parsed.error), name_of(received == 169 ? CmsgError::kOverflow : CmsgError::kSizeMismatch));
    EXPECT_TRUE(parsed.fragments.empty() && parsed.linear.empty());
    EXPECT_EQ(parsed.tokens, std::vector<uint32_t>{1});
  }
}

TEST_P(RxCmsgParser, WithoutARecordAllLiesInHostMemoryUnlessRecordsWereLost) {
  CmsgInput input{.received_bytes = 500, .dst_off = 7, .dialect = GetParam(), .takes_linear = true};
  EXPECT_EQ(parse_rx_cmsg(input).linear, (std::vector<Fragment>{{0, 500, 7}}));
  EXPECT_EQ(parse_rx_cmsg(input).linear_bytes, 500u);
  input.control_truncated = true;
  EXPECT_EQ(name_of(parse_rx_cmsg(input).error), name_of(CmsgError::kTruncated));
  input.control_truncated = false;
  input.received_bytes = kFourGiB - 1;
  EXPECT_EQ(parse_rx_cmsg(input).linear, (std::vector<Fragment>{{0, 0xFFFFFFFF, 7}}));
  input.received_bytes = kFourGiB;  // no fragment is so long
  EXPECT_EQ(name_of(parse_rx_cmsg(input).error), name_of(CmsgError::kOverflow));
  EXPECT_TRUE(parse_rx_cmsg(input).linear.empty());
  input = {.dialect = GetParam(), .takes_linear = true};
  EXPECT_EQ(name_of(parse_rx_cmsg(input).error), name_of(CmsgError::kNone));
  EXPECT_TRUE(parse_rx_cmsg(input).linear.empty());
}

TEST_P(RxCmsgParser, LinearBytesBeyond32BitsAreCounted) {
  cmsgs_.linear(0xFFFFFFFF);
  cmsgs_.linear(0xFFFFFFFF);
  const ParsedCmsg parsed = parse(10);
  expect_error(parsed, CmsgError::kLinear, 0, {});
  EXPECT_EQ(parsed.linear_bytes, 2 * uint64_t{0xFFFFFFFF});
}

TEST_P(RxCmsgParser, Trap23_TruncationFlagIsATypedErrorAndKeepsTokens) {
  cmsgs_.device(0, 10, 1);
  cmsgs_.device(10, 10, 2);
  expect_error(parse(20, 0, true), CmsgError::kTruncated, cmsgs_.bytes().size(), {1, 2});
  // Any other error is a consequence of it.
  cmsgs_.cut_last(8);
  expect_error(parse(20, 0, true), CmsgError::kTruncated, cmsgs_.bytes().size(), {1});
  expect_error(parse(0, 0, true), CmsgError::kTruncated, cmsgs_.bytes().size(), {1});
}

TEST_P(RxCmsgParser, EveryShortenedRecordIsFoundWithoutTheFlag) {
  cmsgs_.device(0, 10, 1);
  const size_t last = cmsgs_.device(10, 10, 2);
  const size_t complete = last + kCmsgHeaderBytes + cmsgs_.record_bytes();
  const CmsgBuilder whole = cmsgs_;
  for (size_t size = last; size <= whole.bytes().size(); ++size) {
    SCOPED_TRACE(size);
    cmsgs_.bytes().assign(whole.bytes().begin(), whole.bytes().begin() + static_cast<ptrdiff_t>(size));
    const ParsedCmsg parsed = parse(20);
    if (size == last) {
      expect_error(parsed, CmsgError::kSizeMismatch, last, {1});
    } else if (size < last + kCmsgHeaderBytes) {
      expect_error(parsed, CmsgError::kShortHeader, last, {1});
    } else if (size < complete) {
      expect_error(parsed, CmsgError::kShortRecord, last, {1});
    } else {  // only padding is missing
      EXPECT_EQ(parsed.error, CmsgError::kNone);
      EXPECT_EQ(parsed.tokens, (std::vector<uint32_t>{1, 2}));
    }
  }
}

TEST_P(RxCmsgParser, ShortenedRecordWhoseLengthWasAdjustedIsFound) {
  const std::vector<std::byte> record = cmsgs_.record(0, 10, 1, 0);
  for (size_t bytes = 0; bytes < record.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    cmsgs_ = CmsgBuilder(GetParam());
    cmsgs_.device(0, 10, 5);
    const size_t at = cmsgs_.message(kSolSocket, cmsgs_.device_type(), std::span(record).first(bytes));
    cmsgs_.device(10, 10, 6);
    expect_error(parse(30), CmsgError::kShortRecord, at, {5, 6});
    cmsgs_.bytes()[at + 12] = static_cast<std::byte>(cmsgs_.linear_type());
    const ParsedCmsg parsed = parse(30);
    expect_error(parsed, CmsgError::kShortRecord, at, {5, 6});
    EXPECT_EQ(parsed.linear_bytes, 0u);
  }
}

TEST_P(RxCmsgParser, LongerRecordIsReadByItsBeginning) {
  std::vector<std::byte> record = cmsgs_.record(64, 10, 3, 0);
  record.resize(record.size() + 20, std::byte{0xFF});
  cmsgs_.message(kSolSocket, cmsgs_.device_type(), record);
  cmsgs_.device(0, 10, 4);
  const ParsedCmsg parsed = parse(20);
  EXPECT_EQ(parsed.error, CmsgError::kNone);
  EXPECT_EQ(parsed.fragments, (std::vector<Fragment>{{64, 10, 0}, {0, 10, 10}}));
}

TEST_P(RxCmsgParser, HeaderThatLiesAboutItsLengthEndsTheWalk) {
  const std::vector<std::byte> record = cmsgs_.record(0, 10, 2, 0);
  const uint64_t left = (kCmsgHeaderBytes + record.size() + 7) / 8 * 8;
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  for (const uint64_t len : {uint64_t{0}, uint64_t{1}, kCmsgHeaderBytes - 1, left + 1, uint64_t{1} << 31, uint64_t{1} << 63,
                             most - 7, most - 6, most - 1, most}) {
    for (const int level : {kSolSocket, kIpProto}) {
      SCOPED_TRACE(len);
      cmsgs_ = CmsgBuilder(GetParam());
      cmsgs_.device(0, 10, 1);
      const size_t at = cmsgs_.lying_message(len, level, cmsgs_.device_type(), record);
      expect_error(parse(20), len < kCmsgHeaderBytes ? CmsgError::kShortHeader : CmsgError::kShortRecord, at, {1});
    }
  }
}

TEST_P(RxCmsgParser, ZeroLengthFragmentKeepsItsToken) {
  cmsgs_.device(0, 10, 1);
  const size_t at = cmsgs_.device(10, 0, 2);
  cmsgs_.device(10, 10, 3);
  expect_error(parse(20), CmsgError::kZeroLength, at, {1, 2, 3});
}

TEST_P(RxCmsgParser, PoolOffsetsEndAtFourGiB) {
  cmsgs_.device(kFourGiB - 1, 1, 1);
  cmsgs_.device(kFourGiB - 4096, 4096, 2);
  cmsgs_.device(1, 0xFFFFFFFF, 3);
  EXPECT_EQ(parse(4097 + uint64_t{0xFFFFFFFF}).error, CmsgError::kNone);

  for (const auto& [src_off, len] :
       {std::pair<uint64_t, uint32_t>{kFourGiB - 1, 2}, {kFourGiB - 4096, 4097}, {2, 0xFFFFFFFF}, {kFourGiB - 1, 0xFFFFFFFF}}) {
    cmsgs_ = CmsgBuilder(GetParam());
    cmsgs_.device(0, 10, 1);
    const size_t at = cmsgs_.device(src_off, len, 2);
    cmsgs_.device(10, 10, 3);
    expect_error(parse(kFourGiB * 2), CmsgError::kOverflow, at, {1, 2, 3});
  }
}

TEST_P(RxCmsgParser, SumBeyondWhatWasReceivedOverflows) {
  cmsgs_.device(0, 10, 1);
  const size_t at = cmsgs_.device(10, 11, 2);
  EXPECT_EQ(parse(21).error, CmsgError::kNone);
  expect_error(parse(20), CmsgError::kOverflow, at, {1, 2});
  expect_error(parse(0), CmsgError::kOverflow, 0, {1, 2});
}

TEST_P(RxCmsgParser, SumsThatWrapIn32BitsAreFound) {
  cmsgs_.device(0, 0x80000000, 1);
  const size_t at = cmsgs_.device(0, 0x80000000, 2);
  cmsgs_.device(0, 100, 3);
  expect_error(parse(100), CmsgError::kOverflow, 0, {1, 2, 3});
  expect_error(parse(0x80000064), CmsgError::kOverflow, at, {1, 2, 3});
  const ParsedCmsg parsed = parse(kFourGiB + 100);
  EXPECT_EQ(parsed.error, CmsgError::kNone);
  EXPECT_EQ(parsed.fragments[2].dst_off, kFourGiB);
}

TEST_P(RxCmsgParser, DstOffRunsIn64BitsAndMustNotWrap) {
  cmsgs_.device(0, 10, 1);
  cmsgs_.device(10, 10, 2);
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  const ParsedCmsg parsed = parse(20, most - 20);
  EXPECT_EQ(parsed.error, CmsgError::kNone);
  EXPECT_EQ(parsed.fragments[1].dst_off, most - 10);
  expect_error(parse(20, most - 19), CmsgError::kOverflow, cmsgs_.bytes().size(), {1, 2});
}

TEST_P(RxCmsgParser, MissingBytesAreASizeMismatch) {
  cmsgs_.device(0, 10, 1);
  expect_error(parse(11), CmsgError::kSizeMismatch, cmsgs_.bytes().size(), {1});
}

TEST_P(RxCmsgParser, Trap23_2048FragmentsAreLegalAndOneMoreIsATypedError) {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 2048; ++i) {
    cmsgs_.device(i, 1, i);
    tokens.push_back(i);
  }
  const ParsedCmsg parsed = parse(2048);
  EXPECT_EQ(parsed.error, CmsgError::kNone);
  EXPECT_EQ(parsed.fragments.size(), 2048u);
  EXPECT_EQ(parsed.tokens, tokens);

  const size_t at = cmsgs_.device(2048, 1, 2048);
  cmsgs_.device(2049, 1, 2049);
  tokens.insert(tokens.end(), {2048, 2049});
  expect_error(parse(2050), CmsgError::kTooMany, at, tokens);
}

TEST_P(RxCmsgParser, TheFirstErrorWins) {
  cmsgs_.device(0, 10, 1);
  const size_t at = cmsgs_.device(10, 0, 2);
  cmsgs_.linear(5);
  cmsgs_.message(kSolSocket, kTimestamp, {});
  cmsgs_.device(10, 0xFFFFFFFF, 3);
  cmsgs_.bytes().resize(cmsgs_.bytes().size() + 3);
  expect_error(parse(1), CmsgError::kOverflow, 0, {1, 2, 3});
  expect_error(parse(30), CmsgError::kZeroLength, at, {1, 2, 3});
}

TEST_P(RxCmsgParser, AnyBufferAlignment) {
  cmsgs_.device(8192, 4096, 7, 3);
  cmsgs_.device(100, 53, 8, 3);
  alignas(16) std::byte room[256];
  for (size_t shift = 0; shift < 16; ++shift) {
    SCOPED_TRACE(shift);
    std::copy(cmsgs_.bytes().begin(), cmsgs_.bytes().end(), room + shift);
    const ParsedCmsg parsed = parse_rx_cmsg({{room + shift, cmsgs_.bytes().size()}, false, 4149, 0, GetParam()});
    EXPECT_EQ(parsed.error, CmsgError::kNone);
    EXPECT_EQ(parsed.fragments, (std::vector<Fragment>{{8192, 4096, 0}, {100, 53, 4096}}));
    EXPECT_EQ(parsed.tokens, (std::vector<uint32_t>{7, 8}));
  }
}

// Sequences are made of parts of known meaning, so the expected outcome follows from the construction.
TEST_P(RxCmsgParser, RandomSequencesEndAsTheyWereMade) {
  std::mt19937_64 random(20240817);
  const auto below = [&](uint64_t n) { return random() % n; };
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    SCOPED_TRACE(round);
    cmsgs_ = CmsgBuilder(GetParam());
    std::vector<Fragment> fragments;
    std::vector<uint32_t> tokens;
    CmsgError error = CmsgError::kNone;
    size_t error_at = 0;
    uint64_t linear_bytes = 0;
    const uint64_t start = random() >> 2;
    uint64_t sum = 0;
    const auto broke = [&](CmsgError what, size_t at) {
      if (error == CmsgError::kNone) error = what, error_at = at;
    };
    const bool only_good = below(3) == 0;
    const uint64_t parts = below(9);
    for (uint64_t part = 0; part < parts; ++part) {
      const auto src_off = static_cast<uint32_t>(below(kFourGiB - 4096));
      const auto token = static_cast<uint32_t>(random());
      switch (only_good ? below(6) : below(16)) {
        case 0:
          cmsgs_.message(static_cast<int>(2 + below(300)), cmsgs_.device_type(), payload(below(50)));
          break;
        case 6:
          broke(CmsgError::kUnknownType, cmsgs_.message(kSolSocket, static_cast<int>(1 + below(70)), payload(below(50))));
          break;
        case 7: {
          const auto len = static_cast<uint32_t>(below(10000));
          broke(CmsgError::kLinear, cmsgs_.linear(len));
          linear_bytes += len;
          break;
        }
        case 8:
          broke(CmsgError::kShortRecord, cmsgs_.message(kSolSocket, cmsgs_.device_type(), payload(below(cmsgs_.record_bytes()))));
          break;
        case 9:
          broke(CmsgError::kZeroLength, cmsgs_.device(src_off, 0, token));
          tokens.push_back(token);
          break;
        default: {
          const auto len = static_cast<uint32_t>(1 + below(4096));
          cmsgs_.device(src_off, len, token);
          tokens.push_back(token);
          fragments.push_back({src_off, len, start + sum});
          sum += len;
        }
      }
    }
    const ParsedCmsg parsed = parse(sum, start);
    EXPECT_EQ(name_of(parsed.error), name_of(error));
    EXPECT_EQ(parsed.error_at, error_at);
    EXPECT_EQ(parsed.tokens, tokens);
    EXPECT_EQ(parsed.linear_bytes, linear_bytes);
    EXPECT_EQ(parsed.fragments, error == CmsgError::kNone ? fragments : std::vector<Fragment>{});
    if (HasFailure()) return;
    accepted += error == CmsgError::kNone ? 1 : 0;
  }
  EXPECT_GT(accepted, 5000);
  EXPECT_LT(accepted, 15000);
}

TEST(RxCmsgParserLinux, OffsetBeyond32BitsOverflows) {
  for (const uint64_t src_off : {kFourGiB, kFourGiB + 4096, std::numeric_limits<uint64_t>::max()}) {
    CmsgBuilder cmsgs(CmsgDialect::kLinux);
    cmsgs.device(src_off, 1, 9);
    const ParsedCmsg parsed = parse_rx_cmsg({cmsgs.bytes(), false, 1, 0, CmsgDialect::kLinux});
    EXPECT_EQ(parsed.error, CmsgError::kOverflow);
    EXPECT_EQ(parsed.tokens, (std::vector<uint32_t>{9}));
  }
}

TEST(RxCmsgParserLinux, AllRecordsNameOneDmabuf) {
  CmsgBuilder cmsgs(CmsgDialect::kLinux);
  cmsgs.device(0, 10, 1, 5);
  cmsgs.device(10, 10, 2, 5);
  const ParsedCmsg one = parse_rx_cmsg({cmsgs.bytes(), false, 20, 0, CmsgDialect::kLinux});
  EXPECT_EQ(one.error, CmsgError::kNone);
  EXPECT_EQ(one.dmabuf_id, 5u);

  const size_t at = cmsgs.device(20, 10, 3, 6);
  cmsgs.device(30, 10, 4, 5);
  const ParsedCmsg two = parse_rx_cmsg({cmsgs.bytes(), false, 40, 0, CmsgDialect::kLinux});
  EXPECT_EQ(two.error, CmsgError::kMixedDmabufs);
  EXPECT_EQ(two.error_at, at);
  EXPECT_EQ(two.tokens, (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_TRUE(two.fragments.empty());
}

TEST(RxCmsgParserNames, EveryErrorHasItsOwn) {
  std::vector<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(CmsgError::kNoRecord); ++i) names.push_back(name_of(static_cast<CmsgError>(i)));
  EXPECT_EQ(std::count(names.begin(), names.end(), "unknown error"), 0);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace tcpx
