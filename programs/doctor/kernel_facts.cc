#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/socket_io.h"
#include "base/text.h"
#include "programs/doctor/kernel.h"
#include "programs/doctor/words.h"

namespace tcpx::doctor {
namespace {

constexpr std::chrono::milliseconds kLoopbackTime{500};
constexpr int kOptionBytes = 4;
// SO_DEVMEM_DONTNEED, the option that gives pages back: of the kernel of Google's images for GPUDirect-TCPX (google/
// nccl-plugin-gpudirecttcpx: src/sock/tcpx.h) and of Linux (include/uapi/asm-generic/socket.h, 6.12).
constexpr int kGoogleDontneed = 97, kLinuxDontneed = 80;
constexpr int kNobodysOption = 0x7fff'0000;
// IORING_REGISTER_ZCRX_IFQ (Linux: include/uapi/linux/io_uring.h, 6.15).
constexpr unsigned kRegisterReceiveQueue = 32;
constexpr size_t kMostConfigBytes = 1024 * 1024;  // a distribution's has some 300 KiB
constexpr char kCompressedConfig[] = "/proc/config.gz";
constexpr std::array<const char*, 3> kWantedConfig = {"CONFIG_NET_DEVMEM", "CONFIG_PAGE_POOL", "CONFIG_DMA_SHARED_BUFFER"};

std::optional<int> set_option_error(int option) {
  const auto listener = listen_tcp(SocketAddress::loopback(0), 1);
  if (!listener.is_ok()) return std::nullopt;
  const auto client = connect_tcp(*local_address(listener->get()), Deadline::after(kLoopbackTime));
  if (!client.is_ok()) return std::nullopt;
  const std::array<std::byte, kOptionBytes> zeros{};
  return ::setsockopt(client->get(), SOL_SOCKET, option, zeros.data(), zeros.size()) == 0 ? 0 : errno;
}

RingReceive ring_receive() {
  io_uring_params parameters{};
  // The flags that zcrx asks of its ring; to a ring without it every answer is EINVAL.
  parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQE32;
  const UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &parameters)));
  // EINVAL: a kernel that does not know these flags is older than zcrx.
  if (!ring) return errno == EINVAL ? RingReceive::kAbsent : RingReceive::kRefused;
  // The pointer leads nowhere, so that nothing can be registered. A kernel with zcrx answers EFAULT, or EPERM to who may not use
  // it; one without says EINVAL or EOPNOTSUPP.
  void* const nowhere = reinterpret_cast<void*>(uintptr_t{1});
  (void)::syscall(SYS_io_uring_register, ring.get(), kRegisterReceiveQueue, nowhere, 1);
  return errno == EFAULT || errno == EPERM ? RingReceive::kPresent : RingReceive::kAbsent;
}

/// A file as it is, or what gzip has made of it. nullopt: not there, cut short, damaged, or longer than any configuration.
std::optional<std::string> read_config_text(const FileTree& files, const std::string& path, bool compressed) {
  if (!files.read(path, 1)) return std::nullopt;
  const gzFile file = ::gzopen((files.root() + path).c_str(), "rb");
  if (file == nullptr) return std::nullopt;
  std::string text(kMostConfigBytes + 1, '\0');
  const int bytes = ::gzread(file, text.data(), static_cast<unsigned>(text.size()));
  const bool whole = bytes >= 0 && static_cast<size_t>(bytes) <= kMostConfigBytes && (::gzdirect(file) == 0) == compressed;
  if (::gzclose(file) != Z_OK || !whole) return std::nullopt;
  text.resize(static_cast<size_t>(bytes));
  return text;
}

BuildConfig read_config(const FileTree& files, const std::string& release) {
  BuildConfig config{
      .path = concat("/boot/config-", release), .present = {}, .missing = {}, .is_there = files.exists(kCompressedConfig)};
  auto text = read_config_text(files, config.path, false);
  if (!text) text = read_config_text(files, config.path = kCompressedConfig, true);
  if (!text) return {.path = {}, .present = {}, .missing = {}, .is_there = config.is_there};
  for (const char* name : kWantedConfig) {
    const bool built_in = concat("\n", *text, "\n").find(concat("\n", name, "=y\n")) != std::string::npos;
    std::string& list = built_in ? config.present : config.missing;
    list += concat(list.empty() ? "" : ", ", name);
  }
  return config;
}

/// The settings that are numbers, by name.
std::map<std::string, std::vector<int64_t>> read_sysctls(const FileTree& files) {
  std::map<std::string, std::vector<int64_t>> sysctls;
  for (const char* folder : {"core", "ipv4"}) {
    for (const std::string& name : files.list(concat("/proc/sys/net/", folder))) {
      const std::vector<std::string> words = split(files.text(concat("/proc/sys/net/", folder, "/", name)), " \t");
      std::vector<int64_t> numbers;
      for (const std::string& word : words)
        if (const auto number = number_of(word)) numbers.push_back(*number);
      if (!words.empty() && numbers.size() == words.size()) sysctls[concat("net.", folder, ".", name)] = std::move(numbers);
    }
  }
  return sysctls;
}

}  // namespace

KernelFacts kernel_facts(const Machine& machine) {
  KernelFacts facts{.expected = expected_path(machine)};
  facts.release = machine.files.read("/proc/sys/kernel/osrelease").value_or(facts.release);
  facts.devmem = {set_option_error(kNobodysOption), set_option_error(kGoogleDontneed), set_option_error(kLinuxDontneed)};
  facts.config = read_config(machine.files, facts.release);
  facts.ring = ring_receive();
  facts.ring_disabled = machine.files.text("/proc/sys/kernel/io_uring_disabled");
  facts.sysctls = read_sysctls(machine.files);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.open_files = limit.rlim_cur;
  return facts;
}

}  // namespace tcpx::doctor
