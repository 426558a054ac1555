#include <cerrno>
#include <utility>

#include "base/text.h"
#include "programs/doctor/kernel.h"
#include "programs/doctor/words.h"

namespace tcpx::doctor {
namespace {

using KernelVersion = std::pair<unsigned, unsigned>;
constexpr KernelVersion kReceiveVersion{6, 12}, kSendVersion{6, 16};

constexpr char kImage[] =
    "recreate the machine from a Container-Optimized OS image for GPUDirect-TCPX (A3 High: family cos-105-lts or later): "
    "gcloud compute images list --project=cos-cloud --no-standard-images";

/// {6, 18} of "6.18.44-cloud"; {0, 0} of anything that does not begin so.
KernelVersion version_of(const std::string& release) {
  const std::vector<std::string> parts = split(release, ".-+");
  if (parts.size() < 2) return {};
  return {number_of<unsigned>(parts[0]).value_or(0), number_of<unsigned>(parts[1]).value_or(0)};
}

/// Which kernel this is, by the option that it knows.
enum class Devmem : uint8_t { kNone, kGoogle, kLinux, kUnknown };

Devmem devmem_of(const DevmemAnswers& answers) {
  if (answers.nobodys != ENOPROTOOPT || !answers.google) return Devmem::kUnknown;
  if (answers.google != ENOPROTOOPT) return Devmem::kGoogle;
  if (!answers.linux_own) return Devmem::kUnknown;
  return answers.linux_own != ENOPROTOOPT ? Devmem::kLinux : Devmem::kNone;
}

Finding check_devmem(const KernelFacts& facts, Devmem devmem) {
  const std::string kernel = concat("kernel ", facts.release);
  switch (devmem) {
    case Devmem::kGoogle:
      return ok("devmem", concat(kernel, " is Google's with devmem TCP: it knows SO_DEVMEM_DONTNEED as option 97"));
    case Devmem::kLinux:
      return judged(
          !facts.expected.vendor_path, Verdict::kWarn, "devmem",
          concat(kernel, " knows SO_DEVMEM_DONTNEED as option 80: Linux's own devmem TCP, ",
                 version_of(facts.release) >= kSendVersion ? "receive and send" : "receive only"),
          "The GPUDirect-TCPX plugin of 2024 works with Google's kernel only (option 97); later builds take this one, too.",
          concat(kImage, "   # or take a plugin that supports Linux's devmem TCP"));
    case Devmem::kNone: {
      const std::string found = concat(kernel, " has no devmem TCP: it knows SO_DEVMEM_DONTNEED neither as option 97 nor as 80");
      if (!facts.expected.vendor_path) {
        return not_applicable("devmem", found, concat(facts.expected.because, "; plain TCP does without."));
      }
      return fail("devmem", found, "Without it the NIC cannot put packets into GPU memory, and no connection is made.", kImage);
    }
    case Devmem::kUnknown:
      break;
  }
  return not_applicable("devmem", concat(kernel, " could not be asked"),
                        "Either there is no TCP over 127.0.0.1 here, or a sandbox answers in the kernel's place.");
}

Finding check_config(const KernelFacts& facts, Devmem devmem) {
  const std::string check = "devmem_config";
  const BuildConfig& config = facts.config;
  if (config.path.empty()) {
    return config.is_there ? not_applicable(check, "/proc/config.gz cannot be read",
                                            "It is damaged, closed to this user, or longer than any kernel's.")
                           : not_applicable(check, "the kernel's configuration is not here",
                                            concat("Neither /proc/config.gz nor /boot/config-", facts.release, " exists."));
  }
  if (devmem == Devmem::kGoogle) {
    return not_applicable(check, concat(config.path, " is of Google's kernel"), "It is asked for Linux's own devmem TCP.");
  }
  if (config.missing.empty()) return ok(check, concat(config.path, " has ", config.present));
  const std::string found = concat(config.path, " lacks ", config.missing);
  if (!facts.expected.vendor_path) {
    return not_applicable(check, found, concat(facts.expected.because, "; plain TCP does without."));
  }
  if (devmem == Devmem::kNone) return not_applicable(check, found, "See devmem: this kernel has none.");
  return fail(check, found,
              concat("Linux has devmem TCP since ", kReceiveVersion.first, ".", kReceiveVersion.second,
                     " and only where it is built in; the option of sockets alone does not tell."),
              kImage);
}

Finding check_ring(const KernelFacts& facts) {
  constexpr char kName[] = "io_uring_zcrx", kWhy[] = "Nothing of this library needs it.";
  if (facts.ring == RingReceive::kPresent) return ok(kName, "present");
  if (facts.ring == RingReceive::kAbsent) {
    return not_applicable(kName, "this kernel has io_uring without zero-copy receive (Linux 6.15, CONFIG_IO_URING_ZCRX)", kWhy);
  }
  const bool off = facts.ring_disabled == "1" || facts.ring_disabled == "2";
  return not_applicable(
      kName, off ? concat("io_uring is switched off: kernel.io_uring_disabled = ", facts.ring_disabled) : "io_uring is refused",
      kWhy);
}

}  // namespace

Findings check_kernel(const KernelFacts& facts) {
  const Devmem devmem = devmem_of(facts.devmem);
  Findings findings = {check_devmem(facts, devmem), check_config(facts, devmem), check_ring(facts)};
  const Findings settings = check_tcp_settings(facts);
  findings.insert(findings.end(), settings.begin(), settings.end());
  return findings;
}

}  // namespace tcpx::doctor
