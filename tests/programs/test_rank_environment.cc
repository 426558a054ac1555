#include "programs/mesh/rendezvous.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tcpx::mesh {
namespace {

/// No launcher's variables but those that a case sets, also when the tests themselves run under one.
class RankEnvironmentTest : public ::testing::Test {
 protected:
  RankEnvironmentTest() {
    for (const char* name : kNames) ::unsetenv(name);
  }
  ~RankEnvironmentTest() override {
    for (const char* name : kNames) ::unsetenv(name);
  }

  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  static void set_ompi(const char* rank, const char* size, const char* local_rank) {
    set("OMPI_COMM_WORLD_RANK", rank);
    set("OMPI_COMM_WORLD_SIZE", size);
    set("OMPI_COMM_WORLD_LOCAL_RANK", local_rank);
  }
  static RankEnvironment found() {
    const auto environment = read_rank_environment();
    EXPECT_TRUE(environment.is_ok()) << environment.status().to_string();
    return environment.is_ok() ? *environment : RankEnvironment{};
  }

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALRANKID",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_LOCALID"};
};

TEST_F(RankEnvironmentTest, EveryLauncherIsUnderstood) {
  set("SLURM_PROCID", "5");
  set("SLURM_NTASKS", "8");
  set("SLURM_LOCALID", "1");
  EXPECT_EQ(found(), (RankEnvironment{5, 8, 1}));
  set("PMI_RANK", "2");
  set("PMI_SIZE", "3");
  set("MPI_LOCALRANKID", "0");
  EXPECT_EQ(found(), (RankEnvironment{2, 3, 0}));
  set_ompi("0", "4", "0");
  EXPECT_EQ(found(), (RankEnvironment{0, 4, 0})) << "an mpirun inside a job knows better than the job";
}

TEST_F(RankEnvironmentTest, WithoutALauncherThereIsNone) {
  EXPECT_EQ(read_rank_environment().status().code(), Code::kNotFound);
  set("PMI_RANK", "");
  EXPECT_EQ(read_rank_environment().status().code(), Code::kNotFound) << "empty means unset";
}

TEST_F(RankEnvironmentTest, WhatIsMissingBesideTheOthersIsNamed) {
  for (const char* missing : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    set_ompi("1", "4", "1");
    ::unsetenv(missing);
    const Status status = read_rank_environment().status();
    EXPECT_EQ(status.code(), Code::kBadConfig) << missing;
    EXPECT_NE(status.detail().find(std::string(missing) + " is not set"), std::string::npos) << status.detail();
  }
}

TEST_F(RankEnvironmentTest, MalformedAndOutOfRangeIsNamed) {
  struct Case {
    const char *rank, *size, *local_rank, *named;
  };
  for (const Case& bad : {Case{"1x", "4", "1", "RANK=\"1x\""}, Case{"4", "4", "0", "OMPI_COMM_WORLD_RANK is 4"},
                          Case{"-1", "4", "0", "OMPI_COMM_WORLD_RANK is -1"}, Case{"0", "1", "0", "SIZE is 1"},
                          Case{"0", "257", "0", "SIZE is 257"}, Case{"0", "99999999999999999999", "0", "SIZE=\""},
                          Case{"0", "4", "4", "LOCAL_RANK is 4"}}) {
    set_ompi(bad.rank, bad.size, bad.local_rank);
    const Status status = read_rank_environment().status();
    EXPECT_EQ(status.code(), Code::kBadConfig) << bad.named;
    EXPECT_NE(status.detail().find(bad.named), std::string::npos) << status.detail();
  }
}

}  // namespace
}  // namespace tcpx::mesh
