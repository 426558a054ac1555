// Errors that help: each code and each hint has its entry in docs/troubleshooting.md and in the Chinese page, with the sentence
// that the code has.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tcpx/help.h"
#include "tests/support/documents.h"

namespace tcpx {
namespace {

using testing::kRoot;

/// Name and sentence of all that has an entry. kOk is no error.
std::map<std::string, std::string> all_helped() {
  std::map<std::string, std::string> all;
  for (int i = 1; i <= static_cast<int>(kLastCode); ++i) {
    const auto code = static_cast<Code>(i);
    all.emplace(name_of(code), sentence_of(code));
  }
  for (const HintText& hint : kHints) all.emplace(hint.name, hint.sentence);
  return all;
}

/// Entries of a document by anchor; an entry ends where the next begins.
std::map<std::string, std::string> sections_of(const std::string& file) {
  std::ifstream stream(kRoot / "docs" / file);
  EXPECT_TRUE(stream) << file;
  const std::string begin = "<a id=\"TCPX_", end = "\"></a>";
  std::map<std::string, std::string> entries;
  std::string* entry = nullptr;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(begin) && line.ends_with(end)) {
      const std::string anchor = line.substr(7, line.size() - 7 - end.size());
      EXPECT_FALSE(entries.contains(anchor)) << file << ": two entries " << anchor;
      entry = &entries[anchor];
    } else if (line.starts_with("## ")) {
      entry = nullptr;
    }
    if (entry != nullptr) entry->append(line).append("\n");
  }
  return entries;
}

std::vector<std::string> names_in_order(const std::string& file) {
  static const std::regex kAnchor("^<a id=\"(TCPX_\\w+)\"></a>$");
  std::vector<std::string> names;
  for (const std::string& line : testing::prose_lines(testing::read_file(kRoot / "docs" / file))) {
    for (const std::string& name : testing::all_matches(line, kAnchor)) names.push_back(name);
  }
  return names;
}

/// The parts of an entry that are alike in every language: its blocks of code line by line, without comments, and its spans of code.
struct Shown {
  std::vector<std::string> blocks;
  std::set<std::string> spans;
};

Shown code_in(const std::string& entry) {
  static const std::regex kComment(R"( +# .*$)");
  Shown shown;
  for (const std::string& line : testing::prose_lines(entry)) {
    for (const std::string& span : testing::code_spans(line)) shown.spans.insert(span);
  }
  bool fenced = false;
  std::istringstream stream(entry);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (fenced) {
      shown.blocks.push_back(line);
    } else if (line.starts_with("    ")) {
      shown.blocks.push_back(std::regex_replace(line.substr(4), kComment, ""));
    }
  }
  return shown;
}

void expect_entries(const std::string& file, const std::vector<std::string>& parts) {
  std::map<std::string, std::string> entries = sections_of(file);
  for (const auto& [name, sentence] : all_helped()) {
    ASSERT_TRUE(entries.contains(name)) << file << " has no entry " << name;
    const std::string& entry = entries[name];
    EXPECT_NE(entry.find("\n### `" + name + "`\n"), std::string::npos) << file << ": heading of " << name;
    EXPECT_NE(entry.find("\n> " + sentence + "\n"), std::string::npos)
        << file << ": " << name << " needs the sentence of the code: " << sentence;
    const size_t example = entry.find("\n```");
    EXPECT_NE(entry.find(name, example), std::string::npos) << file << ": " << name << " has no example that shows its name";
    for (const std::string& part : parts)
      EXPECT_NE(entry.find("\n**" + part), std::string::npos) << file << ": " << name << ": " << part;
    entries.erase(name);
  }
  for (const auto& [name, entry] : entries) ADD_FAILURE() << file << ": nothing is called " << name;
}

TEST(Troubleshooting, EveryNameHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (const auto& [name, sentence] : all_helped()) {
    EXPECT_TRUE(name.starts_with("TCPX_E_") || name.starts_with("TCPX_H_")) << name;
    EXPECT_TRUE(sentences.insert(sentence).second) << name;
    EXPECT_TRUE(sentence.ends_with(".")) << name;
  }
  EXPECT_EQ(sentences.size(), static_cast<size_t>(kLastCode) + std::size(kHints));
}

TEST(Troubleshooting, EveryNameHasItsEntry) {
  expect_entries("troubleshooting.md", {"Symptom", "Cause", "Check", "Cure"});
}

TEST(Troubleshooting, EveryNameHasItsEntryInChinese) {
  expect_entries("troubleshooting.zh.md", {"症状", "原因", "检查", "解决"});
}

TEST(Troubleshooting, TheChinesePageHasTheSameEntriesInTheSameOrder) {
  const auto english = names_in_order("troubleshooting.md"), chinese = names_in_order("troubleshooting.zh.md");
  EXPECT_EQ(english, chinese);
  EXPECT_EQ(english.size(), all_helped().size());
}

TEST(Troubleshooting, TheChinesePageShowsTheSameCommandsOutputsAndNames) {
  const std::map<std::string, std::string> english = sections_of("troubleshooting.md");
  std::map<std::string, std::string> chinese = sections_of("troubleshooting.zh.md");
  for (const auto& [name, entry] : english) {
    EXPECT_FALSE(code_in(entry).blocks.empty()) << name;
    EXPECT_EQ(code_in(entry).blocks, code_in(chinese[name]).blocks) << name;
    EXPECT_EQ(code_in(entry).spans, code_in(chinese[name]).spans) << name;
  }
}

TEST(Troubleshooting, CodeOfAnEntryIsTakenWithoutItsComments) {
  const Shown shown = code_in("a `b` and `c`\n```\nd `e`\n```\n\n    f --g   # h\n\ni `b`\n");
  EXPECT_EQ(shown.blocks, (std::vector<std::string>{"d `e`", "f --g"}));
  EXPECT_EQ(shown.spans, (std::set<std::string>{"b", "c"}));
}

TEST(Troubleshooting, AStatusHasHelpForItsCodeAndForEveryHintInItsDetail) {
  EXPECT_EQ(
      help_lines(Status(Code::kPeerGone, "connect", "refused")),
      "help: The other end closed the connection, died, or cannot be reached. See docs/troubleshooting.md#TCPX_E_PEER_GONE");
  const Status hinted(Code::kTimeout, "recv",
                      "stuck" + name_in_detail(Hint::kTagsIgnored) + name_in_detail(Hint::kConsumedEarly));
  EXPECT_EQ(help_lines(hinted), "help: " + help_of(Code::kTimeout) + "\nhelp: " + help_of(Hint::kConsumedEarly) +
                                    "\nhelp: " + help_of(Hint::kTagsIgnored));
}

}  // namespace
}  // namespace tcpx
