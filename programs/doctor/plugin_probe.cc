#include "programs/doctor/plugin_probe.h"

#include <dlfcn.h>

#include <charconv>
#include <cstring>

#include "base/text.h"
#include "net/abi/nccl_net_v7.h"
#include "net/abi/nccl_net_v8.h"
#include "net/plugin_adapters.h"
#include "programs/doctor/child_answer.h"

namespace tcpx::doctor {
namespace {

constexpr char kSymbolPrefix[] = "ncclNetPlugin_v";
constexpr int kOldestTable = 2, kNewestTable = 24;
constexpr size_t kMostNameBytes = 64;
constexpr char kLoadedWord[] = "loaded";
constexpr char kRefusedWord[] = "refused";
constexpr char kTableWord[] = "table";
constexpr char kMnlWord[] = "libmnl";

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

void open_and_tell(const std::string& path, const Say& say) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    say(concat(kRefusedWord, '\t', one_line(why != nullptr ? why : "?"), '\n'));
    return;
  }
  say(concat(kLoadedWord, '\n'));
  if (::dlopen("libmnl.so.0", RTLD_NOW | RTLD_NOLOAD) != nullptr) say(concat(kMnlWord, '\n'));
  for (int version = kOldestTable; version <= kNewestTable; ++version) {
    const void* const symbol = ::dlsym(library, concat(kSymbolPrefix, version).c_str());
    if (symbol == nullptr) continue;
    const std::string missing = version == 7   ? lacks<abi::NetTable_v7>(symbol)
                                : version == 8 ? lacks<abi::NetTable_v8>(symbol)
                                               : "";
    say(concat(kTableWord, '\t', version, '\t', name_in(symbol), '\t', one_line(missing), '\n'));
  }
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The other end has run foreign code: what does not look as it should is left out.
PluginLoad understood(const ChildAnswer& answer) {
  PluginLoad load;
  bool loaded = false;
  for (const std::string_view line : split(answer.said, '\n')) {
    const std::vector<std::string_view> words = split(line, '\t');
    if (words[0] == kLoadedWord) loaded = true;
    if (words[0] == kMnlWord) load.uses_libmnl = true;
    if (words[0] == kRefusedWord && words.size() == 2) load.detail = words[1];
    if (words[0] != kTableWord || words.size() != 4) continue;
    PluginTable table{.version = 0, .name = std::string(words[2]), .lacks = std::string(words[3])};
    std::from_chars(words[1].data(), words[1].data() + words[1].size(), table.version);
    load.tables.push_back(std::move(table));
  }
  if (answer.end == ChildAnswer::End::kDone) {
    load.end = loaded ? PluginLoad::End::kLoaded : PluginLoad::End::kRefused;
  } else {
    load.end = answer.end == ChildAnswer::End::kTimedOut ? PluginLoad::End::kHung : PluginLoad::End::kDied;
    load.detail = answer.how_it_ended();
  }
  return load;
}

class ChildPluginProbe final : public PluginProbe {
 public:
  explicit ChildPluginProbe(Duration limit) : limit_(limit) {}
  PluginLoad load(const std::string& path) override {
    return understood(ask_child([&path](const Say& say) { open_and_tell(path, say); }, limit_));
  }

 private:
  Duration limit_;
};

}  // namespace

std::unique_ptr<PluginProbe> make_plugin_probe(Duration limit) {
  return std::make_unique<ChildPluginProbe>(limit);
}

}  // namespace tcpx::doctor
