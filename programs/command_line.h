// Parts that the command lines of all programs have in common: errors that suggest what was meant, help without type names.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tcpx {

/// Parses the command line. @return true to go on; else `exit_code` is what main returns: 0 when help was asked for, `usage_code`
/// when something is wrong, which has been said then, with the word that was meant where one is near.
bool parse_command_line(CLI::App& app, int argc, char** argv, int& exit_code, int usage_code = 2);

/// `option` FILE drew a chart once. Its use is now an error of usage that names what draws one.
void add_chart_answer(CLI::App& app, const std::string& option);

/// For `transform`: "64K", "4MiB", "1G" (powers of 1024) as a number of bytes.
CLI::Validator size_in_bytes();

/// The error of a word that is none of `words`.
std::string none_of(const std::string& word, const std::vector<std::string>& words);

/// For `transform`: one of the keys, as the number of its value.
template <class Value>
CLI::Validator one_of(std::map<std::string, Value> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& text) {
        const auto found = words.find(text);
        if (found != words.end()) {
          text = std::to_string(static_cast<int64_t>(found->second));
          return std::string();
        }
        std::vector<std::string> names;
        for (const auto& [name, value] : words) names.push_back(name);
        return none_of(text, names);
      },
      "");
}

}  // namespace tcpx
