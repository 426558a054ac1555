#include <cstdio>

#include "base/text.h"
#include "measure/samples.h"
#include "programs/doctor/selftest.h"

namespace tcpx::doctor {
namespace {

// Of raw TCP. The library copies once more than raw TCP does and checks what it does, so less than all is well.
constexpr double kWellAbove = 0.5;

std::string rate_text(double gigabytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", gigabytes);
  return text;
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
  return warn_unless(rates->median() >= kWellAbove * raw->median(), "rate",
                     concat(rate_text(*rates), "; raw TCP over loopback, ", moved.sockets,
                            moved.sockets == 1 ? " socket: " : " sockets: ", rate_text(*raw)),
                     "Less than half of what this machine's TCP carries: cores, memory or settings hold it back.",
                     "read docs/performance.md, on tuning; first what tcpx_doctor --only environment finds");
}

}  // namespace

Findings check_selftest(const SelftestFacts& facts) {
  if (!facts.moved) {
    return {not_applicable("transfer", concat("this machine is for GPUDirect-TCPX: ", facts.expected.because),
                           "Its path does not exist within one machine. Between two: test_tcpx_perf server there, test_tcpx_perf "
                           "client ADDRESS here. "
                           "The software plugin alone: UCCL_TCPX_PLUGIN_PATH=embedded tcpx_doctor --only selftest")};
  }
  if (!facts.moved->is_ok() || !facts.raw) return {failed(facts.moved->status())};
  const SelftestTransfers& moved = **facts.moved;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const std::string size = facts.bytes % kMiB == 0 ? concat(facts.bytes / kMiB, " MiB") : concat(facts.bytes, " bytes");
  return {ok("transfer", concat(size, ", ", moved.seconds.size() + 1, " times, every byte compared")), ok("path", moved.path),
          judge_rate(facts.bytes, moved, *facts.raw)};
}

}  // namespace tcpx::doctor
