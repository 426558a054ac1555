// Cost of a launch: sustained rates, host time per call, latency.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/text.h"
#include "programs/unpack/unpack_bench.h"

namespace tcpx {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr size_t kCallSamples = 400;

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

Status wait_for(EventView event) {
  const Deadline deadline = Deadline::after(kPatience);
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const bool done, event.is_done());
    if (done) return Status::ok();
    if (deadline.expired()) return Status(Code::kTimeout, "wait for event", "");
  }
}

/// Microseconds of each `call`; `after` brings the GPU to rest, outside of the time.
Result<Summary> host_time(const std::function<Status()>& call, const std::function<Status()>& after) {
  const Result<Samples> samples = measure({.warm_up_count = 20, .sample_count = kCallSamples}, [&]() -> Result<double> {
    const auto begin = std::chrono::steady_clock::now();
    TCPX_RETURN_IF_ERROR(call());
    const double us = microseconds_since(begin);
    TCPX_RETURN_IF_ERROR(after());
    return us;
  });
  if (!samples.is_ok()) return samples.status();
  return samples->summary();
}

Status add_row(Table& table, std::string name, const Result<Summary>& summary, bool verified) {
  if (!summary.is_ok()) return summary.status();
  table.rows.push_back({std::move(name), {*summary}, verified});
  return Status::ok();
}

}  // namespace

Result<Table> UnpackBench::costs() {
  progress("costs of a launch");
  Table table{.title = "Host time and latency", .row_heading = "what", .columns = {{"time", "us"}}, .rows = {}};
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<UnpackLauncher> made, launcher(0, false, kQueueDepth * kMaxFragments));
  UnpackLauncher& launcher = *made;
  TCPX_ASSIGN_OR_RETURN(Event event, Event::create());
  const StreamView stream = clock_->stream();
  const EventView mark = event.view();
  const auto rest = [&] { return stream.synchronize(); };
  const auto nothing = [] { return Status::ok(); };

  const auto launch_and_record = [&]() -> Status {
    TCPX_RETURN_IF_ERROR(launch_nothing(stream));
    return mark.record(stream);
  };
  TCPX_RETURN_IF_ERROR(add_row(table, "bare launch, call", host_time([&] { return launch_nothing(stream); }, rest), true));
  TCPX_RETURN_IF_ERROR(add_row(table, "bare launch and event record, call", host_time(launch_and_record, rest), true));
  for (const uint32_t count : {1u, 128u, 1024u, 2048u}) {
    TCPX_ASSIGN_OR_RETURN(const UnpackWorkload work, pages(uint64_t{count} * 4096));
    UnpackTicket ticket{};
    const auto submit = [&]() -> Status {
      TCPX_ASSIGN_OR_RETURN(ticket, launcher.launch(work.blocks()));
      return Status::ok();
    };
    const auto finish = [&] { return launcher.wait(ticket, Deadline::after(kPatience)); };
    TCPX_RETURN_IF_ERROR(add_row(table, concat("submit of ", count, " fragments, call"), host_time(submit, finish), true));
  }
  const auto bare_until_seen = [&]() -> Status {
    TCPX_RETURN_IF_ERROR(launch_and_record());
    return wait_for(mark);
  };
  TCPX_RETURN_IF_ERROR(add_row(table, "bare launch until its event is seen", host_time(bare_until_seen, nothing), true));
  for (const Pool pool : {Pool::kDevice, Pool::kMappedHost}) {
    TCPX_ASSIGN_OR_RETURN(const UnpackWorkload work, pages(128 * 4096, pool));
    const auto whole = [&]() -> Status { return launcher.launch_sync(work.blocks(), Deadline::after(kPatience)); };
    const Result<Summary> summary = host_time(whole, nothing);
    TCPX_RETURN_IF_ERROR(check(work));
    TCPX_RETURN_IF_ERROR(add_row(
        table,
        concat("512 KiB (128 fragments) from ", pool == Pool::kDevice ? "the GPU" : "mapped host memory", " until seen done"),
        summary, true));
  }
  const auto copy_until_seen = [&]() -> Status {
    TCPX_RETURN_IF_ERROR(copy_contiguously(destination_.device(), device_pool_.device(), 128 * 4096, stream));
    TCPX_RETURN_IF_ERROR(mark.record(stream));
    return wait_for(mark);
  };
  TCPX_RETURN_IF_ERROR(
      add_row(table, "contiguous copy of 512 KiB until its event is seen", host_time(copy_until_seen, nothing), false));

  TCPX_ASSIGN_OR_RETURN(const UnpackWorkload work, pages(1024 * 4096));
  std::vector<Fragment> list(work.fragments().begin(), work.fragments().end());
  DescriptorBlock block;
  const UnpackTarget target = work.blocks().front().target();
  const auto validate = [&] { return block.build(list, work.bytes(), target); };
  TCPX_RETURN_IF_ERROR(add_row(table, "validation of 1024 fragments in order", host_time(validate, nothing), true));
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[i * 7919 % i]);
  std::reverse(list.begin(), list.end());
  std::swap(list.front(), list[list.size() / 2]);
  TCPX_RETURN_IF_ERROR(add_row(table, "validation of 1024 fragments out of order", host_time(validate, nothing), true));
  return table;
}

Result<Table> UnpackBench::sustained() {
  progress("many launches in flight");
  constexpr size_t kInFlight = 12;
  Table table{
      .title = "Sustained, many in flight on one stream", .row_heading = "operation", .columns = {{"rate", "GB/s"}}, .rows = {}};
  const auto head_start = std::chrono::milliseconds(2);
  const auto rate_of = [&](uint64_t bytes, const std::function<Status(StreamView)>& once) -> Result<Summary> {
    const Result<Samples> seconds = measure({.warm_up_count = 2, .sample_count = 11}, [&] {
      return clock_->time_queued(
          [&](StreamView stream) -> Status {
            for (size_t i = 0; i < kInFlight; ++i) TCPX_RETURN_IF_ERROR(once(stream));
            return Status::ok();
          },
          head_start);
    });
    if (!seconds.is_ok()) return seconds.status();
    TCPX_ASSIGN_OR_RETURN(const Samples rates, gigabytes_per_second(bytes * kInFlight, *seconds));
    return rates.summary();
  };
  for (const uint64_t bytes : {uint64_t{512} << 10, uint64_t{4} << 20, options_.bytes}) {
    if (stop_) break;
    TCPX_ASSIGN_OR_RETURN(const UnpackWorkload work, pages(bytes));
    TCPX_RETURN_IF_ERROR(add_row(table, concat("contiguous copies of ", bytes >> 10, " KiB"),
                                 rate_of(bytes,
                                         [&](StreamView stream) {
                                           return copy_contiguously(destination_.device(), device_pool_.device(), bytes, stream);
                                         }),
                                 false));
    TCPX_ASSIGN_OR_RETURN(const std::unique_ptr<UnpackLauncher> made,
                          launcher(0, false, static_cast<uint32_t>(kInFlight * work.fragments().size())));
    UnpackTicket ticket{};
    const Result<Summary> summary = rate_of(bytes, [&](StreamView stream) -> Status {
      Result<UnpackTicket> launched = made->launch(work.blocks(), stream);
      if (!launched.is_ok() && launched.status().code() == Code::kExhausted) {
        TCPX_RETURN_IF_ERROR(made->wait(ticket, Deadline::after(kPatience)));  // of the sample before
        launched = made->launch(work.blocks(), stream);
      }
      if (launched.is_ok()) ticket = *launched;
      return launched.status();
    });
    TCPX_RETURN_IF_ERROR(check(work));
    TCPX_RETURN_IF_ERROR(add_row(table, concat("tcpx launches of ", bytes >> 10, " KiB"), summary, true));
  }
  return table;
}

}  // namespace tcpx
