#include <dlfcn.h>

#include <cstring>
#include <sstream>

#include "base/text.h"
#include "net/abi/nccl_net_v7.h"
#include "net/abi/nccl_net_v8.h"
#include "net/plugin_adapters.h"
#include "programs/doctor/child_answer.h"
#include "programs/doctor/plugin.h"

namespace tcpx::doctor {
namespace {

constexpr int kOldestTable = 2, kNewestTable = 24;
constexpr size_t kMostNameBytes = 64;

template <class Table>
std::string lacks(const void* symbol) {
  const Status status = check_table(*static_cast<const Table*>(symbol));
  return status.is_ok() ? "" : status.detail();
}

/// The name stands first in the tables of all versions (NVIDIA/nccl: src/include/plugin/net/net_v*.h).
std::string name_in(const void* symbol) {
  const char* name = nullptr;
  std::memcpy(&name, symbol, sizeof name);
  return name != nullptr ? one_line(std::string_view(name, ::strnlen(name, kMostNameBytes))) : "";
}

/// What the child says, line by line: "refused REASON"; or "loaded", "libmnl", and of each table "table VERSION", "name NAME",
/// "lacks PART".
void open_and_tell(const std::string& path, const Say& say) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return say(concat("refused ", one_line(why != nullptr ? why : "?"), "\n"));
  }
  say("loaded\n");
  if (::dlopen("libmnl.so.0", RTLD_NOW | RTLD_NOLOAD) != nullptr) say("libmnl\n");
  for (int version = kOldestTable; version <= kNewestTable; ++version) {
    const void* const symbol = ::dlsym(library, concat("ncclNetPlugin_v", version).c_str());
    if (symbol == nullptr) continue;
    const std::string missing = version == 7   ? lacks<abi::NetTable_v7>(symbol)
                                : version == 8 ? lacks<abi::NetTable_v8>(symbol)
                                               : "";
    say(concat("table ", version, "\nname ", name_in(symbol), "\nlacks ", one_line(missing), "\n"));
  }
}

/// The other end has run foreign code: what does not look as it should is left out.
PluginLoad load_of(const ChildAnswer& answer) {
  PluginLoad load;
  std::istringstream lines(answer.said);
  for (std::string line; std::getline(lines, line);) {
    const std::string word = line.substr(0, line.find(' '));
    const std::string rest = line.substr(std::min(word.size() + 1, line.size()));
    if (word == "loaded") load.end = PluginLoad::End::kLoaded;
    if (word == "libmnl") load.uses_libmnl = true;
    if (word == "refused") load.detail = rest;
    if (word == "table") load.tables.push_back({.version = std::atoi(rest.c_str()), .name = {}, .lacks = {}});
    if (word == "name" && !load.tables.empty()) load.tables.back().name = rest;
    if (word == "lacks" && !load.tables.empty()) load.tables.back().lacks = rest;
  }
  if (answer.end != ChildAnswer::End::kDone) {
    load.end = answer.end == ChildAnswer::End::kTimedOut ? PluginLoad::End::kHung : PluginLoad::End::kDied;
    load.detail = answer.how_it_ended();
  }
  return load;
}

}  // namespace

PluginLoad load_plugin(const std::string& path, Duration limit) {
  return load_of(ask_child([&path](const Say& say) { open_and_tell(path, say); }, limit));
}

}  // namespace tcpx::doctor
