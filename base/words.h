// Taking apart what files and programs say, and putting lists together.
#pragma once

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace tcpx {

/// "eth1, eth2". @param text_of what is written of each part: a member or a function; itself without one
template <class Parts, class Text = std::identity>
std::string joined(const Parts& parts, std::string_view between = ", ", Text text_of = {}) {
  std::string out;
  for (const auto& part : parts) out += concat(out.empty() ? "" : between, std::invoke(text_of, part));
  return out;
}

/// "eth1, eth2": the names of interfaces and the like.
template <class Named>
std::string names_of(const std::vector<Named>& all, std::string_view between = ", ") {
  return joined(all, between, &Named::name);
}

/// The parts of `text` between any of `separators`, without empty ones.
inline std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  for (size_t at = 0; (at = text.find_first_not_of(separators, at)) != text.npos;) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

/// nullopt when `text` is anything but one number of this type. @param base of an integer; none for 10
template <class Number = int64_t, class... Base>
std::optional<Number> number_of(std::string_view text, Base... base) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace tcpx
