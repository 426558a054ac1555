#include "tools/doctor/selftest_checks.h"

#include <cstdio>

#include "base/text.h"
#include "measure/samples.h"

namespace tcpx::doctor {
namespace {

// Together with starting and ending the other process: less than 15 s.
constexpr Duration kTransferLimit = std::chrono::seconds(9), kRawLimit = std::chrono::seconds(4);
// Of raw TCP. The library copies once more than raw TCP does and checks what it does, so less than all is well.
constexpr double kWellAbove = 0.5;

std::string rate_text(double gigabytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", gigabytes);
  return text;
}

std::string size_text(uint64_t bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  return bytes % kMiB == 0 ? concat(bytes / kMiB, " MiB") : concat(bytes, " bytes");
}

Result<Samples> rates_of(uint64_t bytes, const std::vector<double>& seconds) {
  const Result<Samples> samples = Samples::create(seconds);
  return samples.is_ok() ? gigabytes_per_second(bytes, *samples) : samples.status();
}

/// "3.21 GB/s (median of 5, 3.00 to 3.30)"
std::string rate_text(const Samples& rates) {
  return concat(rate_text(rates.median()), " GB/s (median of ", rates.count(), ", ", rate_text(rates.min()), " to ",
                rate_text(rates.max()), ")");
}

Finding failed(const Status& status) {
  if (status.code() == Code::kMismatch) {
    return fail(
        "transfer", status.to_string(), "Bytes that arrive are not those that were sent: nothing on this machine can be trusted.",
        "UCCL_TCPX_UNPACK_IMPL=d2d tcpx_doctor --only selftest   # when this one is right, the unpack kernel is to blame");
  }
  return fail("transfer", status.to_string(), "Programs that use this path end with the same error.",
              concat("tcpx_doctor   # what else it finds comes first; then docs/troubleshooting.md, ", name_of(status.code())));
}

Finding judge_rate(uint64_t bytes, const SelftestTransfers& moved, const Result<std::vector<double>>& raw_seconds) {
  const Result<Samples> rates = rates_of(bytes, moved.seconds);
  if (!rates.is_ok()) return not_applicable("rate", rates.status().detail(), "No rate can be told.");
  const Result<Samples> raw = raw_seconds.is_ok() ? rates_of(bytes, *raw_seconds) : raw_seconds.status();
  if (!raw.is_ok()) {
    return not_applicable("rate", concat(rate_text(*rates), "; raw TCP: ", raw.status().to_string()),
                          "Without the rate of raw TCP there is nothing to compare with.");
  }
  const std::string found = concat(rate_text(*rates), "; raw TCP over loopback, ", moved.sockets,
                                   moved.sockets == 1 ? " socket: " : " sockets: ", rate_text(*raw));
  if (rates->median() >= kWellAbove * raw->median()) return ok("rate", found);
  return warn("rate", found, "Less than half of what this machine's TCP carries: cores, memory or settings hold it back.",
              "read docs/performance.md, on tuning; first what tcpx_doctor --only environment finds");
}

}  // namespace

Findings check_selftest(const Machine& machine, SelftestSource& source, uint64_t bytes) {
  const Expectation expected = expected_path(machine);
  if (expected.vendor_path) {
    return {not_applicable("transfer", concat("this machine is for GPUDirect-TCPX: ", expected.because),
                           "Its path does not exist within one machine. Between two: test_tcpx_perf server there, test_tcpx_perf "
                           "client ADDRESS here. "
                           "The software plugin alone: UCCL_TCPX_PLUGIN_PATH=embedded tcpx_doctor --only selftest")};
  }
  const Result<SelftestTransfers> moved = source.transfer(bytes, kTransferLimit);
  if (!moved.is_ok()) return {failed(moved.status())};
  const Result<std::vector<double>> raw = source.raw_tcp(bytes, moved->sockets, kRawLimit);
  return {ok("transfer", concat(size_text(bytes), ", ", moved->seconds.size() + 1, " times, every byte compared")),
          ok("path", moved->path), judge_rate(bytes, *moved, raw)};
}

}  // namespace tcpx::doctor
