// Each end of the transfers has a process of its own. Before each transfer they agree over a channel beside the connection that
// the sender's memory is full and the receive is posted, so that neither filling nor comparing is timed. Raw TCP has both ends
// here.
#include <linux/tcp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/memory_ops.h"
#include "base/text.h"
#include "doctor/selftest.h"
#include "doctor/words.h"
#include "measure/end.h"
#include "measure/samples.h"
#include "measure/test_memory.h"
#include "programs/perf/loopback_server.h"
#include "tcpx/endpoint.h"

namespace tcpx::doctor {
namespace {

using std::chrono::milliseconds;

// Twice the first and once the second, together with starting and ending the other processes: less than 25 s.
constexpr Duration kTransferLimit = std::chrono::seconds(9), kRawLimit = std::chrono::seconds(4);
constexpr char kHere[] = "127.0.0.1", kTransfer[] = "transfer test data";
constexpr uint64_t kTimedTransfers = 5;
constexpr size_t kMostSockets = 64;
constexpr uint64_t kSmallestShare = 100;  // of all bytes, to count a socket
constexpr milliseconds kPatience{100};    // between looks at whether the other process has failed
constexpr Duration kPartingLimit = std::chrono::seconds(1);
// Of the sending end, which outlives what its peer allows itself.
constexpr Duration kEndLimit = std::chrono::seconds(12);
constexpr char kPort[] = "port", kMore[] = "more";  // what the receiver says over the channel
const std::atomic<bool> kNeverStop{false};

class End {
 public:
  /// @param gpu_idx the last GPU when there are fewer
  static Result<std::unique_ptr<End>> create(int gpu_idx, uint64_t bytes, bool same_host, Deadline deadline) {
    auto memory = make_machine_memory_ops();
    gpu_idx = std::min(gpu_idx, memory->device_count() - 1);
    TCPX_ASSIGN_OR_RETURN(auto data, TestMemory::create(*memory, MemoryType::kCuda, gpu_idx, bytes));
    TCPX_ASSIGN_OR_RETURN(auto endpoint, Endpoint::create({.gpu_idx = gpu_idx, .listen_address = kHere, .same_host = same_host}));
    auto end = std::unique_ptr<End>(new End(std::move(memory), std::move(data), std::move(endpoint), bytes, deadline));
    TCPX_ASSIGN_OR_RETURN(const auto registered, end->endpoint_->register_memory(end->data_.data(), bytes));
    end->range_ = {registered, end->data_.data(), bytes};
    return end;
  }

  /// As the receiver. Takes fewer transfers rather than going on after `enough`.
  Status receive_all(BootstrapChannel& channel, TimePoint enough, SelftestTransfers& moved) {
    TCPX_ASSIGN_OR_RETURN(const auto here, Endpoint::read_metadata(endpoint_->get_metadata()));
    TCPX_RETURN_IF_ERROR(tell(channel, kPort, here.port));
    TCPX_RETURN_IF_ERROR(accept(channel));
    for (uint64_t seed = 0; seed <= kTimedTransfers; ++seed) {
      if (!moved.seconds.empty() && Clock::steady().now() >= enough) break;
      TCPX_RETURN_IF_ERROR(tell(channel, kMore, 1));
      TCPX_ASSIGN_OR_RETURN(const auto took, receive_once(channel, seed));
      if (seed > 0) moved.seconds.push_back(took);
    }
    const EndpointStats stats = endpoint_->stats();
    if (stats.connections.empty()) return Status(Code::kPeerGone, kTransfer, "the connection has ended");
    moved.path = stats.connections.front().path;
    moved.sockets = std::max<size_t>(1, sockets_that_received(bytes_ / kSmallestShare));
    return tell(channel, kMore, 0);
  }

  /// As the sender, until the receiver has had enough.
  Status send_all(BootstrapChannel& channel) {
    TCPX_ASSIGN_OR_RETURN(const auto port, hear(channel, kPort));
    TCPX_ASSIGN_OR_RETURN(const auto conn, endpoint_->connect(kHere, 0, static_cast<uint16_t>(port), remaining()));
    for (uint64_t seed = 0;; ++seed) {
      const auto more = hear(channel, kMore);
      if (!more.is_ok() || *more == 0) return more.is_ok() ? Status::ok() : more.status();
      TCPX_RETURN_IF_ERROR(data_.fill(0, bytes_, seed));
      TCPX_RETURN_IF_ERROR(channel.barrier(deadline_));
      TCPX_RETURN_IF_ERROR(channel.barrier(deadline_));
      TCPX_RETURN_IF_ERROR(endpoint_->send(conn, {&range_, 1}, {.timeout = remaining()}));
    }
  }

 private:
  End(std::unique_ptr<MemoryOps> memory, TestMemory data, std::unique_ptr<Endpoint> endpoint, uint64_t bytes, Deadline deadline)
      : memory_(std::move(memory)), data_(std::move(data)), endpoint_(std::move(endpoint)), bytes_(bytes), deadline_(deadline) {}

  milliseconds remaining() const { return std::max(milliseconds(deadline_.poll_ms()), milliseconds(1)); }

  Status tell(BootstrapChannel& channel, const char* what, uint64_t value) {
    return channel.exchange_parameters({{what, concat(value)}}, {}, deadline_).status();
  }
  Result<uint64_t> hear(BootstrapChannel& channel, const char* what) {
    TCPX_ASSIGN_OR_RETURN(auto said, channel.exchange_parameters({}, {}, deadline_));
    const auto value = number_of<uint64_t>(said[what]);
    return value ? Result<uint64_t>(*value) : Status(Code::kProtocol, kTransfer, "the other process says something else");
  }

  Status accept(BootstrapChannel& channel) {
    for (;;) {
      const auto accepted = endpoint_->accept(std::min(remaining(), kPatience));
      if (accepted.is_ok()) conn_ = accepted->conn;
      if (accepted.is_ok() || accepted.status().code() != Code::kTimeout || deadline_.expired()) return accepted.status();
      TCPX_RETURN_IF_ERROR(channel.peer_status());
    }
  }

  /// One transfer, and the comparison of all bytes. @return seconds
  Result<double> receive_once(BootstrapChannel& channel, uint64_t seed) {
    TCPX_RETURN_IF_ERROR(channel.barrier(deadline_));
    TCPX_ASSIGN_OR_RETURN(const auto receive, endpoint_->recv_async(conn_, {&range_, 1}, {.timeout = remaining()}));
    const TimePoint begin = Clock::steady().now();
    TCPX_RETURN_IF_ERROR(channel.barrier(deadline_));
    TCPX_RETURN_IF_ERROR(endpoint_->wait(receive, remaining()));
    const std::chrono::duration<double> took = Clock::steady().now() - begin;
    TCPX_RETURN_IF_ERROR(data_.verify(0, bytes_, seed));
    return took.count();
  }

  std::unique_ptr<MemoryOps> memory_;
  TestMemory data_;
  std::unique_ptr<Endpoint> endpoint_;  // goes before the memory that is registered with it
  const uint64_t bytes_;
  const Deadline deadline_;
  LocalRange range_;
  ConnId conn_{};
};

/// Transfers `bytes` several times, each with other contents, to a second process of this program, and compares every byte. Takes
/// fewer transfers rather than longer than `limit`. @param same_host may share memory; else everything goes over the plugin
/// @return kMismatch when bytes were wrong; the endpoints' errors; kTimeout
Result<SelftestTransfers> transfer_test_data(uint64_t bytes, bool same_host, Duration limit) {
  const TimePoint enough = Clock::steady().now() + limit / 2;
  const Deadline deadline = Deadline::after(limit);
  TCPX_ASSIGN_OR_RETURN(auto end, End::create(0, bytes, same_host, deadline));
  TCPX_ASSIGN_OR_RETURN(auto other, perf::LoopbackServer::start({concat(kSelftestBytesOption, "=", bytes)}, kSelftestEndOption));
  BootstrapChannel channel = other.channel(kNeverStop);
  SelftestTransfers moved;
  const Status mine = end->receive_all(channel, enough, moved);
  // The end that fails first knows why; the other one only sees that it is gone.
  const Status both = channel.finish(mine, Deadline::after(kPartingLimit));
  if (!both.is_ok()) return both;
  TCPX_RETURN_IF_ERROR(other.wait(Deadline::after(kPartingLimit)));
  return moved;
}

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

Table judge_rate(uint64_t bytes, const SelftestTransfers& moved, const Result<std::vector<double>>& raw_seconds) {
  const Result<Samples> rates = rates_of(bytes, moved.seconds);
  const Result<Samples> raw = raw_seconds.is_ok() ? rates_of(bytes, *raw_seconds) : raw_seconds.status();
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
  facts.moved = transfer_test_data(bytes, false, kTransferLimit);
  if (!facts.moved->is_ok()) return facts;
  facts.raw = time_raw_tcp(bytes, (*facts.moved)->sockets, kRawLimit);
  facts.one_host = transfer_test_data(bytes, true, kTransferLimit);
  return facts;
}

int run_selftest_end(int descriptor, uint64_t bytes) {
  auto channel = perf::loopback_channel(descriptor, kNeverStop);
  if (!channel.is_ok()) return 2;
  const Deadline deadline = Deadline::after(kEndLimit);
  // It shares memory when the other end does: one end is enough to have it not.
  const auto end = End::create(1, bytes, true, deadline);
  const Status mine = end.is_ok() ? (*end)->send_all(*channel) : end.status();
  return channel->finish(mine, deadline).is_ok() ? 0 : 1;
}

Result<std::vector<double>> time_raw_tcp(uint64_t bytes, size_t sockets, Duration limit) {
  if (sockets == 0 || sockets > kMostSockets)
    return Status(Code::kInvalidArgument, "time raw TCP", concat(sockets, " sockets; allowed are 1 to ", kMostSockets));
  const TimePoint enough = Clock::steady().now() + limit / 2;
  const Deadline deadline = Deadline::after(limit);
  EndSetup setup{.streams = static_cast<uint32_t>(sockets), .request_bytes = bytes};
  TCPX_ASSIGN_OR_RETURN(const auto receiver, make_raw_tcp_end(setup));
  setup.leads = true;
  TCPX_ASSIGN_OR_RETURN(const auto sender, make_raw_tcp_end(setup));
  TCPX_ASSIGN_OR_RETURN(const auto handle, receiver->listen());
  TCPX_RETURN_IF_ERROR(sender->connect(handle, deadline));
  TCPX_RETURN_IF_ERROR(receiver->accept(deadline));
  for (const auto* end : {&sender, &receiver}) TCPX_RETURN_IF_ERROR((*end)->allocate({.message_bytes = bytes, .seed = 1}));
  std::vector<double> seconds;
  for (uint64_t i = 0; i <= kTimedTransfers && (seconds.empty() || Clock::steady().now() < enough); ++i) {
    for (const auto* end : {&sender, &receiver}) TCPX_RETURN_IF_ERROR((*end)->prepare(1));
    Result<Timing> sent = Timing{}, received = Timing{};
    std::thread receiving([&] { received = receiver->run(deadline); });
    sent = sender->run(deadline);
    receiving.join();
    TCPX_RETURN_IF_ERROR(sent.status());
    TCPX_RETURN_IF_ERROR(received.status());
    TCPX_RETURN_IF_ERROR(receiver->verify());
    if (deadline.expired()) return Status(Code::kTimeout, "time raw TCP", "deadline passed");
    if (i > 0) seconds.push_back(static_cast<double>(received->end_ns - sent->begin_ns) * 1e-9);
  }
  return seconds;
}

size_t sockets_that_received(uint64_t least) {
  size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end; entry.increment(error)) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(std::atoi(entry->path().filename().c_str()), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    if (info.tcpi_bytes_received >= least) ++count;  // zero from a kernel before 4.1, which does not tell
  }
  return count;
}

Findings check_selftest(const SelftestFacts& facts) {
  if (!facts.moved) {
    return judge({{"transfer", concat("this machine is for GPUDirect-TCPX: ", facts.expected.because), false, kNotApplicable,
                   "Its path does not exist within one machine. Between two: test_tcpx_perf server there, test_tcpx_perf client "
                   "ADDRESS here. The software plugin alone: UCCL_TCPX_PLUGIN_PATH=embedded tcpx_doctor --only selftest"}});
  }
  if (!facts.moved->is_ok() || !facts.raw) return judge({failed("transfer", facts.moved->status())});
  const SelftestTransfers& moved = **facts.moved;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const std::string size = facts.bytes % kMiB == 0 ? concat(facts.bytes / kMiB, " MiB") : concat(facts.bytes, " bytes");
  Table table = {{"transfer", concat(size, ", ", moved.seconds.size() + 1, " times, every byte compared")},
                 {"path", moved.path.substr(0, moved.path.find(kOverTcp))}};
  append(table, judge_rate(facts.bytes, moved, *facts.raw));
  append(table, judge_one_host(facts));
  return judge(table);
}

}  // namespace tcpx::doctor
