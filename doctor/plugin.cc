#include <dlfcn.h>
#include <elf.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/text.h"
#include "base/words.h"
#include "doctor/child_answer.h"
#include "doctor/plugin.h"
#include "net/abi/nccl_net_v7.h"
#include "net/abi/nccl_net_v8.h"
#include "net/plugin_adapters.h"
#include "net/soft/soft_table.h"

namespace tcpx::doctor {
namespace {

#if defined(__aarch64__)
constexpr char kOwnMachineName[] = "aarch64";
#else
constexpr char kOwnMachineName[] = "x86-64";
#endif
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

std::string elf_problem_of(const std::string& bytes) {
  Elf64_Ehdr header{};
  const size_t needed = offsetof(Elf64_Ehdr, e_version);
  if (bytes.size() < needed || !bytes.starts_with(ELFMAG))
    return bytes.empty() ? "an empty file" : concat("no library: it begins with \"", bytes.substr(0, 16), "\"");
  std::memcpy(&header, bytes.data(), needed);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "a library of 32 bits";
  const std::string machine = header.e_machine == EM_X86_64    ? "x86-64"
                              : header.e_machine == EM_AARCH64 ? "aarch64"
                                                               : concat("machine ", header.e_machine, " of ELF");
  if (machine != kOwnMachineName) return concat("a library for ", machine);
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
  const auto [path, reason] = chosen_plugin(machine);
  if (path == kEmbedded || path.find('/') != std::string::npos) return {path, reason, machine.files.real(path)};
  const auto found = on_linker_path(machine, linker_cache, [&path = path](std::string_view name) { return name == path; });
  return found.empty() ? LibraryFile{path, reason, path} : LibraryFile{found.front().path, reason, found.front().real};
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

/// The cure of a refusal of the dynamic linker, by its words.
std::string mend_of_refusal(const std::string& detail, const std::string& path) {
  const size_t missing = detail.find(": cannot open shared object file");
  if (missing != std::string::npos && !detail.starts_with(path)) {
    const std::string library = detail.substr(0, missing);
    return concat("find / -name '", library, "*' 2>/dev/null   # then export LD_LIBRARY_PATH=<its directory>:$LD_LIBRARY_PATH",
                  library.starts_with("libcuda.") ? "; it comes with the GPU driver" : "");
  }
  if (detail.find("GLIBC") != std::string::npos) return "take a build of the plugin for this distribution, or a newer base image";
  return concat("ldd -r ", path);
}

constexpr char kTakeEmbedded[] = "export UCCL_TCPX_PLUGIN_PATH=embedded   # the software plugin, over plain TCP";

/// The tables of a library that has been loaded. @return whether tcpx-p2p can use one
bool check_tables(const PluginLoad& load, bool taken, const std::function<bool(const Table&)>& add,
                  const std::function<Fact(Fact)>& wrong) {
  std::vector<std::string> lacking;
  std::string name;
  bool v7 = false, v8 = false, other = false;
  for (const PluginTable& table : load.tables) {
    if (!table.name.empty()) name = table.name;
    if (!table.lacks.empty()) lacking.push_back(table.lacks);
    v7 = v7 || (table.version == 7 && table.lacks.empty());
    v8 = v8 || (table.version == 8 && table.lacks.empty());
    other = other || (table.version != 7 && table.version != 8);
  }
  const bool vendor = name.starts_with("GPUDirectTCPX"), software = name == soft::kPluginName, usable = v7 || v8;
  const std::string versions = joined(load.tables, ", ", [](const auto& table) { return concat("v", table.version); });
  const std::string kind = vendor ? "GPUDirect-TCPX" : software ? "the software plugin of tcpx-p2p" : "another plugin";
  const std::string found =
      concat(versions.empty() ? "no ncclNetPlugin table" : versions, name.empty() ? "" : ": ", name,
             versions.empty() ? "" : concat(", ", kind), lacking.empty() ? "" : "; ", joined(lacking, "; "));
  add({{"tables", found, usable || !lacking.empty() || !other || taken, kNotApplicable,
        "For NCCL: tcpx-p2p reads v7 and v8, and does not take this library."},
       wrong({"tables", found, usable, kFail, "tcpx-p2p needs a complete table ncclNetPlugin_v7 or _v8.", kTakeEmbedded}),
       {"tables", found, lacking.empty(), kWarn, "A half-empty table is skipped here; other programs may call what is not there.",
        "take a complete build of the plugin; tcpx-p2p uses its other table until then"},
       {"tables", found, !(v7 && v8 && (vendor || software)), kWarn,
        "GPUDirect-TCPX exports v7 only. Programs that find v8 and read it as v7 misread the devices; tcpx-p2p does not.",
        "take the vendor's own build, which exports v7 only"}});
  if (!usable) return false;
  add({{"layout", "uses libmnl, so probably the state of 2026: unpack slot at 64", software || !vendor || !load.uses_libmnl,
        kWarn, "tcpx-p2p tells 2024 and 2026 apart by the first message; programs that know 2024 only read garbage.",
        "nothing for tcpx-p2p; for others take the release v3.1.9 of the plugin"},
       {"layout", vendor ? "probably the state of 2024: unpack slot at 56" : "not known for this plugin", software,
        kNotApplicable,
        "Only the first message of a connection shows it; tcpx-p2p checks it then and refuses what it does not know."},
       {"layout", "requests as in GPUDirect-TCPX of 2024: unpack slot at 56"}});
  return true;
}

/// One library that may become the plugin. Nothing is said of it behind the first fault.
/// @return whether it is the one that tcpx-p2p takes, and it can
bool check_candidate(const PluginFacts& facts, const PluginCandidate& candidate, Findings& findings) {
  const auto& [path, origin, real] = candidate.file;
  const bool taken = real == facts.choice.real;
  const auto add = [&, &path = path](const Table& table) {
    const Findings more = judge(table, path);
    append(findings, more);
    return more.back().verdict == kOk;
  };
  /// A failure if tcpx-p2p takes the library.
  const auto wrong = [&](Fact row) {
    row.otherwise = taken ? kFail : kWarn;
    row.why += taken ? " tcpx-p2p takes it and falls back to nothing else." : " tcpx-p2p does not take it, but NCCL may find it.";
    return row;
  };
  const bool there = candidate.is_there;
  const PluginLoad load = candidate.load.value_or(PluginLoad{});
  const auto look = [&](std::string_view limit) {
    return concat("LD_PRELOAD={} LD_DEBUG=init ", limit, "/bin/true 2>&1 | tail   # shows which of its libraries it was");
  };
  using End = LibraryAnswer::End;
  return add({{"file", concat("no such file, ", origin), there || !taken, kFail,
               "A library that is named must be there; nothing else is taken.",
               "find / -name 'libnccl-net*.so' 2>/dev/null   # then export UCCL_TCPX_PLUGIN_PATH=<what it shows>, or unset it"},
              {"file", concat("no such file, ", origin), there, kNotApplicable,
               facts.choice.path != kEmbedded ? concat("Not needed: ", facts.choice.path, " is taken.")
               : facts.expected.vendor_path   ? "See \"loader\" below."
                                              : "Not needed: the software plugin is the right one on this machine."},
              wrong({"file", concat("no file that may be read, ", origin), candidate.readable, kFail,
                     "The library must be a file that this user may read.",
                     "ls -lL {}   # then sudo chmod a+r {} if it is a file"}),
              wrong({"file", candidate.elf_problem, candidate.elf_problem.empty(), kFail,
                     concat("This program needs a shared library of 64 bits for ", kOwnMachineName, "."),
                     concat("file -L {}   # and take the build for ", kOwnMachineName)}),
              {"file", origin}}) &&
         add({wrong({"mount", "its file system is mounted noexec", !candidate.noexec, kFail,
                     "The dynamic linker may not map code of it.",
                     "sudo mount -o remount,exec $(findmnt -no TARGET -T {})   # or copy the library elsewhere"}),
              {"mount", "programs may run from there"}}) &&
         add({{"load", "not tried", candidate.load.has_value(), kNotApplicable,
               "The doctor stops after two libraries that hang."},
              wrong({"load", load.detail, load.end != End::kRefused, kFail, "The dynamic linker refuses it.",
                     mend_of_refusal(load.detail, path)}),
              wrong({"load", concat("the process that opened it ", load.detail), load.end != End::kDied, kFail,
                     "It ends every program that opens it, before a call.", look("")}),
              wrong({"load", concat("opening it ", load.detail), load.end != End::kHung, kFail,
                     "It hangs every program that opens it.", look("timeout 5 ")}),
              {"load", "loads"}}) &&
         check_tables(load, taken, add, wrong) && taken;
}

Findings check_shadow(const OpenedName& opened) {
  const LibraryFile first = opened.files.empty() ? LibraryFile{} : opened.files.front();
  const auto hidden = std::ranges::find_if(opened.files, [&](const auto& each) { return each.real != first.real; });
  const auto [path, origin, real] = hidden == opened.files.end() ? LibraryFile{} : *hidden;
  const std::string taken = concat("NCCL takes ", first.path, ", ", first.origin);
  return judge(
      {{"shadow", "none on the dynamic linker's path", !opened.files.empty(), kNotApplicable,
        "NCCL then uses its own transport; tcpx-p2p needs none."},
       {"shadow", concat(taken, "; ", path, ", ", origin, ", is hidden"), path.empty(), kWarn,
        "Two different plugins have one name, and the order of directories decides which one runs.",
        concat("export LD_LIBRARY_PATH=", path.substr(0, path.rfind('/')), ":$LD_LIBRARY_PATH   # if the hidden one is meant")},
       {"shadow", taken}},
      opened.name);
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
  for (const std::string& path : PluginLoadOptions{}.installed_paths)
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

Findings check_plugin(const PluginFacts& facts) {
  Findings findings;
  bool usable = facts.choice.path == kEmbedded;
  for (const PluginCandidate& candidate : facts.candidates) usable = check_candidate(facts, candidate, findings) || usable;
  for (const OpenedName& opened : facts.names) append(findings, check_shadow(opened));
  const std::string found = concat("tcpx-p2p takes ", facts.choice.path, ": ", facts.choice.origin);
  append(findings, judge({{"loader", concat(found, "; it is not usable, see above"), usable, kFail,
                           "Loading it ends with an error. Nothing falls back in silence.", kTakeEmbedded},
                          {"loader", found, facts.choice.path != kEmbedded || !facts.expected.vendor_path, kFail,
                           concat("This machine is meant for GPUDirect-TCPX (", facts.expected.because,
                                  "), but data would go over plain TCP."),
                           "export UCCL_TCPX_PLUGIN_PATH=<path of libnccl-net-tcpx.so>   # in a container: mount the host's "
                           "/var/lib/tcpx/lib64"}}));
  return findings;
}

}  // namespace tcpx::doctor
