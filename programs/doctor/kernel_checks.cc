#include "programs/doctor/kernel_checks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "programs/doctor/gunzip.h"
#include "programs/doctor/setting_checks.h"

namespace tcpx::doctor {
namespace {

// SO_DEVMEM_DONTNEED, the option that gives pages back: of the kernel of Google's images for GPUDirect-TCPX (google/
// nccl-plugin-gpudirecttcpx: src/sock/tcpx.h) and of Linux (include/uapi/asm-generic/socket.h, 6.12).
constexpr int kGoogleDontneed = 97;
constexpr int kLinuxDontneed = 80;
// Of no kernel. Some sandboxes accept every option; there the answers to the others mean nothing.
constexpr int kNobodysOption = 0x7fff'0000;

using KernelVersion = std::pair<unsigned, unsigned>;
constexpr KernelVersion kReceiveVersion{6, 12};
constexpr KernelVersion kSendVersion{6, 16};

constexpr size_t kMostConfigBytes = 1024 * 1024;  // a distribution's has some 300 KiB
constexpr std::string_view kCompressedConfig = "/proc/config.gz";
constexpr std::array<std::string_view, 3> kWantedConfig = {"CONFIG_NET_DEVMEM", "CONFIG_PAGE_POOL", "CONFIG_DMA_SHARED_BUFFER"};

constexpr std::string_view kImage =
    "recreate the machine from a Container-Optimized OS image for GPUDirect-TCPX (A3 High: family cos-105-lts or later): "
    "gcloud compute images list --project=cos-cloud --no-standard-images";

/// {6, 18} of "6.18.44-cloud"; {0, 0} of what does not begin so.
KernelVersion version_of(std::string_view release) {
  KernelVersion version;
  const char* const end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, version.first);
  if (error != std::errc() || dot == end || *dot != '.') return {};
  if (std::from_chars(dot + 1, end, version.second).ec != std::errc()) return {};
  return version;
}

/// With what the running kernel was built.
struct BuildConfig {
  std::string path;  ///< "" when it cannot be read
  std::string present, missing;

  bool is_known() const { return !path.empty(); }
};

BuildConfig read_config(const Machine& machine, const std::string& release) {
  std::string path = concat("/boot/config-", release);
  std::optional<std::string> text = machine.files.read(path, kMostConfigBytes);
  if (!text) {
    path = kCompressedConfig;
    // Its last byte is the highest of a length, zero for any that is taken here; so nothing of it is lost as white space.
    const auto compressed = machine.files.read(path, kMostConfigBytes);
    if (compressed) text = gunzip(*compressed, kMostConfigBytes);
  }
  if (!text) return {};
  BuildConfig config{.path = path, .present = {}, .missing = {}};
  for (const std::string_view name : kWantedConfig) {
    const bool built_in = concat("\n", *text, "\n").find(concat("\n", name, "=y\n")) != std::string::npos;
    std::string& list = built_in ? config.present : config.missing;
    list += concat(list.empty() ? "" : ", ", name);
  }
  return config;
}

/// Which kernel this is, by the option that it knows.
enum class Devmem : uint8_t { kNone, kGoogle, kLinux, kUnknown };

Devmem ask_devmem(const KernelSource& source) {
  if (source.set_option_error(kNobodysOption) != ENOPROTOOPT) return Devmem::kUnknown;
  const auto google = source.set_option_error(kGoogleDontneed);
  if (!google) return Devmem::kUnknown;
  if (*google != ENOPROTOOPT) return Devmem::kGoogle;
  const auto linux_own = source.set_option_error(kLinuxDontneed);
  if (!linux_own) return Devmem::kUnknown;
  return *linux_own != ENOPROTOOPT ? Devmem::kLinux : Devmem::kNone;
}

Finding check_devmem(const std::string& release, Devmem devmem, const Expectation& expected) {
  const std::string kernel = concat("kernel ", release);
  switch (devmem) {
    case Devmem::kGoogle:
      return ok("devmem",
                concat(kernel, " is Google's with devmem TCP: it knows SO_DEVMEM_DONTNEED as option ", kGoogleDontneed));
    case Devmem::kLinux: {
      const std::string found =
          concat(kernel, " knows SO_DEVMEM_DONTNEED as option ", kLinuxDontneed, ": Linux's own devmem TCP, ",
                 version_of(release) >= kSendVersion ? "receive and send" : "receive only");
      if (!expected.vendor_path) return ok("devmem", found);
      return warn(
          "devmem", found,
          "The GPUDirect-TCPX plugin of 2024 works with Google's kernel only (option 97); later builds take this one, too.",
          concat(kImage, "   # or take a plugin that supports Linux's devmem TCP"));
    }
    case Devmem::kNone: {
      const std::string found = concat(kernel, " has no devmem TCP: it knows SO_DEVMEM_DONTNEED neither as option ",
                                       kGoogleDontneed, " nor as ", kLinuxDontneed);
      if (!expected.vendor_path) return not_applicable("devmem", found, concat(expected.because, "; plain TCP does without."));
      return fail("devmem", found, "Without it the NIC cannot put packets into GPU memory, and no connection is made.",
                  std::string(kImage));
    }
    case Devmem::kUnknown:
      break;
  }
  return not_applicable("devmem", concat(kernel, " could not be asked"),
                        "Either there is no TCP over 127.0.0.1 here, or a sandbox answers in the kernel's place.");
}

Finding check_config(const Machine& machine, const std::string& release, Devmem devmem, const Expectation& expected) {
  const BuildConfig config = read_config(machine, release);
  if (!config.is_known()) {
    if (machine.files.exists(kCompressedConfig)) {
      return not_applicable("devmem_config", concat(kCompressedConfig, " cannot be read"),
                            "It is damaged, closed to this user, or longer than any kernel's.");
    }
    return not_applicable("devmem_config", "the kernel's configuration is not here",
                          concat("Neither ", kCompressedConfig, " nor /boot/config-", release, " exists."));
  }
  if (devmem == Devmem::kGoogle) {
    return not_applicable("devmem_config", concat(config.path, " is of Google's kernel"),
                          "What it is asked for is Linux's own devmem TCP.");
  }
  if (config.missing.empty()) return ok("devmem_config", concat(config.path, " has ", config.present));
  const std::string found = concat(config.path, " lacks ", config.missing);
  if (!expected.vendor_path) return not_applicable("devmem_config", found, concat(expected.because, "; plain TCP does without."));
  if (devmem == Devmem::kNone) return not_applicable("devmem_config", found, "See devmem: this kernel has none.");
  return fail("devmem_config", found,
              concat("Linux has devmem TCP since ", kReceiveVersion.first, ".", kReceiveVersion.second,
                     " and only where it is built in; the option of sockets alone does not tell."),
              std::string(kImage));
}

Finding check_ring(const Machine& machine, const KernelSource& source) {
  const std::string name = "io_uring_zcrx";
  constexpr std::string_view kWhy = "Nothing of this library needs it.";
  switch (source.ring_receive()) {
    case RingReceive::kPresent:
      return ok(name, "present");
    case RingReceive::kAbsent:
      return not_applicable(name, "this kernel has io_uring without zero-copy receive (Linux 6.15, CONFIG_IO_URING_ZCRX)",
                            std::string(kWhy));
    case RingReceive::kRefused:
      break;
  }
  const std::string disabled = machine.files.read("/proc/sys/kernel/io_uring_disabled").value_or("");
  const bool off = disabled == "1" || disabled == "2";
  return not_applicable(name,
                        off ? concat("io_uring is switched off: kernel.io_uring_disabled = ", disabled) : "io_uring is refused",
                        std::string(kWhy));
}

}  // namespace

Findings check_kernel(const Machine& machine, const KernelSource& source) {
  const Expectation expected = expected_path(machine);
  const std::string release = machine.files.read("/proc/sys/kernel/osrelease").value_or("of unknown version");
  const Devmem devmem = ask_devmem(source);
  Findings findings = {
      check_devmem(release, devmem, expected),
      check_config(machine, release, devmem, expected),
      check_ring(machine, source),
  };
  const Findings settings = check_settings(machine, expected, source);
  findings.insert(findings.end(), settings.begin(), settings.end());
  return findings;
}

}  // namespace tcpx::doctor
