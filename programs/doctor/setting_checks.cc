#include "programs/doctor/setting_checks.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "net/soft/wire.h"

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

/// The numbers of /proc/sys/net/ipv4/x for "net.ipv4.x"; none when it is not there or holds something else.
std::vector<int64_t> numbers_of(const Machine& machine, std::string_view sysctl) {
  std::string path = concat("/proc/sys/", sysctl);
  std::replace(path.begin(), path.end(), '.', '/');
  const std::string text = machine.files.read(path).value_or("");
  std::vector<int64_t> numbers;
  for (size_t at = 0; (at = text.find_first_not_of(" \t", at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \t", at), text.size());
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, number);
    if (error != std::errc() || stop != text.data() + end) return {};
    numbers.push_back(number);
    at = end;
  }
  return numbers;
}

/// One sysctl with `count` numbers. Asks `judge(numbers)` where the machine shows it.
template <class Judge>
void look_at(const Machine& machine, std::string_view sysctl, size_t count, Findings& findings, Judge judge) {
  const std::vector<int64_t> numbers = numbers_of(machine, sysctl);
  findings.push_back(numbers.size() == count ? judge(numbers)
                                             : not_applicable(std::string(sysctl), "not shown here",
                                                              "A container sees only some of these settings."));
}

std::string set(std::string_view sysctl, std::string_view value) {
  return concat("sudo sysctl -w ", sysctl, "='", value, "'");
}

/// How fast one connection can be whose window is `bytes`, over a round trip of 1 ms.
std::string rate_over_a_millisecond(int64_t bytes) {
  const int64_t tenths = bytes * 1000 / 100'000'000;  // of a GB/s
  return concat(tenths / 10, ".", tenths % 10, " GB/s");
}

void check_buffers(const Machine& machine, Findings& findings) {
  for (const std::string sysctl : {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}) {
    look_at(machine, sysctl, 3, findings, [&](const std::vector<int64_t>& sizes) {
      const std::string found = concat(sizes[0], " ", sizes[1], " ", sizes[2]);
      if (sizes[2] >= kLeastWindowBytes) return ok(sysctl, found);
      return warn(
          sysctl, found,
          concat("The last number bounds what a connection has in flight: over a round trip of 1 ms it cannot be faster than ",
                 rate_over_a_millisecond(sizes[2]), "."),
          set(sysctl, concat(sizes[0], " ", sizes[1], " 16777216")));
    });
  }
  for (const std::string sysctl : {"net.core.rmem_max", "net.core.wmem_max"}) {
    look_at(machine, sysctl, 1, findings, [&](const std::vector<int64_t>& size) {
      return not_applicable(sysctl, concat(size[0]),
                            "It bounds SO_RCVBUF and SO_SNDBUF, which nothing here sets; tcp_rmem and tcp_wmem count.");
    });
  }
}

/// A switch of TCP that is on unless somebody has turned it off.
void check_switch(const Machine& machine, const std::string& sysctl, std::string_view why, Findings& findings) {
  look_at(machine, sysctl, 1, findings, [&](const std::vector<int64_t>& value) {
    return value[0] != 0 ? ok(sysctl, concat(value[0])) : warn(sysctl, "0", std::string(why), set(sysctl, "1"));
  });
}

void check_behaviour(const Machine& machine, const Expectation& expected, Findings& findings) {
  check_switch(machine, "net.ipv4.tcp_window_scaling",
               "Without it a connection has 64 KiB in flight at most: 65 MB/s over a round trip of 1 ms.", findings);
  check_switch(machine, "net.ipv4.tcp_sack", "Without it one lost packet makes TCP send again what has arrived behind it.",
               findings);
  const std::string probing = "net.ipv4.tcp_mtu_probing";
  look_at(machine, probing, 1, findings, [&](const std::vector<int64_t>& value) {
    if (value[0] < 2) return ok(probing, concat(value[0]));
    return warn(
        probing, concat(value[0]),
        "Every connection then begins with segments of 1 KiB, whatever the MTU: more work for the CPU, and more fragments for "
        "GPUDirect-TCPX.",
        set(probing, "1") + "   # probes only where large packets vanish");
  });
  const std::string idle = "net.ipv4.tcp_slow_start_after_idle";
  look_at(machine, idle, 1, findings, [&](const std::vector<int64_t>& value) {
    if (value[0] == 0 || !expected.vendor_path) return ok(idle, concat(value[0]));
    return warn(
        idle, concat(value[0]),
        "After a pause a connection begins again with ten packets; at 200 Gb/s a large part of a transfer is over before it "
        "is at full rate.",
        set(idle, "0"));
  });
  const std::string optmem = "net.core.optmem_max";
  look_at(machine, optmem, 1, findings, [&](const std::vector<int64_t>& size) {
    if (!expected.vendor_path)
      return not_applicable(optmem, concat(size[0]), "It counts for zero-copy sends, which the software plugin does not make.");
    if (size[0] >= kZeroCopyOptionBytes) return ok(optmem, concat(size[0]));
    return warn(optmem, concat(size[0]),
                "Notifications of zero-copy sends are charged to it; when it is used up, sends fail with ENOBUFS.",
                set(optmem, concat(kZeroCopyOptionBytes)));
  });
}

void check_counts(const Machine& machine, const KernelSource& source, Findings& findings) {
  const std::string ports = "net.ipv4.ip_local_port_range";
  look_at(machine, ports, 2, findings, [&](const std::vector<int64_t>& range) {
    const int64_t count = std::max<int64_t>(0, range[1] - range[0] + 1), wanted = kProcesses * kPeers * kSocketsOfPeer / 2;
    const std::string found = concat(range[0], " ", range[1], ": ", count, " ports");
    if (count >= wanted) return ok(ports, found);
    return warn(ports, found,
                concat("Each socket that connects takes one: ", kProcesses, " processes with ", kPeers, " peers each take up to ",
                       wanted, ", and then connecting fails with EADDRNOTAVAIL."),
                set(ports, "32768 60999"));
  });
  const std::string backlog = "net.core.somaxconn";
  look_at(machine, backlog, 1, findings, [&](const std::vector<int64_t>& most) {
    if (most[0] >= kLeastBacklog) return ok(backlog, concat(most[0]));
    return warn(backlog, concat(most[0]),
                "When more peers connect at once than fit here, some are dropped and try again after 1 s, 3 s, 7 s.",
                set(backlog, "4096"));
  });
  const auto files = source.open_files();
  const std::string open_files = "open_files";
  if (!files) {
    findings.push_back(not_applicable(open_files, "no limit is told", "The system does not answer."));
    return;
  }
  const uint64_t peers = *files / kSocketsOfPeer;
  const std::string found = concat(*files, " per process, enough for ", peers, " peers");
  findings.push_back(
      peers >= kPeers
          ? ok(open_files, found)
          : warn(open_files, found,
                 concat("A peer takes up to ", kSocketsOfPeer, " sockets; beyond the limit connecting fails with EMFILE."),
                 "ulimit -n 65536   # in the shell that starts the job; in a service: LimitNOFILE=65536"));
}

}  // namespace

Findings check_settings(const Machine& machine, const Expectation& expected, const KernelSource& source) {
  Findings findings;
  check_buffers(machine, findings);
  check_behaviour(machine, expected, findings);
  check_counts(machine, source, findings);
  return findings;
}

}  // namespace tcpx::doctor
