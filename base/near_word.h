// Finds which of several words was meant by a misspelt or shortened one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tcpx {

/// Number of single-character changes that turn `a` into `b` (edit distance).
inline size_t changes_between(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

/// The word that was probably meant by `written`: the nearest one that differs by at most two changes and at most half of its
/// letters, or one that begins with `written`. "": none.
inline std::string near_word(std::string_view written, std::span<const std::string> words) {
  constexpr size_t kMostChanges = 2, kLeastBegin = 3;
  std::string best;
  size_t least = kMostChanges + 1;
  for (const std::string& word : words) {
    const bool begins = written.size() >= kLeastBegin && word.starts_with(written);
    const size_t changes = begins ? 1 : changes_between(written, word);
    if (changes < least && 2 * changes <= word.size()) least = changes, best = word;
  }
  return best;
}

}  // namespace tcpx
