#include "programs/doctor/gpu.h"

#include <charconv>
#include <sstream>
#include <string_view>

namespace tcpx::doctor {

GpuBuild this_build() {
  return {.architectures = TCPX_CUDA_ARCHITECTURES, .cuda_major = TCPX_CUDA_MAJOR};
}

std::optional<bool> runs_on(const std::string& architectures, int major, int minor) {
  std::istringstream list(architectures);
  std::string entry;
  while (std::getline(list, entry, ',')) {
    int number = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (error != std::errc()) return std::nullopt;
    const std::string_view kind(end, static_cast<size_t>(entry.data() + entry.size() - end));
    const int wanted = number / 10, at_least = number % 10;
    // "90a" runs on 9.0 and nowhere else.
    if (kind.starts_with('a') || kind.starts_with('f')) {
      if (major == wanted && minor == at_least) return true;
      continue;
    }
    if (kind != "-virtual" && major == wanted && minor >= at_least) return true;
    if (kind != "-real" && major * 10 + minor >= number) return true;
  }
  return false;
}

}  // namespace tcpx::doctor
