#include "measure/available_memory.h"

#include <charconv>

#include "measure/result_file.h"

namespace tcpx::bench {

Result<uint64_t> available_memory_in(std::string_view meminfo) {
  constexpr std::string_view kName = "MemAvailable:";
  constexpr uint64_t kMostKib = uint64_t{1} << 50;
  const Status unknown(Code::kProtocol, "read available memory", "/proc/meminfo has no line MemAvailable in kB");
  const size_t begin = meminfo.find(kName);
  if (begin == std::string_view::npos) return unknown;
  std::string_view line = meminfo.substr(begin + kName.size());
  line = line.substr(0, line.find('\n'));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  uint64_t kib = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), kib);
  if (error != std::errc() || kib > kMostKib || std::string_view(end, line.data() + line.size()) != " kB") return unknown;
  return kib * 1024;
}

Result<uint64_t> available_memory() {
  const Result<std::string> meminfo = read_file("/proc/meminfo", 64 << 10);
  if (!meminfo.is_ok()) return meminfo.status();
  return available_memory_in(*meminfo);
}

}  // namespace tcpx::bench
