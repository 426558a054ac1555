// Parameters of the back-end that NIXL's programs read, and hand back when they create it.
#include "integrations/nixl/parameters.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/environment.h"
#include "tests/support/ok.h"

namespace tcpx::nixl {
namespace {

constexpr char kLocal[] = "UCCL_TCPX_LOCAL", kTimeout[] = "UCCL_TCPX_OP_TIMEOUT_MS";

/// Every variable that is set, with its text.
std::map<std::string, std::string> all_that_is_set() {
  std::map<std::string, std::string> all;
  for (const VariableInfo& info : environment_table()) {
    if (environment_is_set(info.id)) all[info.name] = environment_text(info.id);
  }
  return all;
}

class NixlParameters : public ::testing::Test {
 protected:
  void SetUp() override { forget(); }
  void TearDown() override { forget(); }

 private:
  static void forget() {
    for (const char* name : {kLocal, kTimeout}) ::unsetenv(name);
    EXPECT_OK(environment_set(Variable::kLocal, ""));
    EXPECT_OK(environment_set(Variable::kOpTimeoutMs, ""));
  }
};

TEST_F(NixlParameters, AreTheValuesInForce) {
  EXPECT_EQ(parameters_in_force().at("local"), "auto");
  EXPECT_EQ(parameters_in_force().at("op_timeout_ms"), "30000");
  EXPECT_EQ(parameters_in_force().at("unpack_blocks"), "") << "its default is a sentence";
  ::setenv(kLocal, "off", 1);
  ::setenv(kTimeout, "700", 1);
  EXPECT_OK(set_parameters({{"op_timeout_ms", "800"}}));
  EXPECT_EQ(parameters_in_force().at("local"), "off");
  EXPECT_EQ(parameters_in_force().at("op_timeout_ms"), "800");
}

// As nixlbench does, with all or with a change to one.
TEST_F(NixlParameters, HandedBackTheyChangeNothing) {
  ::setenv(kLocal, "off", 1);
  ::setenv(kTimeout, "700", 1);
  const auto before = all_that_is_set();
  abi::Parameters handed = parameters_in_force();
  ASSERT_OK(set_parameters(handed));
  EXPECT_EQ(all_that_is_set(), before) << "nor is a default one that somebody has set";
  handed["op_timeout_ms"] = "800";
  ASSERT_OK(set_parameters(handed));
  EXPECT_EQ(environment_integer(Variable::kOpTimeoutMs).value(), 800);
  EXPECT_EQ(environment_text(Variable::kLocal), "off");
}

// Nobody may ever read it: whoever does, refuses it.
TEST_F(NixlParameters, HandedBackAMalformedOneStaysAsItIs) {
  ::setenv(kLocal, "of", 1);
  ASSERT_OK(set_parameters(parameters_in_force()));
  EXPECT_FALSE(environment_choice(Variable::kLocal).is_ok());
  EXPECT_EQ(set_parameters({{"local", "on"}}).status().code(), Code::kBadConfig);
}

}  // namespace
}  // namespace tcpx::nixl
