// Reads what gzip has compressed, such as /proc/config.gz.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tcpx::doctor {

/// @param compressed one gzip member, whole; what follows it is ignored
/// @param most_bytes of the result
/// @return nullopt: not gzip, cut short, damaged, or longer than that
std::optional<std::string> gunzip(std::string_view compressed, size_t most_bytes);

}  // namespace tcpx::doctor
