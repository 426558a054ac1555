// The documents of the tree, for the tests that read them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace tcpx::testing {

inline const std::filesystem::path kRoot = TCPX_SOURCE_DIR;

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Paths of the documents in the root and in docs/, relative to the root.
inline std::vector<std::string> documents() {
  std::vector<std::string> paths;
  for (const std::string folder : {"", "docs/"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kRoot / folder)) {
      if (entry.path().extension() == ".md") paths.push_back(folder + entry.path().filename().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Lines outside of fenced and indented code.
inline std::vector<std::string> prose_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  bool fenced = false, after_blank = true;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      continue;
    }
    const bool code = fenced || (after_blank && line.starts_with("    "));
    if (!code) after_blank = line.find_first_not_of(' ') == std::string::npos;
    if (!code) lines.push_back(line);
  }
  return lines;
}

inline std::vector<std::string> all_matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) found.push_back((*it)[1]);
  return found;
}

inline std::vector<std::string> code_spans(const std::string& line) {
  static const std::regex kSpan("`([^`]+)`");
  return all_matches(line, kSpan);
}

}  // namespace tcpx::testing
