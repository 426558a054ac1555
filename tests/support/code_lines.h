// Code of a source file without its comments.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx::testing {

/// `text` line by line without comments; the contents of literals are blanked too, except on preprocessor lines.
inline std::vector<std::string> code_lines(std::string_view text) {
  std::vector<std::string> lines(1);
  enum class In { kCode, kLineComment, kBlockComment, kLiteral } in = In::kCode;
  char quote = 0;
  bool directive = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\n') {
      if (in != In::kBlockComment) in = In::kCode;
      directive = false;
      lines.emplace_back();
      continue;
    }
    std::string& line = lines.back();
    switch (in) {
      case In::kLineComment:
        break;
      case In::kBlockComment:
        if (c == '*' && next == '/') in = In::kCode, ++i;
        break;
      case In::kLiteral:
        if (directive) line.push_back(c);
        if (c == '\\') {
          ++i;
        } else if (c == quote) {
          in = In::kCode;
        }
        break;
      case In::kCode:
        if (c == '/' && next == '/') {
          in = In::kLineComment;
        } else if (c == '/' && next == '*') {
          in = In::kBlockComment, ++i;
        } else {
          const bool digit_separator = c == '\'' && !line.empty() && std::isalnum(static_cast<unsigned char>(line.back())) != 0;
          if ((c == '"' || c == '\'') && !digit_separator) in = In::kLiteral, quote = c;
          if (c == '#' && line.find_first_not_of(" \t") == std::string::npos) directive = true;
          line.push_back(c);
        }
    }
  }
  return lines;
}

}  // namespace tcpx::testing
