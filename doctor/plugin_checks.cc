#include <algorithm>

#include "base/text.h"
#include "doctor/plugin.h"
#include "doctor/words.h"
#include "net/soft/soft_table.h"

namespace tcpx::doctor {
namespace {

constexpr char kTakeEmbedded[] = "export UCCL_TCPX_PLUGIN_PATH=embedded   # the software plugin, over plain TCP";
#if defined(__aarch64__)
constexpr char kOwnMachineName[] = "aarch64";
#else
constexpr char kOwnMachineName[] = "x86-64";
#endif

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

/// One library that may become the plugin.
struct CandidateChecks {
  const PluginFacts& facts;
  const PluginCandidate& candidate;
  Findings& findings;
  const std::string& path = candidate.file.path;
  const bool taken = candidate.file.real == facts.choice.real;

  /// @return whether it is the one that tcpx-p2p takes, and it can
  bool run() { return check_file() && check_mount() && check_load() && taken; }

  std::string of_it(std::string_view check) const { return concat(check, "[", path, "]"); }
  void add(Finding finding) { findings.push_back(std::move(finding)); }
  /// A failure if tcpx-p2p takes the library. @return false
  bool wrong(std::string_view check, std::string found, std::string_view why, std::string mend) {
    add({of_it(check), taken ? Verdict::kFail : Verdict::kWarn, std::move(found),
         concat(why, taken ? " tcpx-p2p takes it and falls back to nothing else."
                           : " tcpx-p2p does not take it, but NCCL may find it."),
         std::move(mend)});
    return false;
  }

  bool check_file() {
    const std::string& origin = candidate.file.origin;
    if (!candidate.is_there && taken) {
      add(fail(of_it("file"), concat("no such file, ", origin), "A library that is named must be there; nothing else is taken.",
               "find / -name 'libnccl-net*.so' 2>/dev/null   # then export UCCL_TCPX_PLUGIN_PATH=<what it shows>, or unset it"));
      return false;
    }
    if (!candidate.is_there) {
      add(not_applicable(of_it("file"), concat("no such file, ", origin),
                         facts.choice.path != kEmbedded ? concat("Not needed: ", facts.choice.path, " is taken.")
                         : facts.expected.vendor_path   ? "See \"loader\" below."
                                                        : "Not needed: the software plugin is the right one on this machine."));
      return false;
    }
    if (!candidate.readable) {
      return wrong("file", concat("no file that may be read, ", origin), "The library must be a file that this user may read.",
                   concat("ls -lL ", path, "   # then sudo chmod a+r ", path, " if it is a file"));
    }
    if (!candidate.elf_problem.empty()) {
      return wrong("file", candidate.elf_problem,
                   concat("This program needs a shared library of 64 bits for ", kOwnMachineName, "."),
                   concat("file -L ", path, "   # and take the build for ", kOwnMachineName));
    }
    add(ok(of_it("file"), origin));
    return true;
  }

  bool check_mount() {
    if (candidate.noexec) {
      return wrong("mount", "its file system is mounted noexec", "The dynamic linker may not map code of it.",
                   concat("sudo mount -o remount,exec $(findmnt -no TARGET -T ", path, ")   # or copy the library elsewhere"));
    }
    add(ok(of_it("mount"), "programs may run from there"));
    return true;
  }

  bool check_load() {
    if (!candidate.load) {
      add(not_applicable(of_it("load"), "not tried", "The doctor stops after two libraries that hang."));
      return false;
    }
    const PluginLoad& load = *candidate.load;
    const auto look = [&](std::string_view limit) {
      return concat("LD_PRELOAD=", path, " LD_DEBUG=init ", limit,
                    "/bin/true 2>&1 | tail   # shows which of its libraries it was");
    };
    if (load.end == LibraryAnswer::End::kRefused)
      return wrong("load", load.detail, "The dynamic linker refuses it.", mend_of_refusal(load.detail, path));
    if (load.end == LibraryAnswer::End::kDied) {
      return wrong("load", concat("the process that opened it ", load.detail),
                   "It ends every program that opens it, before a call.", look(""));
    }
    if (load.end == LibraryAnswer::End::kHung)
      return wrong("load", concat("opening it ", load.detail), "It hangs every program that opens it.", look("timeout 5 "));
    add(ok(of_it("load"), "loads"));
    return check_tables(load);
  }

  /// @return whether there is a table that tcpx-p2p can use
  bool check_tables(const PluginLoad& load) {
    const std::string versions = joined(load.tables, ", ", [](const auto& table) { return concat("v", table.version); });
    std::string lacks, name;
    bool v7 = false, v8 = false, other = false;
    for (const PluginTable& table : load.tables) {
      if (!table.name.empty()) name = table.name;
      if (!table.lacks.empty()) lacks += concat(lacks.empty() ? "" : "; ", table.lacks);
      v7 = v7 || (table.version == 7 && table.lacks.empty());
      v8 = v8 || (table.version == 8 && table.lacks.empty());
      other = other || (table.version != 7 && table.version != 8);
    }
    const bool vendor = name.starts_with("GPUDirectTCPX"), software = name == soft::kPluginName;
    const std::string kind = vendor ? "GPUDirect-TCPX" : software ? "the software plugin of tcpx-p2p" : "another plugin";
    const std::string found = concat(versions.empty() ? "no ncclNetPlugin table" : versions, name.empty() ? "" : ": ", name,
                                     versions.empty() ? "" : concat(", ", kind), lacks.empty() ? "" : "; ", lacks);
    if (!v7 && !v8 && lacks.empty() && other && !taken) {
      add(not_applicable(of_it("tables"), found, "For NCCL: tcpx-p2p reads v7 and v8, and does not take this library."));
    } else if (!v7 && !v8) {
      wrong("tables", found, "tcpx-p2p needs a complete table ncclNetPlugin_v7 or _v8.", kTakeEmbedded);
    } else if (!lacks.empty()) {
      add(warn(of_it("tables"), found, "A half-empty table is skipped here; other programs may call what is not there.",
               "take a complete build of the plugin; tcpx-p2p uses its other table until then"));
    } else {
      add(warn_unless(
          !(v7 && v8 && (vendor || software)), of_it("tables"), found,
          "GPUDirect-TCPX exports v7 only. Programs that find v8 and read it as v7 misread the devices; tcpx-p2p does not.",
          "take the vendor's own build, which exports v7 only"));
    }
    if (v7 || v8) add(layout(load, vendor, software));
    return v7 || v8;
  }

  Finding layout(const PluginLoad& load, bool vendor, bool software) const {
    if (software) return ok(of_it("layout"), "requests as in GPUDirect-TCPX of 2024: unpack slot at 56");
    if (vendor && load.uses_libmnl) {
      return warn(of_it("layout"), "uses libmnl, so probably the state of 2026: unpack slot at 64",
                  "tcpx-p2p tells 2024 and 2026 apart by the first message; programs that know 2024 only read garbage.",
                  "nothing for tcpx-p2p; for others take the release v3.1.9 of the plugin");
    }
    return not_applicable(
        of_it("layout"), vendor ? "probably the state of 2024: unpack slot at 56" : "not known for this plugin",
        "Only the first message of a connection shows it; tcpx-p2p checks it then and refuses what it does not know.");
  }
};

Finding check_shadow(const OpenedName& opened) {
  const std::string check = concat("shadow[", opened.name, "]");
  const std::vector<LibraryFile>& files = opened.files;
  if (files.empty())
    return not_applicable(check, "none on the dynamic linker's path", "NCCL then uses its own transport; tcpx-p2p needs none.");
  const auto hidden = std::ranges::find_if(files, [&](const auto& each) { return each.real != files.front().real; });
  const std::string taken = concat("NCCL takes ", files.front().path, ", ", files.front().origin);
  if (hidden == files.end()) return ok(check, taken);
  return warn(check, concat(taken, "; ", hidden->path, ", ", hidden->origin, ", is hidden"),
              "Two different plugins have one name, and the order of directories decides which one runs.",
              concat("export LD_LIBRARY_PATH=", hidden->path.substr(0, hidden->path.rfind('/')),
                     ":$LD_LIBRARY_PATH   # if the hidden one is meant"));
}

Finding check_choice(const PluginFacts& facts, bool usable) {
  const std::string found = concat("tcpx-p2p takes ", facts.choice.path, ": ", facts.choice.origin);
  if (facts.choice.path != kEmbedded) {
    return fail_unless(usable, "loader", usable ? found : concat(found, "; it is not usable, see above"),
                       "Loading it ends with an error. Nothing falls back in silence.", kTakeEmbedded);
  }
  return fail_unless(
      !facts.expected.vendor_path, "loader", found,
      concat("This machine is meant for GPUDirect-TCPX (", facts.expected.because, "), but data would go over plain TCP."),
      "export UCCL_TCPX_PLUGIN_PATH=<path of libnccl-net-tcpx.so>   # in a container: mount the host's "
      "/var/lib/tcpx/lib64");
}

}  // namespace

Findings check_plugin(const PluginFacts& facts) {
  Findings findings;
  bool usable = false;
  for (const PluginCandidate& candidate : facts.candidates) usable = CandidateChecks{facts, candidate, findings}.run() || usable;
  for (const OpenedName& opened : facts.names) findings.push_back(check_shadow(opened));
  findings.push_back(check_choice(facts, usable));
  return findings;
}

}  // namespace tcpx::doctor
