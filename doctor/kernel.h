// Group "kernel": support of the kernel for receiving into GPU memory, and its settings for TCP.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/machine.h"

namespace tcpx::doctor {

/// The kernel's way to hand over packets by io_uring where the NIC has put them (zcrx).
enum class RingReceive : uint8_t {
  kPresent,
  kAbsent,   ///< there is io_uring, built without it or older than it
  kRefused,  ///< io_uring is missing, switched off, or forbidden to this process
};

/// The options of the kernel of which some sandboxes accept all; one that no kernel has tells those apart.
struct DevmemAnswers {
  /// The answer of setsockopt(SOL_SOCKET) with four zero bytes on a TCP connection over loopback: 0 or an errno; ENOPROTOOPT of a
  /// kernel that does not know the option. One that knows it as SO_DEVMEM_DONTNEED answers something else, for instance EINVAL:
  /// its argument is a list of tokens of eight bytes, and half a token gives no page back. Fewer than four bytes are refused
  /// before the option is looked at (Linux: net/core/sock.c, sk_setsockopt and sock_devmem_dontneed, 6.12). nullopt when there is
  /// no such connection.
  std::optional<int> nobodys, google, linux_own;
};

/// Whose devmem TCP a kernel has.
enum class DevmemKind : uint8_t {
  kUnknown,  ///< it could not be asked
  kNone,
  kGoogle,
  kLinux,
};
DevmemKind kind_of(const DevmemAnswers& answers);
/// @param release of a kernel with Linux's own: "6.18.44-cloud"
bool sends_device_memory(const std::string& release);

/// With what the running kernel was built.
struct BuildConfig {
  std::string path;                  ///< "" when it cannot be read
  std::vector<std::string> missing;  ///< of what devmem TCP needs
  bool is_there = false;             ///< a file is, be it readable or not
};

struct KernelFacts {
  Expectation expected;
  std::string release = "of unknown version";
  DevmemAnswers devmem;
  BuildConfig config;
  RingReceive ring = RingReceive::kRefused;
  std::string ring_disabled;                            ///< kernel.io_uring_disabled
  std::map<std::string, std::vector<int64_t>> sysctls;  ///< "net.ipv4.tcp_rmem": those that are shown, as far as they are numbers
  std::optional<uint64_t> open_files;                   ///< descriptors that a process may have
};

/// Changes nothing but objects of its own, which it closes again. Needs no privilege.
KernelFacts kernel_facts(const Machine& machine);

Findings check_kernel(const KernelFacts& facts);

}  // namespace tcpx::doctor
