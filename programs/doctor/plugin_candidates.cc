#include "programs/doctor/plugin_candidates.h"

#include <array>
#include <functional>
#include <sstream>

#include "base/text.h"
#include "programs/doctor/linker_cache.h"

namespace tcpx::doctor {
namespace {

constexpr size_t kMostCacheBytes = size_t{4} << 20;
// Where the dynamic linker of a 64-bit system looks last, whatever its cache says.
constexpr std::array<const char*, 4> kLinkerDirectories = {"/lib64", "/usr/lib64", "/lib", "/usr/lib"};

bool is_plugin_name(std::string_view name) {
  return name == "libnccl-net.so" || (name.starts_with("libnccl-net-") && name.ends_with(".so"));
}

/// LD_LIBRARY_PATH is separated by colons or semicolons; an empty entry is the current directory (ld.so(8)).
std::vector<std::string> library_directories(const Machine& machine) {
  std::vector<std::string> directories;
  std::string entry;
  for (const char c : concat(machine.variable("LD_LIBRARY_PATH").value_or(""), ":")) {
    if (c != ':' && c != ';') {
      entry.push_back(c);
      continue;
    }
    if (entry.starts_with('/')) directories.push_back(entry);  // relative ones depend on where the program will be started
    entry.clear();
  }
  return directories;
}

std::vector<PluginCandidate> on_linker_path(const Machine& machine, const std::function<bool(std::string_view)>& wanted) {
  std::vector<PluginCandidate> found;
  const auto add_directory = [&](const std::string& directory, const std::string& origin) {
    for (const std::string& name : machine.files.list(directory)) {
      if (wanted(name)) found.push_back({concat(directory, "/", name), origin});
    }
  };
  for (const std::string& directory : library_directories(machine)) add_directory(directory, "in LD_LIBRARY_PATH");
  const std::string cache = machine.files.read("/etc/ld.so.cache", kMostCacheBytes).value_or("");
  for (const auto& [name, path] : linker_cache_entries(cache)) {
    if (wanted(name) && path.starts_with('/')) found.push_back({path, "in the dynamic linker's cache"});
  }
  for (const char* directory : kLinkerDirectories) add_directory(directory, concat("in ", directory));
  return found;
}

/// mountinfo writes blanks and the like as \040 (proc(5)).
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool lies_below(std::string_view path, std::string_view directory) {
  if (directory == "/") return true;
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

PluginChoice plugin_choice(const Machine& machine) {
  if (const auto named = machine.variable(Variable::kPluginPath)) {
    const std::string reason = concat("named by ", environment_info(Variable::kPluginPath).name);
    if (*named == kEmbedded || named->find('/') != std::string::npos) return {*named, reason};
    const std::vector<PluginCandidate> found = found_by_name(machine, *named);
    return {found.empty() ? *named : found.front().path, reason};
  }
  std::string searched;
  for (const std::string& path : installed_plugin_paths()) {
    if (machine.files.exists(path)) return {path, "installed there"};
    searched += (searched.empty() ? " at " : " or ") + path;
  }
  return {kEmbedded, "no plugin" + searched};
}

std::vector<PluginCandidate> plugin_candidates(const Machine& machine) {
  std::vector<PluginCandidate> candidates;
  const auto add = [&](const std::string& path, const std::string& origin) {
    const std::string real = machine.files.resolve(path).value_or(path);
    for (PluginCandidate& known : candidates) {
      if (machine.files.resolve(known.path).value_or(known.path) != real) continue;
      if (known.origin.find(origin) == std::string::npos) known.origin += ", " + origin;
      return;
    }
    candidates.push_back({path, origin});
  };
  if (machine.variable(Variable::kPluginPath)) {
    const PluginChoice named = plugin_choice(machine);
    if (named.path != kEmbedded) add(named.path, named.reason);
  }
  for (const std::string& path : installed_plugin_paths()) add(path, "where GPUDirect-TCPX is installed");
  for (const PluginCandidate& found : on_linker_path(machine, is_plugin_name)) add(found.path, found.origin);
  return candidates;
}

std::vector<PluginCandidate> found_by_name(const Machine& machine, const std::string& name) {
  return on_linker_path(machine, [&](std::string_view other) { return other == name; });
}

std::string noexec_mount_of(const Machine& machine, const std::string& path) {
  const std::string real = machine.files.resolve(path).value_or(path);
  std::istringstream mounts(machine.files.read("/proc/self/mountinfo", size_t{1} << 20).value_or(""));
  std::string line, best;
  bool noexec = false;
  // "36 35 98:0 /mnt1 /mnt2 rw,noatime ..." of proc(5): fields 5 and 6. A later mount lies over an earlier one.
  while (std::getline(mounts, line)) {
    std::istringstream fields(line);
    std::string id, parent, device, root, point, options;
    if (!(fields >> id >> parent >> device >> root >> point >> options)) continue;
    const std::string at = unescaped(point);
    if (!lies_below(real, at) || at.size() < best.size()) continue;
    best = at;
    noexec = concat(",", options, ",").find(",noexec,") != std::string::npos;
  }
  return noexec ? best : "";
}

}  // namespace tcpx::doctor
