// Links of the documents: those within the tree must lead somewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/documents.h"

namespace tcpx {
namespace {

namespace fs = std::filesystem;
using testing::all_matches, testing::documents, testing::kRoot, testing::prose_lines, testing::read_file;

/// Code points that are no part of a word, of those that documents have: punctuation and signs, also Chinese ones.
bool is_sign(char32_t point) {
  static constexpr std::pair<char32_t, char32_t> kSigns[] = {
      {0xa0, 0xa9},     {0xab, 0xb4},     {0xb6, 0xb9},     {0xbb, 0xbf},      {0xd7, 0xd7},     {0xf7, 0xf7},
      {0x2000, 0x206f}, {0x20a0, 0x20cf}, {0x2190, 0x2bff}, {0x3000, 0x3004},  {0x3008, 0x3020}, {0xff00, 0xff0f},
      {0xff1a, 0xff20}, {0xff3b, 0xff40}, {0xff5b, 0xff65}, {0x1f000, 0x1faff}};
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [point](const auto& range) { return point >= range.first && point <= range.second; });
}

/// The anchor of a heading for links, as GitHub and GitLab make it.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (size_t i = 0; i < heading.size();) {
    const auto byte = static_cast<unsigned char>(heading[i]);
    const size_t bytes = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;  // UTF-8
    const std::string character = heading.substr(i, bytes);
    i += bytes;
    if (bytes == 1) {
      if (std::isalnum(byte) != 0 || byte == '-' || byte == '_') anchor.push_back(static_cast<char>(std::tolower(byte)));
      if (byte == ' ') anchor.push_back('-');
      continue;
    }
    char32_t point = byte & (0x7f >> bytes);
    for (const char c : character.substr(1)) point = point << 6 | (static_cast<unsigned char>(c) & 0x3f);
    if (!is_sign(point)) anchor += character;
  }
  return anchor;
}

std::set<std::string> anchors_in(const std::string& text) {
  static const std::regex kId("<a id=\"([^\"]+)\">");
  static const std::regex kHeading("^#+ +(.*[^ #]) *#*$");
  std::set<std::string> anchors;
  std::map<std::string, int> uses;
  for (const std::string& line : prose_lines(text)) {
    for (const std::string& id : all_matches(line, kId)) anchors.insert(id);
    std::smatch match;
    if (!std::regex_match(line, match, kHeading)) continue;
    const std::string anchor = anchor_of(match[1]);
    const int use = uses[anchor]++;
    anchors.insert(use == 0 ? anchor : anchor + "-" + std::to_string(use));
  }
  return anchors;
}

/// Links of the document `path` that lead nowhere. Links to other sites are not followed.
std::vector<std::string> dead_links(const std::string& path, const std::string& text) {
  static const std::regex kCode("`[^`]*`");
  // [text](target), [name]: target, and what HTML has
  static const std::regex kLink(R"re((?:\]\(|^\[[^\]]+\]: +|\b(?:href|src)=")([^)\s"]+))re");
  static const std::regex kScheme("^[a-z][a-z+.-]*:.*");
  std::vector<std::string> dead;
  for (const std::string& line : prose_lines(text)) {
    for (const std::string& target : all_matches(std::regex_replace(line, kCode, "code"), kLink)) {
      if (std::regex_match(target, kScheme)) continue;
      const size_t hash = target.find('#');
      const std::string file = target.substr(0, hash);
      const fs::path to = (fs::path(path).parent_path() / file).lexically_normal();
      if (!file.empty() && (*to.begin() == ".." || to.is_absolute() || !fs::exists(kRoot / to))) {
        dead.push_back(path + ": no " + target);
      } else if (hash != std::string::npos) {
        const std::set<std::string> anchors = anchors_in(file.empty() ? text : read_file(kRoot / to));
        if (!anchors.contains(target.substr(hash + 1))) dead.push_back(path + ": no anchor " + target);
      }
    }
  }
  return dead;
}

TEST(DocumentChecker, DeadLinksAreFound) {
  const std::string page = "# One `two`, three\n<a id=\"X_1\"></a>\n## Same\n## Same\n";
  EXPECT_EQ(anchors_in(page), (std::set<std::string>{"one-two-three", "X_1", "same", "same-1"}));
  EXPECT_TRUE(dead_links("docs/x.md", page + "[a](#same-1) [b](../LICENSE) [c](https://example.org/no) `[d](no)`").empty());
  EXPECT_EQ(anchor_of("快速开始：两条命令（无 GPU）— ×"), "快速开始两条命令无-gpu-");
  EXPECT_EQ(dead_links("docs/x.md", page + "[a]: no.md\n<a href=\"#no\"><img src=\"no.svg\">\n[b](no.md \"title\")\n").size(),
            4u);
  EXPECT_EQ(dead_links("docs/x.md", page + "[a](#same-2) [b](LICENSE) [c](../../LICENSE) [d](env.md#no)").size(), 4u);
}

TEST(Documents, LinksAndAnchorsResolve) {
  for (const std::string& document : documents()) {
    for (const std::string& link : dead_links(document, read_file(kRoot / document))) ADD_FAILURE() << link;
  }
}

}  // namespace
}  // namespace tcpx
