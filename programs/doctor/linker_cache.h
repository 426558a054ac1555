// /etc/ld.so.cache: which file the dynamic linker takes for a name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tcpx::doctor {

/// Name and path of the libraries in the cache, in the order of the file; those of another machine or word size are among them.
/// Nothing when `bytes` is no cache of glibc's "1.1" layout.
std::vector<std::pair<std::string, std::string>> linker_cache_entries(std::string_view bytes);

}  // namespace tcpx::doctor
