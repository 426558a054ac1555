#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/words.h"
#include "doctor/kernel.h"
#include "net/soft/wire.h"

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
  BuildConfig config{.path = concat("/boot/config-", release), .missing = {}, .is_there = files.exists(kCompressedConfig)};
  auto text = read_config_text(files, config.path, false);
  if (!text) text = read_config_text(files, config.path = kCompressedConfig, true);
  if (!text) return {.path = {}, .missing = {}, .is_there = config.is_there};
  const auto is_missing = [lines = concat("\n", *text, "\n")](const std::string& name) {
    return lines.find(concat("\n", name, "=y\n")) == std::string::npos;
  };
  std::ranges::copy_if(kWantedConfig, std::back_inserter(config.missing), is_missing);
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

/// {6, 18} of "6.18.44-cloud"; {0, 0} of anything that does not begin so.
std::pair<unsigned, unsigned> version_of(const std::string& release) {
  const std::vector<std::string> parts = split(release, ".-+");
  if (parts.size() < 2) return {};
  return {number_of<unsigned>(parts[0]).value_or(0), number_of<unsigned>(parts[1]).value_or(0)};
}

Findings check_receiving(const KernelFacts& facts) {
  constexpr char kImage[] =
      "recreate the machine from a Container-Optimized OS image for GPUDirect-TCPX (A3 High: family cos-105-lts or later): "
      "gcloud compute images list --project=cos-cloud --no-standard-images";
  const DevmemKind kind = kind_of(facts.devmem);
  const bool vendor_path = facts.expected.vendor_path, known = kind != DevmemKind::kUnknown;
  const bool is_google = kind == DevmemKind::kGoogle, has_none = kind == DevmemKind::kNone;
  const std::string kernel = concat("kernel ", facts.release);
  const std::string none = concat(kernel, " has no devmem TCP: it knows SO_DEVMEM_DONTNEED neither as option 97 nor as 80");
  const std::string does_without = concat(facts.expected.because, "; plain TCP does without.");
  const auto& [path, missing, is_there] = facts.config;
  const std::string lacks = concat(path, " lacks ", joined(missing));
  const bool off = facts.ring_disabled == "1" || facts.ring_disabled == "2";
  constexpr char kUnneeded[] = "Nothing of this library needs it.";
  return judge({
      {"devmem", concat(kernel, " could not be asked"), known, kNotApplicable,
       "Either there is no TCP over 127.0.0.1 here, or a sandbox answers in the kernel's place."},
      {"devmem", none, !has_none || vendor_path, kNotApplicable, does_without},
      {"devmem", none, !has_none, kFail, "Without it the NIC cannot put packets into GPU memory, and no connection is made.",
       kImage},
      {"devmem",
       is_google ? concat(kernel, " is Google's with devmem TCP: it knows SO_DEVMEM_DONTNEED as option 97")
                 : concat(kernel, " knows SO_DEVMEM_DONTNEED as option 80: Linux's own devmem TCP, ",
                          sends_device_memory(facts.release) ? "receive and send" : "receive only"),
       is_google || !vendor_path, kWarn,
       "The GPUDirect-TCPX plugin of 2024 works with Google's kernel only (option 97); later builds take this one, too.",
       concat(kImage, "   # or take a plugin that supports Linux's devmem TCP")},
      {"devmem_config", "/proc/config.gz cannot be read", !path.empty() || !is_there, kNotApplicable,
       "It is damaged, closed to this user, or longer than any kernel's."},
      {"devmem_config", "the kernel's configuration is not here", !path.empty(), kNotApplicable,
       concat("Neither /proc/config.gz nor /boot/config-", facts.release, " exists.")},
      {"devmem_config", concat(path, " is of Google's kernel"), !is_google, kNotApplicable,
       "It is asked for Linux's own devmem TCP."},
      {"devmem_config", lacks, missing.empty() || vendor_path, kNotApplicable, does_without},
      {"devmem_config", lacks, missing.empty() || !has_none, kNotApplicable, "See devmem: this kernel has none."},
      {"devmem_config", lacks, missing.empty(), kFail,
       "Linux has devmem TCP since 6.12 and only where it is built in; the option of sockets alone does not tell.", kImage},
      {"devmem_config", concat(path, " has ", joined(kWantedConfig))},
      {"io_uring_zcrx", "this kernel has io_uring without zero-copy receive (Linux 6.15, CONFIG_IO_URING_ZCRX)",
       facts.ring != RingReceive::kAbsent, kNotApplicable, kUnneeded},
      {"io_uring_zcrx",
       off ? concat("io_uring is switched off: kernel.io_uring_disabled = ", facts.ring_disabled) : "io_uring is refused",
       facts.ring == RingReceive::kPresent, kNotApplicable, kUnneeded},
      {"io_uring_zcrx", "present"},
  });
}

// Linux grants a connection 4 MiB of send buffer and 6 MiB of receive buffer unless told otherwise, or less on a machine with
// little memory (net/ipv4/tcp.c, tcp_init). Below this somebody has cut it.
constexpr int64_t kLeastWindowBytes = 4 * 1024 * 1024;
// Linux's default since 6.7; before it was 20480 (include/net/sock.h).
constexpr int64_t kZeroCopyOptionBytes = 128 * 1024;
// Linux's default until 5.4; 4096 since (include/linux/socket.h).
constexpr int64_t kLeastBacklog = 128;
// A small cluster: sixteen peers, in both directions, with the most data sockets and one for control.
constexpr int64_t kPeers = 16;
constexpr int64_t kSocketsOfPeer = 2 * (soft::kMaxDataSockets + 1);
constexpr int64_t kProcesses = 8;  // one per GPU; they share the ports of the machine
constexpr int64_t kPortsWanted = kProcesses * kPeers * kSocketsOfPeer / 2;

/// A setting by its sysctl. One that is not shown, as in a container, does not apply.
struct Setting {
  std::string sysctl;
  size_t count;                              ///< of its numbers
  bool (*expected)(const int64_t* numbers);  ///< nullptr: it is told and no more
  std::string why;
  std::string better;
};

Findings check_settings(const KernelFacts& facts) {
  const bool vendor_path = facts.expected.vendor_path;
  const auto numbers_of = [&](const std::string& sysctl) {
    const auto shown = facts.sysctls.find(sysctl);
    return shown != facts.sysctls.end() ? shown->second : std::vector<int64_t>();
  };
  const auto window = [&](const std::string& sysctl) {
    std::vector<int64_t> numbers = numbers_of(sysctl);
    numbers.resize(3);
    const int64_t tenths = numbers[2] * 1000 / 100'000'000;  // of a GB/s
    return Setting{
        sysctl, 3, [](const int64_t* it) { return it[2] >= kLeastWindowBytes; },
        concat("The last number bounds what a connection has in flight: over a round trip of 1 ms it cannot be faster than ",
               tenths / 10, ".", tenths % 10, " GB/s."),
        concat(numbers[0], " ", numbers[1], " 16777216")};
  };
  const auto is_on = [](const int64_t* it) { return it[0] >= 1; };
  const std::string buffers = "It bounds SO_RCVBUF and SO_SNDBUF, which nothing here sets; tcp_rmem and tcp_wmem count.";
  Table table;
  for (
      const Setting& it : std::vector<Setting>{
          window("net.ipv4.tcp_rmem"),
          window("net.ipv4.tcp_wmem"),
          {"net.core.rmem_max", 1, nullptr, buffers, ""},
          {"net.core.wmem_max", 1, nullptr, buffers, ""},
          {"net.ipv4.tcp_window_scaling", 1, is_on,
           "Without it a connection has 64 KiB in flight at most: 65 MB/s over a round trip of 1 ms.", "1"},
          {"net.ipv4.tcp_sack", 1, is_on, "Without it one lost packet makes TCP send again what has arrived behind it.", "1"},
          {"net.ipv4.tcp_mtu_probing", 1, [](const int64_t* it) { return it[0] == 0 || it[0] == 1; },
           "Every connection then begins with segments of 1 KiB, whatever the MTU: more work for the CPU, and more fragments for "
           "GPUDirect-TCPX. 1 probes only where large packets vanish.",
           "1"},
          vendor_path
              ? Setting{"net.ipv4.tcp_slow_start_after_idle", 1, [](const int64_t* it) { return it[0] == 0; },
                        "After a pause a connection begins again with ten packets; at 200 Gb/s a large part of a transfer is over "
                        "before it is at full rate.",
                        "0"}
              : Setting{"net.ipv4.tcp_slow_start_after_idle", 1, nullptr,
                        "Unless it is 0, a connection begins again with ten packets after a pause: where a round trip takes "
                        "milliseconds, a transfer of 1 MiB then takes several more.",
                        ""},
          vendor_path
              ? Setting{"net.core.optmem_max", 1, [](const int64_t* it) { return it[0] >= kZeroCopyOptionBytes; },
                        "Notifications of zero-copy sends are charged to it; when it is used up, sends fail with ENOBUFS.",
                        concat(kZeroCopyOptionBytes)}
              : Setting{"net.core.optmem_max", 1, nullptr,
                        "It counts for zero-copy sends, which the software plugin does not make.", ""},
          {"net.ipv4.ip_local_port_range", 2, [](const int64_t* it) { return it[1] - it[0] + 1 >= kPortsWanted; },
           concat("Each socket that connects takes one: ", kProcesses, " processes with ", kPeers, " peers each take up to ",
                  kPortsWanted, ", and then connecting fails with EADDRNOTAVAIL."),
           "32768 60999"},
          {"net.core.somaxconn", 1, [](const int64_t* it) { return it[0] >= kLeastBacklog; },
           "When more peers connect at once than fit here, some are dropped and try again after 1 s, 3 s, 7 s.", "4096"}}) {
    const std::vector<int64_t> numbers = numbers_of(it.sysctl);
    const bool shown = numbers.size() == it.count;
    std::string found = joined(numbers, " ");
    if (it.count == 2 && shown) found += concat(": ", std::max<int64_t>(0, numbers[1] - numbers[0] + 1), " ports");
    append(table, {{it.sysctl, "not shown here", shown, kNotApplicable, "A container sees only some of these settings."},
                   {it.sysctl, found, shown && it.expected != nullptr && it.expected(numbers.data()),
                    it.expected != nullptr ? kWarn : kNotApplicable, it.why,
                    it.expected != nullptr ? concat("sudo sysctl -w ", it.sysctl, "='", it.better, "'") : ""}});
  }
  const uint64_t files = facts.open_files.value_or(0), peers = files / kSocketsOfPeer;
  append(table, {{"open_files", "no limit is told", facts.open_files.has_value(), kNotApplicable, "The system does not answer."},
                 {"open_files", concat(files, " per process, enough for ", peers, " peers"), peers >= kPeers, kWarn,
                  concat("A peer takes up to ", kSocketsOfPeer, " sockets; beyond the limit connecting fails with EMFILE."),
                  "ulimit -n 65536   # in the shell that starts the job; in a service: LimitNOFILE=65536"}});
  return judge(table);
}

}  // namespace

DevmemKind kind_of(const DevmemAnswers& answers) {
  const auto& [nobodys, google, linux_own] = answers;
  if (nobodys != ENOPROTOOPT || !google) return DevmemKind::kUnknown;
  if (google != ENOPROTOOPT) return DevmemKind::kGoogle;
  if (!linux_own) return DevmemKind::kUnknown;
  return linux_own != ENOPROTOOPT ? DevmemKind::kLinux : DevmemKind::kNone;
}

bool sends_device_memory(const std::string& release) {
  return version_of(release) >= std::pair{6u, 16u};
}

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

Findings check_kernel(const KernelFacts& facts) {
  Findings findings = check_receiving(facts);
  append(findings, check_settings(facts));
  return findings;
}

}  // namespace tcpx::doctor
