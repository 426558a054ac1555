#include <algorithm>

#include "base/text.h"
#include "net/soft/wire.h"
#include "programs/doctor/kernel.h"

namespace tcpx::doctor {
namespace {

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

std::string set(std::string_view sysctl, std::string_view value) {
  return concat("sudo sysctl -w ", sysctl, "='", value, "'");
}

/// How fast one connection can be whose window is `bytes`, over a round trip of 1 ms.
std::string rate_over_a_millisecond(int64_t bytes) {
  const int64_t tenths = bytes * 1000 / 100'000'000;  // of a GB/s
  return concat(tenths / 10, ".", tenths % 10, " GB/s");
}

Finding judge_open_files(const KernelFacts& facts) {
  constexpr char kName[] = "open_files";
  if (!facts.open_files) return not_applicable(kName, "no limit is told", "The system does not answer.");
  const uint64_t peers = *facts.open_files / kSocketsOfPeer;
  return judged(peers >= kPeers, Verdict::kWarn, kName, concat(*facts.open_files, " per process, enough for ", peers, " peers"),
                concat("A peer takes up to ", kSocketsOfPeer, " sockets; beyond the limit connecting fails with EMFILE."),
                "ulimit -n 65536   # in the shell that starts the job; in a service: LimitNOFILE=65536");
}

}  // namespace

Findings check_tcp_settings(const KernelFacts& facts) {
  Findings findings;
  // One sysctl with `count` numbers, judged where the machine shows it.
  const auto look_at = [&](const std::string& sysctl, size_t count, auto judge) {
    const auto shown = facts.sysctls.find(sysctl);
    const bool known = shown != facts.sysctls.end() && shown->second.size() == count;
    findings.push_back(known ? judge(sysctl, shown->second)
                             : not_applicable(sysctl, "not shown here", "A container sees only some of these settings."));
  };
  // One with one number that warns unless it is good.
  const auto warn_unless = [&](const std::string& sysctl, auto good, std::string_view why, const std::string& value) {
    look_at(sysctl, 1, [&](const std::string& check, const std::vector<int64_t>& numbers) {
      return judged(good(numbers[0]), Verdict::kWarn, check, concat(numbers[0]), std::string(why), set(check, value));
    });
  };
  const bool vendor_path = facts.expected.vendor_path;

  for (const char* sysctl : {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}) {
    look_at(sysctl, 3, [&](const std::string& check, const std::vector<int64_t>& sizes) {
      return judged(
          sizes[2] >= kLeastWindowBytes, Verdict::kWarn, check, concat(sizes[0], " ", sizes[1], " ", sizes[2]),
          concat("The last number bounds what a connection has in flight: over a round trip of 1 ms it cannot be faster than ",
                 rate_over_a_millisecond(sizes[2]), "."),
          set(check, concat(sizes[0], " ", sizes[1], " 16777216")));
    });
  }
  for (const char* sysctl : {"net.core.rmem_max", "net.core.wmem_max"}) {
    look_at(sysctl, 1, [&](const std::string& check, const std::vector<int64_t>& size) {
      return not_applicable(check, concat(size[0]),
                            "It bounds SO_RCVBUF and SO_SNDBUF, which nothing here sets; tcp_rmem and tcp_wmem count.");
    });
  }
  const auto is_on = [](int64_t value) { return value != 0; };
  warn_unless("net.ipv4.tcp_window_scaling", is_on,
              "Without it a connection has 64 KiB in flight at most: 65 MB/s over a round trip of 1 ms.", "1");
  warn_unless("net.ipv4.tcp_sack", is_on, "Without it one lost packet makes TCP send again what has arrived behind it.", "1");
  warn_unless(
      "net.ipv4.tcp_mtu_probing", [](int64_t value) { return value < 2; },
      "Every connection then begins with segments of 1 KiB, whatever the MTU: more work for the CPU, and more fragments for "
      "GPUDirect-TCPX. 1 probes only where large packets vanish.",
      "1");
  warn_unless(
      "net.ipv4.tcp_slow_start_after_idle", [&](int64_t value) { return value == 0 || !vendor_path; },
      "After a pause a connection begins again with ten packets; at 200 Gb/s a large part of a transfer is over before it "
      "is at full rate.",
      "0");
  if (vendor_path) {
    warn_unless(
        "net.core.optmem_max", [](int64_t value) { return value >= kZeroCopyOptionBytes; },
        "Notifications of zero-copy sends are charged to it; when it is used up, sends fail with ENOBUFS.",
        concat(kZeroCopyOptionBytes));
  } else {
    look_at("net.core.optmem_max", 1, [](const std::string& check, const std::vector<int64_t>& size) {
      return not_applicable(check, concat(size[0]), "It counts for zero-copy sends, which the software plugin does not make.");
    });
  }
  look_at("net.ipv4.ip_local_port_range", 2, [](const std::string& check, const std::vector<int64_t>& range) {
    const int64_t count = std::max<int64_t>(0, range[1] - range[0] + 1), wanted = kProcesses * kPeers * kSocketsOfPeer / 2;
    return judged(count >= wanted, Verdict::kWarn, check, concat(range[0], " ", range[1], ": ", count, " ports"),
                  concat("Each socket that connects takes one: ", kProcesses, " processes with ", kPeers,
                         " peers each take up to ", wanted, ", and then connecting fails with EADDRNOTAVAIL."),
                  set(check, "32768 60999"));
  });
  warn_unless(
      "net.core.somaxconn", [](int64_t value) { return value >= kLeastBacklog; },
      "When more peers connect at once than fit here, some are dropped and try again after 1 s, 3 s, 7 s.", "4096");
  findings.push_back(judge_open_files(facts));
  return findings;
}

}  // namespace tcpx::doctor
