// The control groups of this process, of either version: folders whose files bound what it may use.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tcpx {

/// nullopt: it cannot be read.
std::optional<std::string> text_of_file(const std::string& path);
/// The number at its beginning. nullopt also for "max" and "-1", which are no limits.
std::optional<uint64_t> number_in(std::string_view text);

/// Looks at every folder of the process's groups of that controller, from its own up to the root.
/// @param root in front of every path. @param controller "cpu", "memory"
void for_each_control_group(const std::string& root, std::string_view controller,
                            const std::function<void(const std::string& folder)>& look);

}  // namespace tcpx
