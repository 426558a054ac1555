#include <dlfcn.h>
#include <elf.h>
#include <sys/statvfs.h>

#include <array>
#include <cstring>
#include <functional>

#include "base/text.h"
#include "doctor/child_answer.h"
#include "doctor/plugin.h"
#include "doctor/words.h"
#include "net/abi/nccl_net_v7.h"
#include "net/abi/nccl_net_v8.h"
#include "net/plugin_adapters.h"

namespace tcpx::doctor {
namespace {

constexpr int kOldestTable = 2, kNewestTable = 24;
constexpr size_t kMostNameBytes = 64;

template <class Table>
std::string lacks(const void* symbol) {
  const Status status = check_table(*static_cast<const Table*>(symbol));
  return status.is_ok() ? "" : status.detail();
}

/// The child says, line by line: "refused REASON"; or "loaded", "libmnl", and of each table "table VERSION", "name NAME",
/// "lacks PART".
void open_and_tell(const std::string& path, const Say& say) {
  void* const library = open_library(path, say);
  if (library == nullptr) return;
  say("loaded\n");
  if (::dlopen("libmnl.so.0", RTLD_NOW | RTLD_NOLOAD) != nullptr) say("libmnl\n");
  for (int version = kOldestTable; version <= kNewestTable; ++version) {
    const void* const symbol = ::dlsym(library, concat("ncclNetPlugin_v", version).c_str());
    if (symbol == nullptr) continue;
    const std::string missing = version == 7   ? lacks<abi::NetTable_v7>(symbol)
                                : version == 8 ? lacks<abi::NetTable_v8>(symbol)
                                               : "";
    const char* name = nullptr;  // stands first in the tables of all versions (NVIDIA/nccl: src/include/plugin/net/net_v*.h)
    std::memcpy(&name, symbol, sizeof name);
    const std::string_view text = name != nullptr ? std::string_view(name, ::strnlen(name, kMostNameBytes)) : "";
    say(concat("table ", version, "\nname ", one_line(text), "\nlacks ", one_line(missing), "\n"));
  }
}

// The last places where the dynamic linker of a 64-bit system looks, regardless of its cache.
constexpr std::array<const char*, 4> kLinkerDirectories = {"/lib64", "/usr/lib64", "/lib", "/usr/lib"};
constexpr int kMostHangs = 2;

#if defined(__aarch64__)
constexpr uint16_t kOwnMachine = EM_AARCH64;
#else
constexpr uint16_t kOwnMachine = EM_X86_64;
#endif

std::string elf_problem_of(const std::string& bytes) {
  Elf64_Ehdr header{};
  const size_t needed = offsetof(Elf64_Ehdr, e_version);
  if (bytes.size() < needed || !bytes.starts_with(ELFMAG))
    return bytes.empty() ? "an empty file" : concat("no library: it begins with \"", bytes.substr(0, 16), "\"");
  std::memcpy(&header, bytes.data(), needed);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "a library of 32 bits";
  if (header.e_machine != kOwnMachine) {
    return concat("a library for ", header.e_machine == EM_X86_64    ? "x86-64"
                                    : header.e_machine == EM_AARCH64 ? "aarch64"
                                                                     : concat("machine ", header.e_machine, " of ELF"));
  }
  return header.e_type == ET_DYN ? "" : "an ELF file, but no shared library";
}

/// Everything on the dynamic linker's way, in its order, that has a wanted name.
std::vector<LibraryFile> on_linker_path(const Machine& machine, const std::string& linker_cache,
                                        const std::function<bool(std::string_view)>& wanted) {
  std::vector<LibraryFile> found;
  const auto add = [&](const std::string& path, const std::string& origin) {
    if (wanted(path.substr(path.rfind('/') + 1))) found.push_back({path, origin, machine.files.real(path)});
  };
  const auto add_directory = [&](const std::string& directory, const std::string& origin) {
    for (const std::string& name : machine.files.list(directory)) add(concat(directory, "/", name), origin);
  };
  // ld.so(8); relative ones depend on where the program will be started.
  for (const std::string& directory : split(machine.variables.get("LD_LIBRARY_PATH").value_or(""), ":;")) {
    if (directory.starts_with('/')) add_directory(directory, "in LD_LIBRARY_PATH");
  }
  for (const std::string& line : split(linker_cache, "\n")) {  // "\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6"
    const size_t arrow = line.find(" => /");
    if (arrow != line.npos) add(line.substr(arrow + 4), "in the dynamic linker's cache");
  }
  for (const char* directory : kLinkerDirectories) add_directory(directory, concat("in ", directory));
  return found;
}

LibraryFile choice_of(const Machine& machine, const std::string& linker_cache) {
  if (const auto named = machine.variables.get(Variable::kPluginPath)) {
    const std::string reason = concat("named by ", environment_info(Variable::kPluginPath).name);
    if (*named == kEmbedded || named->find('/') != std::string::npos) return {*named, reason, machine.files.real(*named)};
    const auto found = on_linker_path(machine, linker_cache, [&](std::string_view name) { return name == *named; });
    return found.empty() ? LibraryFile{*named, reason, *named} : LibraryFile{found.front().path, reason, found.front().real};
  }
  for (const std::string& path : installed_plugin_paths()) {
    if (machine.files.exists(path)) return {path, "installed there", machine.files.real(path)};
  }
  return {kEmbedded, concat("no plugin at ", joined(installed_plugin_paths(), " or ")), kEmbedded};
}

/// NCCL_NET_PLUGIN is a list; each entry is a file, or what stands between "libnccl-net-" and ".so" (NVIDIA/nccl:
/// src/plugin/plugin_open.cc, 2.28).
std::vector<std::string> names_that_nccl_opens(const Machine& machine) {
  const auto list = machine.variables.get("NCCL_NET_PLUGIN");
  if (!list) return {"libnccl-net.so"};
  std::vector<std::string> names;
  for (const std::string& entry : split(*list, ",")) {
    if (entry == "none" || entry.find('/') != std::string::npos) continue;
    names.push_back(entry.ends_with(".so") ? entry : concat("libnccl-net-", entry, ".so"));
  }
  return names;
}

}  // namespace

PluginLoad load_plugin(const std::string& path, Duration limit) {
  const ChildAnswer answer = ask_child([&path](const Say& say) { open_and_tell(path, say); }, limit);
  PluginLoad load;
  // The child has run foreign code: entries of a wrong form are left out.
  for (const auto& [word, rest] : answer.lines()) {
    if (word == "loaded") load.end = LibraryAnswer::End::kAnswered;
    if (word == "libmnl") load.uses_libmnl = true;
    if (word == "refused") load.detail = rest;
    if (word == "table") load.tables.push_back({.version = std::atoi(rest.c_str()), .name = {}, .lacks = {}});
    if (word == "name" && !load.tables.empty()) load.tables.back().name = rest;
    if (word == "lacks" && !load.tables.empty()) load.tables.back().lacks = rest;
  }
  load.note_bad_end(answer);
  return load;
}

PluginFacts plugin_facts(const Machine& machine, const std::string& linker_cache) {
  PluginFacts facts{.expected = expected_path(machine), .choice = choice_of(machine, linker_cache)};
  const auto add = [&](const LibraryFile& file) {
    for (PluginCandidate& known : facts.candidates) {
      if (known.file.real != file.real) continue;
      if (known.file.origin.find(file.origin) == std::string::npos) known.file.origin += ", " + file.origin;
      return;
    }
    const auto bytes = machine.files.read(file.path, sizeof(Elf64_Ehdr));
    struct statvfs mount {};
    const bool found = ::statvfs((machine.files.root() + file.path).c_str(), &mount) == 0;
    facts.candidates.push_back({.file = file,
                                .is_there = machine.files.exists(file.path),
                                .readable = bytes.has_value(),
                                .elf_problem = elf_problem_of(bytes.value_or("")),
                                .noexec = found && (mount.f_flag & ST_NOEXEC) != 0,
                                .load = {}});
  };
  if (machine.variables.get(Variable::kPluginPath) && facts.choice.path != kEmbedded) add(facts.choice);
  for (const std::string& path : installed_plugin_paths())
    add({path, "where GPUDirect-TCPX is installed", machine.files.real(path)});
  const auto is_plugin = [](std::string_view name) {
    return name == "libnccl-net.so" || (name.starts_with("libnccl-net-") && name.ends_with(".so"));
  };
  for (const LibraryFile& file : on_linker_path(machine, linker_cache, is_plugin)) add(file);
  for (const std::string& name : names_that_nccl_opens(machine))
    facts.names.push_back({name, on_linker_path(machine, linker_cache, [&](std::string_view other) { return other == name; })});
  return facts;
}

void load_candidates(PluginFacts& facts, Duration limit) {
  int hangs = 0;
  for (PluginCandidate& candidate : facts.candidates) {
    if (!candidate.can_be_loaded() || hangs == kMostHangs) continue;
    candidate.load = load_plugin(candidate.file.path, limit);
    hangs += candidate.load->end == LibraryAnswer::End::kHung ? 1 : 0;
  }
}

}  // namespace tcpx::doctor
