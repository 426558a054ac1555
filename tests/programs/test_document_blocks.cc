// Runs the command blocks of the documents that are marked as runnable, as a reader would paste them.
//
// The mark is a comment before the block, which is fenced or indented; blank lines between the two are fine:
//
//     <!-- runnable -->                         must end with 0
//     <!-- runnable exit=0,1 -->                may end with one of these
//     <!-- runnable needs=pkg-config -->        is skipped where a program is not installed; several by commas
//
// A block runs in bash with `set -euo pipefail`, in a folder that looks like the root of a built tree: links to all that is
// there, this build as build/release, and the programs that `make` links into tests/. HOME is a folder inside, the network is
// loopback, and nothing else is in the environment. Blocks of one document share the folder, from top to bottom, and what one
// exports is gone in the next. So a marked block needs no root, no other host, no build of this project, and is done within a
// minute. One that ends with 77 counts as skipped.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/documents.h"
#include "tests/support/temporary_directory.h"

namespace tcpx {
namespace {

namespace fs = std::filesystem;
using testing::documents, testing::kRoot, testing::read_file, testing::TemporaryDirectory;

constexpr int kSkipped = 77;
/// What `make` links from the build folder into tests/.
constexpr std::array kPrograms = {"test_device_discovery", "test_connection", "test_tcpx_transfer", "test_tcpx_perf",
                                  "p2p_fullmesh"};

struct Block {
  int line = 0;  // of its mark, from 1
  std::set<int> exits = {0};
  std::vector<std::string> needs;
  std::string commands;
};

std::vector<std::string> split(const std::string& text, char between) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, between);) parts.push_back(part);
  return parts;
}

/// The block of a mark; none when these are no words of a mark.
std::optional<Block> marked(const std::string& words) {
  Block block;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    if (word.starts_with("needs=")) {
      block.needs = split(word.substr(6), ',');
    } else if (word.starts_with("exit=") && word.find_first_not_of("0123456789,", 5) == std::string::npos) {
      block.exits.clear();
      for (const std::string& code : split(word.substr(5), ',')) block.exits.insert(std::stoi(code));
    } else {
      return {};
    }
  }
  return block;
}

/// Commands of the block that begins at lines[at] or behind blank lines; "" when there is none.
std::string commands_at(const std::vector<std::string>& lines, size_t at) {
  while (at < lines.size() && lines[at].empty()) ++at;
  if (at == lines.size()) return "";
  std::string commands;
  if (lines[at].starts_with("```")) {
    for (++at; at < lines.size() && !lines[at].starts_with("```"); ++at) commands += lines[at] + "\n";
    return at < lines.size() ? commands : "";  // a fence that never ends
  }
  for (; at < lines.size() && (lines[at].empty() || lines[at].starts_with("    ")); ++at) {
    commands += (lines[at].empty() ? "" : lines[at].substr(4)) + "\n";
  }
  return commands;
}

/// @param faults marks that are none or mark nothing are added
std::vector<Block> blocks_of(const std::string& text, std::vector<std::string>& faults) {
  static const std::regex kMark("^<!-- *runnable(.*)-->.*$");
  std::vector<Block> blocks;
  const std::vector<std::string> lines = split(text, '\n');
  bool fenced = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (lines[i].starts_with("```")) fenced = !fenced;
    if (fenced || !std::regex_match(lines[i], match, kMark)) continue;
    std::optional<Block> block = marked(match[1]);
    if (block) block->commands = commands_at(lines, i + 1);
    if (!block || block->commands.empty()) {
      faults.push_back("line " + std::to_string(i + 1) + ": " + (block ? "nothing follows " : "cannot be read: ") + lines[i]);
    } else {
      block->line = static_cast<int>(i) + 1;
      blocks.push_back(*block);
    }
  }
  return blocks;
}

struct Outcome {
  int exit_code = -1;
  std::string output;
};

/// Runs `commands` in `folder`.
Outcome run(const std::string& commands, const fs::path& folder) {
  const fs::path script = folder / "home" / "block.sh";
  std::ofstream(script) << "set -euo pipefail\n" << commands;
  const std::string command = "cd '" + folder.string() + "' && exec env -i PATH=\"$PATH\" HOME='" + (folder / "home").string() +
                              "' NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo timeout --kill-after=5 120 bash '" + script.string() +
                              "' </dev/null 2>&1";
  Outcome outcome;
  std::FILE* pipe = ::popen(command.c_str(), "re");
  EXPECT_NE(pipe, nullptr);
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.output.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

/// Creates an imitation of the root of a tree that `make` has built.
void lay_out(const fs::path& folder) {
  fs::create_directories(folder / "build");
  fs::create_directories(folder / "home");
  fs::create_directories(folder / "tests");
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    const fs::path name = entry.path().filename();
    if (name != "build" && name != "tests" && name.string().front() != '.') fs::create_symlink(entry.path(), folder / name);
  }
  const fs::path build = TCPX_BUILD_DIR;
  fs::create_directory_symlink(build, folder / "build" / "release");
  for (const char* program : kPrograms) fs::create_symlink(build / "tests" / program, folder / "tests" / program);
  for (const auto& entry : fs::directory_iterator(kRoot / "tests")) {
    const fs::path link = folder / "tests" / entry.path().filename();
    if (!fs::exists(fs::symlink_status(link))) fs::create_symlink(entry.path(), link);
  }
}

/// @return why it is not to be run here, "" when it is
std::string missing(const Block& block, const fs::path& folder) {
  for (const std::string& program : block.needs) {
    if (run("command -v " + program, folder).exit_code != 0) return program + " is not installed";
  }
  return "";
}

// The checkers see what they must
// ----------------------------------------------------------------------------------------------------------------

TEST(DocumentBlockChecker, MarkedBlocksAreFound) {
  std::vector<std::string> faults;
  const std::string text =
      "<!-- runnable -->\n```sh\na\n  b\n```\n```sh\nnot this\n```\n"
      "<!-- runnable exit=0,2 needs=x,y -->\n\n    c <<END\n      d\n\n    END\ntext\n\n    nor this\n"
      "```\n<!-- runnable -->\n```\n    nor this\n";
  const std::vector<Block> blocks = blocks_of(text, faults);
  EXPECT_TRUE(faults.empty());
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].line, 1);
  EXPECT_EQ(blocks[0].commands, "a\n  b\n");
  EXPECT_EQ(blocks[0].exits, std::set<int>{0});
  EXPECT_EQ(blocks[1].line, 9);
  EXPECT_EQ(blocks[1].commands, "c <<END\n  d\n\nEND\n") << "without the indentation";
  EXPECT_EQ(blocks[1].exits, (std::set<int>{0, 2}));
  EXPECT_EQ(blocks[1].needs, (std::vector<std::string>{"x", "y"}));
}

TEST(DocumentBlockChecker, MarksOfNothingAreFaults) {
  for (const char* text : {"<!-- runnable -->\ntext\n", "<!-- runnable -->\n```\nno end\n", "<!-- runnable -->\n",
                           "<!-- runnable exit=no -->\n    a\n", "<!-- runnable quickly -->\n    a\n"}) {
    std::vector<std::string> faults;
    EXPECT_TRUE(blocks_of(text, faults).empty()) << text;
    EXPECT_EQ(faults.size(), 1u) << text;
  }
}

TEST(DocumentBlockChecker, FailuresAreSeen) {
  const TemporaryDirectory folder;
  fs::create_directory(folder.file("home"));
  EXPECT_EQ(run("echo a; exit 3", folder.path()).exit_code, 3);
  const Outcome stopped = run("echo a\nfalse\necho b\n", folder.path());
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_EQ(stopped.output, "a\n") << "nothing runs behind what failed";
  EXPECT_EQ(run("false | true", folder.path()).exit_code, 1);
  EXPECT_EQ(run("echo \"$HOME\"; env | grep -c ^UCCL_ || true", folder.path()).output, folder.file("home") + "\n0\n");
  EXPECT_EQ(missing({.needs = {"bash", "no-such-program"}}, folder.path()), "no-such-program is not installed");
  EXPECT_EQ(missing({.needs = {"bash"}}, folder.path()), "");
}

// The tree
// ----------------------------------------------------------------------------------------------------------------

TEST(DocumentBlocks, EveryRunnableBlockRuns) {
  size_t passed = 0;
  for (const std::string& document : documents()) {
    std::vector<std::string> faults;
    const std::vector<Block> blocks = blocks_of(read_file(kRoot / document), faults);
    for (const std::string& fault : faults) ADD_FAILURE() << document << ": " << fault;
    if (blocks.empty()) continue;
    const TemporaryDirectory folder;
    lay_out(folder.path());
    for (const Block& block : blocks) {
      const std::string where = document + ":" + std::to_string(block.line);
      const std::string why_not = missing(block, folder.path());
      const Outcome outcome = why_not.empty() ? run(block.commands, folder.path()) : Outcome{kSkipped, why_not};
      const bool good = block.exits.contains(outcome.exit_code);
      if (good) ++passed;
      if (!good && outcome.exit_code != kSkipped)
        ADD_FAILURE() << where << " ended with " << outcome.exit_code << "\n" << block.commands << "---\n" << outcome.output;
      std::cout << where
                << (good                            ? ": passed\n"
                    : outcome.exit_code == kSkipped ? ": skipped: " + outcome.output + "\n"
                                                    : ": failed\n");
    }
  }
  EXPECT_GE(passed, 5u) << "the documents have runnable blocks";
}

}  // namespace
}  // namespace tcpx
