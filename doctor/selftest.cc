// Each end of the transfers has a process of its own, raw TCP included.
#include "doctor/selftest.h"

#include <algorithm>
#include <atomic>

#include "base/memory_ops.h"
#include "base/text.h"
#include "base/words.h"
#include "measure/plain_text.h"
#include "measure/row_meter.h"
#include "net/plugin_loader.h"

namespace tcpx::doctor {
namespace {

// Twice the first and once the second, with what is granted to ends that are late: 25 s at most.
constexpr Duration kTransferLimit = std::chrono::seconds(8), kRawLimit = std::chrono::seconds(3);
constexpr uint64_t kTimedTransfers = 5;
constexpr size_t kMostSockets = 64;
const std::atomic<bool> kNeverStop{false};

/// Moves `bytes` several times from one end, a process of its own, to another, each time with other contents, and compares every
/// byte. Takes fewer transfers rather than longer than `limit`. @param gpus of the sending and of the receiving end
/// @return kMismatch when bytes were wrong; the ends' errors; kTimeout
Result<SelftestTransfers> transfer_test_data(EndSetup setup, std::pair<int, int> gpus, uint64_t bytes, Duration limit) {
  const TimePoint enough = Clock::steady().now() + limit / 2;
  setup.request_bytes = bytes;
  TCPX_ASSIGN_OR_RETURN(const auto meter, RowMeter::connect(setup, gpus, {}, kNeverStop, Deadline::after(limit)));
  SelftestTransfers moved;
  for (uint64_t i = 0; i <= kTimedTransfers && (moved.seconds.empty() || Clock::steady().now() < enough); ++i) {
    TCPX_ASSIGN_OR_RETURN(const EndPair::Answers ends, meter->once({.message_bytes = bytes, .outstanding = 1}, 1));
    const Timing &sent = ends.leader.timing, &received = ends.follower.timing;
    if (i > 0) moved.seconds.push_back(static_cast<double>(received.end_ns - sent.begin_ns) * 1e-9);
    moved.path = ends.follower.detail;
    moved.sockets = std::max<size_t>(1, received.sockets);
  }
  return moved;
}

// Of raw TCP. The library copies once more than raw TCP does and checks what it does, so less than all is well.
constexpr double kWellAbove = 0.5;

Result<Samples> rates_of(uint64_t bytes, const std::vector<double>& seconds) {
  const Result<Samples> samples = Samples::create(seconds);
  return samples.is_ok() ? gigabytes_per_second(bytes, *samples) : samples.status();
}

/// "3.21 GB/s (median of 5, 3.00 to 3.30)"
std::string rate_text(const Samples& rates) {
  return concat(format_fixed(rates.median(), 2), " GB/s (median of ", rates.count(), ", ", format_fixed(rates.min(), 2), " to ",
                format_fixed(rates.max(), 2), ")");
}

/// A transfer that failed.
Fact failed(const char* check, const Status& status) {
  const bool mismatch = status.code() == Code::kMismatch;
  return {check,
          status.to_string(),
          status.is_ok(),
          kFail,
          mismatch ? "Bytes that arrive are not those that were sent: nothing on this machine can be trusted."
                   : "Programs that use this path end with the same error.",
          mismatch
              ? "UCCL_TCPX_UNPACK_IMPL=d2d tcpx_doctor --only selftest   # when this one is right, the unpack kernel is to blame"
              : concat("tcpx_doctor   # what else it finds comes first; then docs/troubleshooting.md, ", name_of(status.code()))};
}

Table judge_rate(uint64_t bytes, const SelftestTransfers& moved, const Result<SelftestTransfers>& alone) {
  const Result<Samples> rates = rates_of(bytes, moved.seconds);
  const Result<Samples> raw = alone.is_ok() ? rates_of(bytes, alone->seconds) : alone.status();
  if (!rates.is_ok()) return {{"rate", rates.status().detail(), false, kNotApplicable, "No rate can be told."}};
  if (!raw.is_ok()) {
    return {{"rate", concat(rate_text(*rates), "; raw TCP: ", raw.status().to_string()), false, kNotApplicable,
             "Without the rate of raw TCP there is nothing to compare with."}};
  }
  return {{"rate",
           concat(rate_text(*rates), "; raw TCP over loopback, ", moved.sockets,
                  moved.sockets == 1 ? " socket: " : " sockets: ", rate_text(*raw)),
           rates->median() >= kWellAbove * raw->median(), kWarn,
           "Less than half of what this machine's TCP carries: cores, memory or settings hold it back.",
           "read docs/performance.md, on tuning; first what tcpx_doctor --only environment finds"}};
}

// The end of a path, as endpoints of one host say it.
constexpr std::string_view kSharing = "; same host, ", kOverTcp = "; TCP on one host: ";

/// Of endpoints that could share memory.
Table judge_one_host(const SelftestFacts& facts) {
  constexpr char kCheck[] = "one_host";
  if (!facts.one_host) return {{kCheck, "not tried", false, kNotApplicable, "Nothing has moved over the plugin."}};
  const SelftestTransfers moved = facts.one_host->is_ok() ? **facts.one_host : SelftestTransfers{};
  const size_t sharing = moved.path.find(kSharing), why = moved.path.find(kOverTcp);
  const Result<Samples> rates = rates_of(facts.bytes, moved.seconds);
  return {failed(kCheck, facts.one_host->status()),
          {kCheck, why == moved.path.npos ? "no shared memory" : moved.path.substr(why + 2), sharing != moved.path.npos,
           kNotApplicable, "Endpoints of this machine use the path above among themselves, too."},
          {kCheck, concat(rates.is_ok() ? rate_text(*rates) : "a rate that cannot be told", " by shared memory in place of TCP: ",
                          moved.path.substr(std::min(moved.path.size(), sharing == moved.path.npos ? 0 : sharing + 2)))}};
}

}  // namespace

SelftestFacts selftest_facts(const Machine& machine, uint64_t bytes) {
  SelftestFacts facts{.expected = expected_path(machine), .bytes = bytes, .moved = {}, .one_host = {}, .raw = {}};
  if (facts.expected.vendor_path) return facts;
  const Result<PluginLoader::Loaded> loaded = PluginLoader::load({});
  if (!loaded.is_ok()) {
    facts.moved = loaded.status();
    return facts;
  }
  EndSetup setup{.kind = EndSetup::Kind::kEndpoint, .memory = MemoryType::kCuda, .same_host = false};
  const std::string& path = loaded->source.path;
  if (path != kEmbedded) path.copy(setup.plugin, sizeof setup.plugin - 1);
  const std::pair<int, int> gpus{std::min(1, make_machine_memory_ops()->device_count() - 1), 0};
  facts.moved = transfer_test_data(setup, gpus, bytes, kTransferLimit);
  if (!facts.moved->is_ok()) return facts;
  const auto streams = static_cast<uint32_t>(std::min((*facts.moved)->sockets, kMostSockets));
  facts.raw = transfer_test_data({.kind = EndSetup::Kind::kRawTcp, .streams = streams}, gpus, bytes, kRawLimit);
  setup.same_host = true;
  facts.one_host = transfer_test_data(setup, gpus, bytes, kTransferLimit);
  return facts;
}

Findings check_selftest(const SelftestFacts& facts) {
  if (!facts.moved) {
    return judge({{"transfer", concat("this machine is for GPUDirect-TCPX: ", facts.expected.because), false, kNotApplicable,
                   "Its path does not exist within one machine. Between two: test_tcpx_perf server there, test_tcpx_perf client "
                   "ADDRESS here. The software plugin alone: UCCL_TCPX_PLUGIN_PATH=embedded tcpx_doctor --only selftest"}});
  }
  if (!facts.moved->is_ok() || !facts.raw) return judge({failed("transfer", facts.moved->status())});
  const SelftestTransfers& moved = **facts.moved;
  Table table = {{"transfer", concat(format_bytes(facts.bytes), ", ", moved.seconds.size() + 1, " times, every byte compared")},
                 {"path", moved.path.substr(0, moved.path.find(kOverTcp))}};
  append(table, judge_rate(facts.bytes, moved, *facts.raw));
  append(table, judge_one_host(facts));
  return judge(table);
}

}  // namespace tcpx::doctor
