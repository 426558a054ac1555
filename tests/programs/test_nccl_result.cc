// Output of tests/nccl/bandwidth.py, read by bench_soft_plugin.
#include "programs/compare/nccl_result.h"

#include <gtest/gtest.h>

namespace tcpx::bench {
namespace {

constexpr char kGood[] =
    R"({"label": "default", "samples": 7, "gbps": {"1048576": [2.5, 2.75, 3], "8": [0.0001, 0.0002, 0.0003]},)"
    R"( "core_seconds_per_gb": {"1048576": 0.5}, "half_round_trip_us": {"8": [28, 30.5, 44]}, "verified": true})";

TEST(NcclResult, ReadsWhatTheScriptPrints) {
  const Result<NcclRun> run = parse_nccl_result(kGood);
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_EQ(run->label, "default");
  EXPECT_EQ(run->one_way.size(), 2u);
  EXPECT_EQ(run->one_way.at(1 << 20).summary, (Summary{7, 2.5, 2.75, 3}));
  EXPECT_DOUBLE_EQ(run->one_way.at(1 << 20).gigabytes_per_core_second, 2);
  EXPECT_EQ(run->one_way.at(8).gigabytes_per_core_second, 0);
  EXPECT_EQ(run->ping_pong.size(), 1u);
  EXPECT_EQ(run->ping_pong.at(8).summary, (Summary{7, 28, 30.5, 44}));
  EXPECT_TRUE(run->one_way.at(8).verified());
}

TEST(NcclResult, WrongBytesMakeEveryRowUnverified) {
  std::string text = kGood;
  text.replace(text.find("true"), 4, "false");
  const Result<NcclRun> run = parse_nccl_result(text);
  ASSERT_TRUE(run.is_ok());
  for (const auto& [bytes, measured] : run->one_way) EXPECT_FALSE(measured.verified()) << bytes;
  for (const auto& [bytes, measured] : run->ping_pong) EXPECT_FALSE(measured.verified()) << bytes;
}

TEST(NcclResult, RefusesAnythingElse) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kGood;
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return text.replace(place, from.size(), to);
  };
  const std::vector<std::string> bad = {"",
                                        "[]",
                                        "{\"label\": ",
                                        with("\"label\"", "\"lable\""),
                                        with("\"default\"", "7"),
                                        with("\"samples\": 7", "\"samples\": 0"),
                                        with("\"samples\": 7", "\"samples\": -1"),
                                        with("true", "1"),
                                        with("\"gbps\"", "\"rates\""),
                                        with("\"1048576\": [", "\"1M\": ["),
                                        with("\"1048576\": [", "\"0\": ["),
                                        with("[2.5, 2.75, 3]", "[2.5, 2.75]"),
                                        with("[2.5, 2.75, 3]", "[2.5, \"2.75\", 3]"),
                                        with("[2.5, 2.75, 3]", "[3, 2.75, 2.5]"),
                                        with("[2.5, 2.75, 3]", "[-1, 2.75, 3]"),
                                        with("[2.5, 2.75, 3]", "2.75"),
                                        with("0.5}", "0}"),
                                        with("{\"1048576\": 0.5}", "{\"4096\": 0.5}"),
                                        with("\"core_seconds_per_gb\"", "\"cpu\""),
                                        with("\"half_round_trip_us\": {\"8\": [28, 30.5, 44]}", "\"half_round_trip_us\": 30.5")};
  for (const std::string& text : bad) {
    const Result<NcclRun> run = parse_nccl_result(text);
    ASSERT_FALSE(run.is_ok()) << text;
    EXPECT_EQ(run.status().code(), Code::kProtocol);
  }
}

TEST(NcclResult, TheLastLineWithABraceIsTheResult) {
  EXPECT_EQ(result_line(""), "");
  EXPECT_EQ(result_line("NCCL WARN {\nno brace\n"), "");
  EXPECT_EQ(result_line("warning\n{\"a\": 1}\n{\"b\": 2}\nbye\n"), "{\"b\": 2}");
  EXPECT_EQ(result_line("{\"a\": 1}"), "{\"a\": 1}");
}

}  // namespace
}  // namespace tcpx::bench
