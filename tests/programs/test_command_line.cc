// Errors of all programs for a wrong command line, and the text of their help.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/near_word.h"
#include "programs/command_line.h"

namespace tcpx {
namespace {

enum class Colour { kRed, kGreen };

/// A program with two roles and an option of each kind.
struct Sample {
  Sample() {
    app.add_option("--bytes", bytes, "of one message")->type_name("BYTES")->transform(size_in_bytes());
    app.add_option("--iterations", iterations, "how often")->check(CLI::Range(1, 10));
    app.add_option("--colour", colour, "red or green")
        ->transform(one_of(std::map<std::string, Colour>{{"red", Colour::kRed}, {"green", Colour::kGreen}}));
    app.add_flag("--quiet", quiet, "say nothing");
    app.add_subcommand("server", "wait")->fallthrough();
    CLI::App* client = app.add_subcommand("client", "come")->fallthrough();
    client->add_option("HOST", host, "where the server is")->required();
    app.require_subcommand(1);
  }

  /// @return what is said on stderr and stdout
  std::string run(std::vector<const char*> words) {
    words.insert(words.begin(), "sample");
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    parsed = parse_command_line(app, static_cast<int>(words.size()), const_cast<char**>(words.data()), code, 64);
    std::cout.flush();
    return ::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout();
  }

  CLI::App app{"A sample."};
  uint64_t bytes = 0;
  int iterations = 0, code = -1;
  Colour colour{};
  std::string host;
  bool parsed = false, quiet = false;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CommandLine, WhatIsRightIsTaken) {
  Sample sample;
  EXPECT_EQ(sample.run({"client", "10.0.0.1", "--bytes", "64K", "--colour", "green"}), "");
  EXPECT_TRUE(sample.parsed);
  EXPECT_EQ(sample.bytes, 65536u);
  EXPECT_EQ(sample.colour, Colour::kGreen);
  EXPECT_EQ(sample.host, "10.0.0.1");
}

TEST(CommandLine, ASlipInARoleIsNamed) {
  for (const char* word : {"clinet", "cliet", "Client", "cli"}) {
    Sample sample;
    const std::string said = sample.run({word, "1.2.3.4"});
    EXPECT_TRUE(has(said, std::string("\"") + word + "\": did you mean \"client\"?")) << said;
    EXPECT_EQ(sample.code, 64);
  }
}

TEST(CommandLine, ASlipInAnOptionIsNamed) {
  for (const char* word : {"--iteration", "--itertaions=3", "--iter"}) {
    Sample sample;
    EXPECT_TRUE(has(sample.run({"server", word}), "did you mean \"--iterations\"?")) << word;
    EXPECT_EQ(sample.code, 64);
  }
}

TEST(CommandLine, WhereNothingIsNearTheRolesAreListed) {
  Sample sample;
  const std::string said = sample.run({"1.2.3.4"});
  EXPECT_TRUE(has(said, "One of: server, client HOST")) << said;
  EXPECT_FALSE(has(said, "did you mean")) << said;
}

TEST(CommandLine, AValueThatIsNoneSaysWhatItCouldBe) {
  Sample sizes, words;
  EXPECT_TRUE(has(sizes.run({"server", "--bytes", "12x"}), "--bytes: \"12x\" is no size; 8, 64K, 4MiB and 1G are"));
  EXPECT_TRUE(has(words.run({"server", "--colour", "gren"}), "\"gren\" is none of green, red; did you mean \"green\"?"));
}

TEST(CommandLine, HelpNamesUnitsAndNoTypes) {
  Sample sample;
  const std::string help = sample.run({"--help"});
  EXPECT_EQ(sample.code, 0);
  for (const char* part : {"--bytes BYTES ", "--iterations N ", "--colour WORD ", "--quiet "})
    EXPECT_TRUE(has(help, part)) << help;
  for (const char* part : {"UINT", "INT:", "TEXT", "in ["}) EXPECT_FALSE(has(help, part)) << help;
}

TEST(NearWord, SlipsAndBeginsAreNearOthersAreNot) {
  const std::vector<std::string> words = {"server", "client", "loopback"};
  EXPECT_EQ(near_word("sevrer", words), "server");
  EXPECT_EQ(near_word("loop", words), "loopback");
  EXPECT_EQ(near_word("10.0.0.1", words), "");
  EXPECT_EQ(near_word("", words), "");
  EXPECT_EQ(near_word("lo", words), "");
  const std::vector<std::string> short_words = {"-b", "go"};
  EXPECT_EQ(near_word("no", short_words), "go");
  EXPECT_EQ(near_word("xy", short_words), "");
}

}  // namespace
}  // namespace tcpx
