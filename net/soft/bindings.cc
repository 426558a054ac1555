#include "net/soft/bindings.h"

#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

Status bad(const char* variable, std::string_view part, std::string_view expected) {
  return Status(Code::kBadConfig, "read core bindings", concat(variable, ": \"", part, "\": expected ", expected));
}

/// The text before the next `separator`; both are removed from `rest`, which becomes nullopt after the last part.
std::string_view next_part(std::optional<std::string_view>& rest, char separator) {
  const std::string_view text = *rest;
  const size_t end = text.find(separator);
  rest = end == std::string_view::npos ? std::nullopt : std::optional(text.substr(end + 1));
  return text.substr(0, end);
}

std::optional<int> core_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number >= CPU_SETSIZE) return std::nullopt;
  return number;
}

Result<CoreSet> parse_cores(const char* variable, std::string_view text) {
  CoreSet cores;
  for (std::optional<std::string_view> rest = text; rest;) {
    const std::string_view range = next_part(rest, ',');
    const size_t dash = std::min(range.find('-'), range.size());
    const auto first = core_number(range.substr(0, dash));
    const auto last = dash == range.size() ? first : core_number(range.substr(dash + 1));
    if (!first || !last || *first > *last) return bad(variable, range, concat("a core or a range of cores below ", CPU_SETSIZE));
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  std::sort(cores.begin(), cores.end());
  if (std::adjacent_find(cores.begin(), cores.end()) != cores.end()) return bad(variable, text, "each core once");
  return cores;
}

}  // namespace

Result<Bindings> parse_bindings(const char* variable, const std::string& text) {
  Bindings bindings;
  if (text.empty()) return bindings;
  for (std::optional<std::string_view> rest = text; rest;) {
    const std::string_view binding = next_part(rest, ';');
    const size_t colon = binding.find(':');
    if (colon == 0 || colon == std::string_view::npos) return bad(variable, binding, "interface:cores, as in eth1:8-21,112-125");
    TCPX_ASSIGN_OR_RETURN(auto cores, parse_cores(variable, binding.substr(colon + 1)));
    if (!bindings.emplace(binding.substr(0, colon), std::move(cores)).second)
      return bad(variable, binding, "each interface once");
  }
  return bindings;
}

Status check_bindings(const char* variable, const Bindings& bindings) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return system_error("read the cores of this process", errno);
  const int cores_here = static_cast<int>(::sysconf(_SC_NPROCESSORS_CONF));
  for (const auto& [interface, cores] : bindings) {
    if (::if_nametoindex(interface.c_str()) == 0) return bad(variable, interface, "an interface of this machine");
    if (cores.back() >= cores_here) {
      return bad(variable, concat(interface, ":", cores.back()), concat("cores of this machine, 0 to ", cores_here - 1));
    }
    if (std::none_of(cores.begin(), cores.end(), [&](int core) { return CPU_ISSET(core, &allowed); })) {
      return bad(variable, interface, "a core that this process may use");
    }
  }
  return Status::ok();
}

Status bind_thread(pthread_t thread, const CoreSet& cores) {
  if (cores.empty()) return Status::ok();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  const int error = ::pthread_setaffinity_np(thread, sizeof set, &set);
  return error == 0 ? Status::ok() : system_error("bind I/O thread to cores", error);
}

}  // namespace tcpx::soft
