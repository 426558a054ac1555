#include "base/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "base/meant_variable.h"
#include "tests/support/expect_log.h"

namespace tcpx {
namespace {

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~ScopedEnv() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Environment, TableIsIndexedByItsIds) {
  std::set<std::string> names;
  size_t index = 0;
  for (const VariableInfo& info : environment_table()) {
    EXPECT_EQ(static_cast<size_t>(info.id), index++);
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
    EXPECT_STRNE(info.paragraph, "") << info.name;
  }
}

TEST(Environment, AbsentOrEmptyMeansDefault) {
  ::unsetenv("UCCL_TCPX_BOOTSTRAP_PORT");
  EXPECT_EQ(environment_integer(Variable::kBootstrapPort).value(), 12345);
  const ScopedEnv env("UCCL_TCPX_BOOTSTRAP_PORT", "");
  EXPECT_EQ(environment_integer(Variable::kBootstrapPort).value(), 12345);
}

TEST(Environment, GoodValuesAreTaken) {
  const ScopedEnv port("UCCL_TCPX_BOOTSTRAP_PORT", "4321");
  const ScopedEnv unpack("UCCL_TCPX_UNPACK_IMPL", "d2d");
  EXPECT_EQ(environment_integer(Variable::kBootstrapPort).value(), 4321);
  EXPECT_EQ(environment_choice(Variable::kUnpackImpl).value(), 2);
}

TEST(Environment, MalformedIsAnErrorNeverTheDefault) {
  for (const char* bad : {"abc", "12 ", " 12", "1e3", "0", "65536", "-1", "99999999999999999999", "0x10"}) {
    const ScopedEnv env("UCCL_TCPX_BOOTSTRAP_PORT", bad);
    const auto result = environment_integer(Variable::kBootstrapPort);
    ASSERT_FALSE(result.is_ok()) << bad;
    EXPECT_EQ(result.status().code(), Code::kBadConfig);
    EXPECT_NE(result.status().to_string().find("UCCL_TCPX_BOOTSTRAP_PORT"), std::string::npos);
  }
  for (const char* bad : {"kern", "kernel ", "KERNEL", "auto|kernel", "|"}) {
    const ScopedEnv env("UCCL_TCPX_UNPACK_IMPL", bad);
    EXPECT_FALSE(environment_choice(Variable::kUnpackImpl).is_ok()) << bad;
  }
}

TEST(Environment, EveryMalformedVariableOfTheTableIsFound) {
  EXPECT_TRUE(environment_check_all().is_ok());
  for (const VariableInfo& info : environment_table()) {
    if (info.kind == VariableKind::kText) continue;
    const ScopedEnv env(info.name, "banana");
    const Status status = environment_check_all();
    EXPECT_EQ(status.code(), Code::kBadConfig) << info.name;
    EXPECT_NE(status.detail().find(info.name), std::string::npos) << status.to_string();
  }
}

TEST(Environment, WhatAProgramSetsIsReadInsteadAndLeavesTheEnvironmentAlone) {
  const ScopedEnv user("UCCL_TCPX_NUM_CHANNELS", "3");
  EXPECT_EQ(environment_set(Variable::kNumChannels, "seventeen").code(), Code::kBadConfig);
  EXPECT_EQ(environment_integer(Variable::kNumChannels).value(), 3);
  for (const char* value : {"4", "5"}) {
    ASSERT_TRUE(environment_set(Variable::kNumChannels, value).is_ok());
    EXPECT_EQ(std::to_string(environment_integer(Variable::kNumChannels).value()), value);
  }
  const auto all = environment_snapshot();
  EXPECT_NE(std::find(all.begin(), all.end(), std::pair<std::string, std::string>("UCCL_TCPX_NUM_CHANNELS", "3")), all.end());
  ASSERT_TRUE(environment_set(Variable::kNumChannels, "").is_ok());
  EXPECT_EQ(environment_integer(Variable::kNumChannels).value(), 3);
}

TEST(Environment, AVariableThatNobodyReadsIsWarnedOf) {
  const ScopedEnv slip("UCCL_TCPX_CHUNK_BYTE", "1"), foreign("UCCL_TCPX_WHAT_IS_THIS", "1"),
      known("UCCL_TCPX_CHUNK_BYTES", "65536");
  testing::allow_log("is set, and nobody reads it");
  warn_of_unknown_variables();
  EXPECT_TRUE(testing::logged("UCCL_TCPX_CHUNK_BYTE is set, and nobody reads it; is UCCL_TCPX_CHUNK_BYTES meant?"));
  EXPECT_TRUE(testing::logged("UCCL_TCPX_WHAT_IS_THIS is set, and nobody reads it"));
  EXPECT_FALSE(testing::logged("UCCL_TCPX_CHUNK_BYTES is set"));
  EXPECT_EQ(meant_variable("TCPX_CHUNK_BYTES"), &environment_info(Variable::kChunkBytes));
  EXPECT_EQ(meant_variable("PATH"), nullptr);
}

TEST(Environment, PresetNeverOverridesTheUser) {
  ::unsetenv("UCCL_TCPX_PLUGIN_PATH");
  EXPECT_TRUE(environment_preset(Variable::kPluginPath, "a"));
  EXPECT_FALSE(environment_preset(Variable::kPluginPath, "b"));
  EXPECT_EQ(environment_text(Variable::kPluginPath), "a");
  ::unsetenv("UCCL_TCPX_PLUGIN_PATH");
}

}  // namespace
}  // namespace tcpx
