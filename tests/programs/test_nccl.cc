// NCCL measured by bench_soft_plugin: what tests/nccl/bandwidth.py prints, and the start of its two ranks, with a script in its place
// that needs no GPU.
#include "programs/compare/nccl.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

constexpr char kGood[] =
    R"({"label": "default", "samples": 7, "gbps": {"1048576": [2.5, 2.75, 3], "8": [0.0001, 0.0002, 0.0003]},)"
    R"( "core_seconds_per_gb": {"1048576": 0.5}, "half_round_trip_us": {"8": [28, 30.5, 44]}, "verified": true})";

TEST(NcclResult, ReadsWhatTheScriptPrints) {
  const Result<MeasuredRun> run = parse_nccl_result(kGood);
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_EQ(run->name, "default");
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
  const Result<MeasuredRun> run = parse_nccl_result(text);
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
    const Result<MeasuredRun> run = parse_nccl_result(text);
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

/// First lines of every script.
constexpr char kBegin[] = "import json, os, sys, time\nrank = int(os.environ['RANK'])\n";

class NcclRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Child> python = Child::start({"python3", "-c", "exit(0)"}, {}, {});
    if (!python.is_ok() || python->wait() != 0) GTEST_SKIP() << "no python3";
  }
  Result<MeasuredRun> run(const std::string& script) {
    const NcclOptions options{
        .script = kBegin + script, .gpus = {2, 5}, .sizes = {8, 4096}, .ping_pong_sizes = {8}, .milliseconds = 30};
    return run_nccl({.label = "a label", .variables = {{"NCCL_NSOCKS_PERTHREAD", "3"}}}, options, stop_);
  }

  std::atomic<bool> stop_ = false;
};

TEST_F(NcclRuns, StartsTwoRanksAndReadsTheSecondOnesResult) {
  const Result<MeasuredRun> run = this->run(R"(
env = os.environ
assert env['NCCL_P2P_DISABLE'] == '1' and env['NCCL_SHM_DISABLE'] == '1' and env['NCCL_SOCKET_IFNAME'] == 'lo'
assert env['NCCL_NSOCKS_PERTHREAD'] == '3' and env['WORLD_SIZE'] == '2' and env['MASTER_ADDR'] == '127.0.0.1'
assert 0 < int(env['MASTER_PORT']) < 65536
assert sys.argv[1:] == ['--gpus', '2,5', '--sizes', '8,4096', '--ping-pong-sizes', '8', '--milliseconds', '30'], sys.argv
print('a library says something')
print(json.dumps({'label': env['LABEL'] + str(rank), 'samples': 5, 'gbps': {8: [1, 2, 3]}, 'core_seconds_per_gb': {8: 4},
                  'half_round_trip_us': {8: [5, 6, 7]}, 'verified': True}))
)");
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_EQ(run->name, "a label1");
  EXPECT_EQ(run->one_way.at(8).summary, (Summary{5, 1, 2, 3}));
  EXPECT_EQ(run->ping_pong.at(8).summary, (Summary{5, 5, 6, 7}));
}

TEST_F(NcclRuns, TheBuiltInScriptIsPython) {
  Result<Child> python = Child::start(
      {"python3", "-c", "import ast, sys; assert 'samples' in ast.get_docstring(ast.parse(sys.argv[1]))", kNcclScript}, {}, {});
  ASSERT_TRUE(python.is_ok());
  EXPECT_EQ(python->wait(), 0);
}

TEST_F(NcclRuns, SayWhatTheRankThatFailedSaidLast) {
  for (const char* rank : {"0", "1"}) {
    const Result<MeasuredRun> run =
        this->run(std::string("if rank == ") + rank + ":\n  print('first')\n  sys.exit('NCCL is\\tunhappy')\ntime.sleep(1000)\n");
    ASSERT_FALSE(run.is_ok());
    EXPECT_EQ(run.status().code(), Code::kSystem);
    EXPECT_EQ(run.status().detail(), "ended with exit code 1: NCCL is?unhappy");
  }
}

TEST_F(NcclRuns, RefuseAScriptThatPrintsNoResult) {
  EXPECT_EQ(run("print('done')\n").status().code(), Code::kProtocol);
}

TEST_F(NcclRuns, StopWhenAskedTo) {
  stop_ = true;
  EXPECT_EQ(run("time.sleep(1000)\n").status().code(), Code::kCancelled);
}

TEST(FindNccl, SaysWhatIsMissing) {
  const std::atomic<bool> stop = false;
  const Result<std::string> one_gpu = find_nccl({.gpus = {0, 0}, .sizes = {}, .ping_pong_sizes = {}}, stop);
  ASSERT_FALSE(one_gpu.is_ok());
  EXPECT_EQ(one_gpu.status().detail(), "it needs two GPUs");
}

}  // namespace
}  // namespace tcpx
