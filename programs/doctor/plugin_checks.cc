#include "programs/doctor/plugin_checks.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "net/soft/soft_table.h"
#include "programs/doctor/plugin_candidates.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kVendorName = "GPUDirectTCPX";
constexpr const char* kTakeEmbedded = "export UCCL_TCPX_PLUGIN_PATH=embedded   # the software plugin, over plain TCP";
// Each may take the probe's whole limit.
constexpr int kMostHangs = 2;

#if defined(__aarch64__)
constexpr uint16_t kOwnMachine = EM_AARCH64;
constexpr char kOwnMachineName[] = "aarch64";
#else
constexpr uint16_t kOwnMachine = EM_X86_64;
constexpr char kOwnMachineName[] = "x86-64";
#endif

/// Why the file cannot be a library of this program; "" when it can.
std::string elf_problem(const std::string& bytes) {
  Elf64_Ehdr header{};
  const size_t needed = offsetof(Elf64_Ehdr, e_version);
  if (bytes.size() < needed || !bytes.starts_with(ELFMAG)) {
    return bytes.empty() ? "an empty file" : concat("no library: it begins with \"", bytes.substr(0, 16), "\"");
  }
  std::memcpy(&header, bytes.data(), needed);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "a library of 32 bits";
  if (header.e_machine != kOwnMachine) {
    const std::string other = header.e_machine == EM_X86_64    ? "x86-64"
                              : header.e_machine == EM_AARCH64 ? "aarch64"
                                                               : concat("machine ", header.e_machine, " of ELF");
    return concat("a library for ", other);
  }
  return header.e_type == ET_DYN ? "" : "an ELF file, but no shared library";
}

/// What to do about a refusal of the dynamic linker, by its words.
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

class PluginGroup {
 public:
  PluginGroup(const Machine& machine, PluginProbe& probe)
      : machine_(machine), probe_(probe), expected_(expected_path(machine)), choice_(plugin_choice(machine)) {}

  Findings run() {
    const auto real = [&](const std::string& path) { return machine_.files.resolve(path).value_or(path); };
    for (const PluginCandidate& candidate : plugin_candidates(machine_)) {
      taken_ = real(candidate.path) == real(choice_.path);
      const bool usable = check_file(candidate) && check_mount(candidate) && check_load(candidate);
      chosen_is_usable_ = chosen_is_usable_ || (taken_ && usable);
    }
    check_shadows();
    check_choice();
    return std::move(findings_);
  }

 private:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  /// A failure if tcpx-p2p takes the library.
  void wrong(std::string check, std::string found, const std::string& why, std::string mend) {
    add(taken_ ? fail(std::move(check), std::move(found), concat(why, " tcpx-p2p takes it and falls back to nothing else."),
                      std::move(mend))
               : warn(std::move(check), std::move(found), concat(why, " tcpx-p2p does not take it, but NCCL may find it."),
                      std::move(mend)));
  }

  bool check_file(const PluginCandidate& candidate) {
    const std::string check = concat("file[", candidate.path, "]");
    if (!machine_.files.exists(candidate.path)) {
      if (taken_) {
        add(fail(
            check, concat("no such file, ", candidate.origin), "A library that is named must be there; nothing else is taken.",
            "find / -name 'libnccl-net*.so' 2>/dev/null   # then export UCCL_TCPX_PLUGIN_PATH=<what it shows>, or unset it"));
      } else {
        add(not_applicable(check, concat("no such file, ", candidate.origin),
                           choice_.path != kEmbedded ? concat("Not needed: ", choice_.path, " is taken.")
                           : expected_.vendor_path   ? "See \"loader\" below."
                                                     : "Not needed: the software plugin is the right one on this machine."));
      }
      return false;
    }
    const auto bytes = machine_.files.read(candidate.path, sizeof(Elf64_Ehdr));
    if (!bytes) {
      wrong(check, concat("no file that may be read, ", candidate.origin), "The library must be a file that this user may read.",
            concat("ls -lL ", candidate.path, "   # then sudo chmod a+r ", candidate.path, " if it is a file"));
      return false;
    }
    if (const std::string problem = elf_problem(*bytes); !problem.empty()) {
      wrong(check, problem, concat("This program needs a shared library of 64 bits for ", kOwnMachineName, "."),
            concat("file -L ", candidate.path, "   # and take the build for ", kOwnMachineName));
      return false;
    }
    add(ok(check, candidate.origin));
    return true;
  }

  bool check_mount(const PluginCandidate& candidate) {
    const std::string mount = noexec_mount_of(machine_, candidate.path);
    const std::string check = concat("mount[", candidate.path, "]");
    if (mount.empty()) {
      add(ok(check, "programs may run from there"));
      return true;
    }
    wrong(check, concat(mount, " is mounted noexec"), "The dynamic linker may not map code of it.",
          concat("sudo mount -o remount,exec ", mount, "   # or copy the library elsewhere"));
    return false;
  }

  bool check_load(const PluginCandidate& candidate) {
    const std::string check = concat("load[", candidate.path, "]");
    if (hangs_ >= kMostHangs) {
      add(not_applicable(check, "not tried", concat("The doctor stops after ", kMostHangs, " libraries that hang.")));
      return false;
    }
    const PluginLoad load = probe_.load(candidate.path);
    switch (load.end) {
      case PluginLoad::End::kLoaded:
        add(ok(check, "loads"));
        return check_tables(candidate, load);
      case PluginLoad::End::kRefused:
        wrong(check, load.detail, "The dynamic linker refuses it.", mend_of_refusal(load.detail, candidate.path));
        return false;
      case PluginLoad::End::kDied:
        wrong(check, concat("the process that opened it ", load.detail), "It ends every program that opens it, before a call.",
              concat("LD_PRELOAD=", candidate.path,
                     " LD_DEBUG=init /bin/true 2>&1 | tail   # shows which of its libraries it was"));
        return false;
      case PluginLoad::End::kHung:
        ++hangs_;
        wrong(check, concat("opening it ", load.detail), "It hangs every program that opens it.",
              concat("LD_PRELOAD=", candidate.path,
                     " LD_DEBUG=init timeout 5 /bin/true 2>&1 | tail   # shows which of its libraries it was"));
        return false;
    }
    return false;
  }

  /// @return whether there is a table that tcpx-p2p can use
  bool check_tables(const PluginCandidate& candidate, const PluginLoad& load) {
    const std::string check = concat("tables[", candidate.path, "]");
    std::string versions, lacks, name;
    bool v7 = false, v8 = false, other = false;
    for (const PluginTable& table : load.tables) {
      versions += concat(versions.empty() ? "" : ", ", "v", table.version);
      if (!table.name.empty()) name = table.name;
      const bool known = table.version == 7 || table.version == 8;
      other = other || !known;
      if (!table.lacks.empty()) lacks += concat(lacks.empty() ? "" : "; ", table.lacks);
      if (known && table.lacks.empty()) (table.version == 7 ? v7 : v8) = true;
    }
    const bool vendor = name.starts_with(kVendorName), software = name == soft::kPluginName;
    const std::string kind = vendor ? "GPUDirect-TCPX" : software ? "the software plugin of tcpx-p2p" : "another plugin";
    const std::string found = concat(versions.empty() ? "no ncclNetPlugin table" : versions, name.empty() ? "" : ": ", name,
                                     versions.empty() ? "" : concat(", ", kind), lacks.empty() ? "" : "; ", lacks);
    if (!v7 && !v8 && lacks.empty() && other && !taken_) {
      add(not_applicable(check, found, "For NCCL: tcpx-p2p reads v7 and v8, and does not take this library."));
    } else if (!v7 && !v8) {
      wrong(check, found, "tcpx-p2p needs a complete table ncclNetPlugin_v7 or _v8.", kTakeEmbedded);
    } else if (!lacks.empty()) {
      add(warn(check, found, "A half-empty table is skipped here; other programs may call what is not there.",
               "take a complete build of the plugin; tcpx-p2p uses its other table until then"));
    } else if (v7 && v8 && (vendor || software)) {
      add(warn(check, found,
               "GPUDirect-TCPX exports v7 only. Programs that find v8 and read it as v7 misread the devices; tcpx-p2p does not.",
               "take the vendor's own build, which exports v7 only"));
    } else {
      add(ok(check, found));
    }
    if (v7 || v8) check_layout(candidate, load, vendor, software);
    return v7 || v8;
  }

  void check_layout(const PluginCandidate& candidate, const PluginLoad& load, bool vendor, bool software) {
    const std::string check = concat("layout[", candidate.path, "]");
    if (software) {
      add(ok(check, "requests as in GPUDirect-TCPX of 2024: unpack slot at 56"));
    } else if (vendor && load.uses_libmnl) {
      add(warn(check, "uses libmnl, so probably the state of 2026: unpack slot at 64",
               "tcpx-p2p tells 2024 and 2026 apart by the first message; programs that know 2024 only read garbage.",
               "nothing for tcpx-p2p; for others take the release v3.1.9 of the plugin"));
    } else {
      add(not_applicable(check, vendor ? "probably the state of 2024: unpack slot at 56" : "not known for this plugin",
                         "Only the first message of a connection shows it; tcpx-p2p checks it then and refuses what it does not "
                         "know."));
    }
  }

  void check_shadows() {
    for (const std::string& name : names_that_nccl_opens()) {
      const std::string check = concat("shadow[", name, "]");
      const std::vector<PluginCandidate> found = found_by_name(machine_, name);
      if (found.empty()) {
        add(not_applicable(check, "none on the dynamic linker's path", "NCCL then uses its own transport; tcpx-p2p needs none."));
        continue;
      }
      const auto real = [&](const PluginCandidate& each) { return machine_.files.resolve(each.path).value_or(each.path); };
      const auto hidden =
          std::find_if(found.begin(), found.end(), [&](const auto& each) { return real(each) != real(found.front()); });
      const std::string taken = concat("NCCL takes ", found.front().path, ", ", found.front().origin);
      if (hidden == found.end()) {
        add(ok(check, taken));
      } else {
        const std::string directory = hidden->path.substr(0, hidden->path.rfind('/'));
        add(warn(check, concat(taken, "; ", hidden->path, ", ", hidden->origin, ", is hidden"),
                 "Two different plugins have one name, and the order of directories decides which one runs.",
                 concat("export LD_LIBRARY_PATH=", directory, ":$LD_LIBRARY_PATH   # if the hidden one is meant")));
      }
    }
  }

  /// NCCL_NET_PLUGIN is a list; each entry is a file, or what stands between "libnccl-net-" and ".so" (NVIDIA/nccl:
  /// src/plugin/plugin_open.cc, 2.28).
  std::vector<std::string> names_that_nccl_opens() const {
    const auto list = machine_.variable("NCCL_NET_PLUGIN");
    if (!list) return {"libnccl-net.so"};
    std::vector<std::string> names;
    std::string entry;
    for (const char c : *list + ",") {
      if (c != ',') {
        entry.push_back(c);
        continue;
      }
      if (!entry.empty() && entry != "none" && entry.find('/') == std::string::npos) {
        names.push_back(entry.ends_with(".so") ? entry : concat("libnccl-net-", entry, ".so"));
      }
      entry.clear();
    }
    return names;
  }

  void check_choice() {
    const std::string found = concat("tcpx-p2p takes ", choice_.path, ": ", choice_.reason);
    if (choice_.path != kEmbedded) {
      add(chosen_is_usable_ ? ok("loader", found)
                            : fail("loader", concat(found, "; it is not usable, see above"),
                                   "Loading it ends with an error. Nothing falls back in silence.", kTakeEmbedded));
    } else if (expected_.vendor_path) {
      add(fail("loader", found,
               concat("This machine is meant for GPUDirect-TCPX (", expected_.because, "), but data would go over plain TCP."),
               "export UCCL_TCPX_PLUGIN_PATH=<path of libnccl-net-tcpx.so>   # in a container: mount the host's "
               "/var/lib/tcpx/lib64"));
    } else {
      add(ok("loader", found));
    }
  }

  const Machine& machine_;
  PluginProbe& probe_;
  const Expectation expected_;
  const PluginChoice choice_;
  Findings findings_;
  bool taken_ = false;  // of the candidate that is being looked at: it is the one that tcpx-p2p takes
  bool chosen_is_usable_ = false;
  int hangs_ = 0;
};

}  // namespace

Findings check_plugin(const Machine& machine, PluginProbe& probe) {
  return PluginGroup(machine, probe).run();
}

}  // namespace tcpx::doctor
