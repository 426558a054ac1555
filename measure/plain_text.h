// Text that may stand in a table and a JSON report alike: UTF-8 without control characters.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx {

/// True for well-formed UTF-8 (no overlong forms, no surrogates) without control characters; the empty text is plain too.
bool is_plain_text(std::string_view text);

/// Characters in plain text, each taken to be one column wide.
size_t display_width(std::string_view text);

/// `text` in lines of at most `width` characters, cut at its spaces; a longer word gets a line of its own. None for the empty
/// text.
std::vector<std::string> wrap(std::string_view text, size_t width);

/// A measured value for people: three digits at least (0.350, 1.04, 35.1, 154), all digits before the point, never a locale's
/// decimal comma. `value` must be finite.
std::string format_measured(double value);

/// "64 B", "1448 B", "1.5 KiB", "1 MiB": the largest unit that needs no more than two digits behind the point. `bytes`: 0 ...
/// 1e15
std::string format_bytes(double bytes);
template <std::integral Whole>
std::string format_bytes(Whole bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// `value` with `decimals` (0 ... 15) digits behind the point; never "-0". `value` must be finite, of magnitude below 1e15.
std::string format_fixed(double value, int decimals);

}  // namespace tcpx
