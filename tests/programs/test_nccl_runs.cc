// Start of NCCL's two ranks by bench_soft_plugin, with a script in the place of tests/nccl/bandwidth.py that needs no GPU.
#include "programs/compare/nccl_runs.h"

#include <gtest/gtest.h>

#include "measure/result_file.h"
#include "tests/support/temporary_directory.h"

namespace tcpx::bench {
namespace {

using tcpx::testing::TemporaryDirectory;

/// First lines of every script.
constexpr char kBegin[] = "import json, os, sys, time\nrank = int(os.environ['RANK'])\n";

class NcclRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Child> python = Child::start({"python3", "-c", "exit(0)"}, {}, {});
    if (!python.is_ok() || python->wait() != 0) GTEST_SKIP() << "no python3";
  }
  Result<NcclRun> run(const std::string& script) {
    NcclOptions options{.script = directory_.path() + "/script.py",
                        .gpus = {2, 5},
                        .sizes = {8, 4096},
                        .ping_pong_sizes = {8},
                        .milliseconds = 30};
    EXPECT_TRUE(write_file(options.script, kBegin + script).is_ok());
    return run_nccl({.label = "a label", .variables = {{"NCCL_NSOCKS_PERTHREAD", "3"}}}, options, stop_);
  }

  std::atomic<bool> stop_ = false;
  TemporaryDirectory directory_;
};

TEST_F(NcclRuns, StartsTwoRanksAndReadsTheSecondOnesResult) {
  const Result<NcclRun> run = this->run(R"(
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
  EXPECT_EQ(run->label, "a label1");
  EXPECT_EQ(run->one_way.at(8).summary, (Summary{5, 1, 2, 3}));
  EXPECT_EQ(run->ping_pong.at(8).summary, (Summary{5, 5, 6, 7}));
}

TEST_F(NcclRuns, SayWhatTheRankThatFailedSaidLast) {
  for (const char* rank : {"0", "1"}) {
    const Result<NcclRun> run =
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
  const Result<std::string> one_gpu =
      find_nccl({.script = "/dev/null", .gpus = {0, 0}, .sizes = {}, .ping_pong_sizes = {}}, stop);
  ASSERT_FALSE(one_gpu.is_ok());
  EXPECT_EQ(one_gpu.status().detail(), "it needs two GPUs");
  const Result<std::string> no_script =
      find_nccl({.script = "/no/such/script.py", .gpus = {0, 1}, .sizes = {}, .ping_pong_sizes = {}}, stop);
  ASSERT_FALSE(no_script.is_ok());
  EXPECT_EQ(no_script.status().detail(), "cannot read /no/such/script.py");
}

}  // namespace
}  // namespace tcpx::bench
