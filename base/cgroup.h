// The control groups (cgroups, version 1 or 2) of this process: folders whose files limit what it may use.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tcpx {

/// The contents of a file. nullopt when it cannot be read.
std::optional<std::string> text_of_file(const std::string& path);
/// The decimal number at the beginning of `text`. nullopt when there is none, as in "max" and "-1", which mean no limit.
std::optional<uint64_t> number_in(std::string_view text);

/// Calls `look` with every folder of the process's groups for one controller, from its own group up to the root.
/// @param root prepended to every path. @param controller "cpu" or "memory"
void for_each_control_group(const std::string& root, std::string_view controller,
                            const std::function<void(const std::string& folder)>& look);

}  // namespace tcpx
