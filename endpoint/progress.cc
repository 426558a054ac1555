// The part of an Endpoint that makes progress.
#include <algorithm>
#include <new>
#include <utility>

#include "base/cpu_affinity.h"
#include "base/environment.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "base/pci_device.h"
#include "base/random.h"
#include "base/text.h"
#include "endpoint/endpoint_impl.h"

namespace tcpx {
namespace {

constexpr int kSubmissionsPerTurn = 256;
// Interval of looks at links without an event: deadlines, a peer that is gone.
constexpr std::chrono::milliseconds kLookEvery{20};
// The same while no operation waits for anything.
constexpr std::chrono::milliseconds kLookWhenIdle{250};
// Time an idle thread polls before it sleeps: longer than a round trip takes, so that answers find it awake.
constexpr Duration kSpin = std::chrono::milliseconds(1);
// Time the last farewells may take.
constexpr Duration kEnd = std::chrono::seconds(4);
// Connections that nobody knows of and that have ended, kept because sends of theirs can still be received.
constexpr size_t kMaxLeftBehind = 64;

Status check(const EndpointConfig& config) {
  const auto refuse = [](std::string why) { return Status(Code::kInvalidArgument, "create endpoint", std::move(why)); };
  if (config.max_operations < 1 || config.max_operations > (1u << 20))
    return refuse(concat("max_operations ", config.max_operations, ", must be 1 to ", 1u << 20));
  if (config.inline_bytes && *config.inline_bytes > kMaxInlineBytes)
    return refuse(concat("inline_bytes ", *config.inline_bytes, ", at most ", kMaxInlineBytes));
  if (config.operation_timeout && config.operation_timeout->count() < 1) return refuse("an operation timeout below 1 ms");
  if (config.max_notifications < 1) return refuse("room for no notification");
  return Status::ok();
}

}  // namespace

Endpoint::Impl::CurrentGpu::CurrentGpu(const Impl& impl) : memory_(*impl.parts_.memory) {
  if (!memory_.has_gpu()) return;
  const auto current = memory_.current_device();
  if (!current.is_ok() || *current == impl.config_.gpu_idx) return;
  if (memory_.set_current_device(impl.config_.gpu_idx).is_ok()) back_to_ = *current;
}

Endpoint::Impl::CurrentGpu::~CurrentGpu() {
  if (back_to_) (void)memory_.set_current_device(*back_to_);
}

Result<std::unique_ptr<Endpoint::Impl>> Endpoint::Impl::create(EndpointParts parts, const EndpointConfig& config) {
  TCPX_RETURN_IF_ERROR(check(config));
  TCPX_ASSIGN_OR_RETURN(const auto instance, random_id());
  std::unique_ptr<Impl> impl(new Impl(std::move(parts), config, instance));
  TCPX_RETURN_IF_ERROR(impl->start());
  return impl;
}

Endpoint::Impl::Impl(EndpointParts parts, const EndpointConfig& config, uint64_t instance)
    : config_(config),
      parts_(std::move(parts)),
      cores_(config.num_cpus != 0 ? config.num_cpus : std::thread::hardware_concurrency()),
      identity_{.instance = instance, .gpu_idx = config.gpu_idx},
      born_in_(count_forks()),
      budget_({.channels = static_cast<uint32_t>(parts_.devices.size())}),
      registry_(identity_.instance),
      operations_(config.max_operations),
      inbox_(config.max_notifications) {}

Status Endpoint::Impl::start() {
  TCPX_ASSIGN_OR_RETURN(const auto timeout, environment_integer(Variable::kOpTimeoutMs));
  timeout_ = config_.operation_timeout.value_or(Milliseconds(timeout));
  TCPX_ASSIGN_OR_RETURN(const auto inline_bytes, environment_integer(Variable::kInlineBytes));
  inline_bytes_ = config_.inline_bytes.value_or(static_cast<uint32_t>(inline_bytes));

  const CurrentGpu gpu(*this);
  MemoryOps& memory = *parts_.memory;
  host_memory_ = make_host_memory_ops();
  gpu_order_ = memory.make_gpu_order(config_.gpu_idx);
  const auto make = [](Result<std::unique_ptr<SegmentCopier>> made, std::unique_ptr<SegmentCopier>& copier) {
    if (made.is_ok()) copier = std::move(*made);
    return made.status();
  };
  TCPX_RETURN_IF_ERROR(make(memory.make_segment_copier(config_.gpu_idx), bulk_copier_));
  TCPX_RETURN_IF_ERROR(make(memory.make_segment_copier(config_.gpu_idx), short_copier_));
  TCPX_RETURN_IF_ERROR(make(host_memory_->make_segment_copier(0), host_copier_));
  copies_ = std::make_unique<InlineCopies>(memory, *short_copier_, config_.gpu_idx);
  // Now, and not while some of the GPU's work waits for us.
  if (memory.has_gpu()) TCPX_RETURN_IF_ERROR(copies_->prepare());
  staging_ = std::make_unique<StagingBuffers>(memory, *host_memory_, config_.gpu_idx, kStagingBytes);
  shared_ = std::make_unique<LinkShared>(LinkShared{.operations = operations_,
                                                    .memory = registry_,
                                                    .copies = *copies_,
                                                    .inbox = inbox_,
                                                    .lanes = {.staging = *staging_,
                                                              .device_copier = *bulk_copier_,
                                                              .host_copier = *host_copier_,
                                                              .steered = parts_.plugin->steers_flows()},
                                                    .clock = Clock::steady(),
                                                    .inline_bytes = inline_bytes_});

  TCPX_ASSIGN_OR_RETURN(
      auto server, BootstrapServer::create(
                       {.port = config_.port, .host = config_.listen_address, .wait_for_first_frame = true, .stop = &stop_}));
  server_ = std::move(server);
  entrance_ = std::make_unique<Entrance>(entrance_parts());
  TCPX_RETURN_IF_ERROR(events_.open());
  if (!config_.progress_thread) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(auto thread, start_thread("tcpx-progress", [this] { run(); }));
  thread_ = std::move(thread);
  return Status::ok();
}

Endpoint::Impl::~Impl() {
  stop_ = true;
  events_.wake();
  if (entrance_ != nullptr) entrance_->stop();
  // Without a thread this one drives; with one it helps. Calls that other threads are in end with what they wait for.
  for (const Deadline deadline = Deadline::after(kEnd); !deadline.expired();) {
    {
      const ProgressLock lock(*this);
      while (take_submissions()) {
      }
      for (auto& [id, served] : links_) {
        if (!std::exchange(served.removed, true)) attend(*served.link, [&link = *served.link] { link.close(); });
      }
      (void)try_turn();
      if (links_.empty() && calls_ == 0) break;
    }
    events_.wake();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  stop_progress_ = true;
  events_.wake();
  if (thread_.joinable()) thread_.join();
  const ProgressLock lock(*this);
  links_.clear();
  while (take_submissions()) {
  }
}

Status Endpoint::Impl::check_process() const {
  if (count_forks() == born_in_) return Status::ok();
  return Status(Code::kUnsupported, "use endpoint",
                "this process is a fork of the one that made the endpoint, and has none of its threads: start a program instead");
}

Duration Endpoint::Impl::spin() const {
  return Backoff::cores_are_few(cores_) ? Duration::zero() : kSpin;
}

void Endpoint::Impl::run() {
  MemoryOps& memory = *parts_.memory;
  if (const auto path = memory.pci_path(config_.gpu_idx)) run_near(read_numa_node(*path));
  if (memory.has_gpu()) (void)memory.set_current_device(config_.gpu_idx);
  Backoff backoff(cores_);
  TimePoint busy_until = Clock::steady().now();
  while (!stop_progress_) {
    bool advanced = false, polls = false, much = false;
    uint64_t locks = 0;
    {
      const FairLock lock(progress_mutex_);
      locks = progress_locks_.load();
      advanced = try_turn();
      polls = !advanced && needs_polling();
      much = polls && chunks_in_flight() >= Backoff::kMuchUnderWay;
    }
    const TimePoint now = Clock::steady().now();
    if (advanced) {
      backoff.reset();
      busy_until = now + spin();
    } else if (polls) {
      switch (backoff.next(much)) {
        case Backoff::Step::kSpin:
          break;
        case Backoff::Step::kYield:
          std::this_thread::yield();
          break;
        case Backoff::Step::kSleep:
          sleep(backoff.pause(much), locks);
      }
    } else if (now >= busy_until) {
      sleep(idle_.load() ? std::nullopt : std::optional<Duration>(operations_.outstanding() > 0 ? kLookEvery : kLookWhenIdle),
            locks);
      busy_until = Clock::steady().now() + spin();
    }
  }
}

// Until something happens that is announced, or so long.
// @param locks so far in the last turn: a thread that has been in since then has changed something
void Endpoint::Impl::sleep(std::optional<Duration> longest, uint64_t locks) {
  events_.sleep(longest, [&] {
    return submitted_.has_new() || notifications_.has_new() || stop_progress_ || progress_locks_.load() != locks;
  });
}

// Of what belongs to no link, little is allocated, and nothing that cannot be done in a later turn.
bool Endpoint::Impl::try_turn() {
  try {
    return turn();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool Endpoint::Impl::progress() {
  const ProgressLock lock(*this);
  return turn();
}

bool Endpoint::Impl::turn() {
  bool advanced = take_submissions();
  take_events();
  const TimePoint now = Clock::steady().now();
  const bool look = now >= next_look_;
  if (look) next_look_ = now + kLookEvery;
  const bool cancels = operations_.take_cancel_requests();
  for (auto& entry : links_) {
    ServedLink& served = entry.second;
    if (!look && !cancels && !served.readable && !served.has_work && !served.link->needs_polling()) continue;
    attend(*served.link, [&] {
      if (cancels) served.link->take_cancel_requests();
      advanced |= served.link->progress(std::exchange(served.readable, false));
    });
    served.has_work = false;
  }
  if (look) look_after_links();
  return advanced;
}

bool Endpoint::Impl::take_submissions() {
  bool any = false;
  for (int i = 0; i < kSubmissionsPerTurn; ++i) {
    Operation* const next = submitted_.pop();
    if (next == nullptr) break;
    any = true;
    Operation& operation = *next;
    const auto found = links_.find(operation.conn);
    if (found == links_.end() || found->second.number != operation.link) {
      operations_.finish(operation, Status(Code::kPeerGone, std::string(name_of(operation.kind)),
                                           "the connection was closed or made anew before the operation began"));
      continue;
    }
    // Asked for since it was queued, and the last look at such requests may have been before this link knew the operation.
    const bool cancelled = operation.cancel_requested();
    Link& link = *found->second.link;
    attend(link, [&] {
      link.submit(operation);
      if (cancelled) link.take_cancel_requests();
    });
    found->second.has_work = true;
  }
  for (int i = 0; i < kSubmissionsPerTurn; ++i) {
    std::unique_ptr<Notification> next(notifications_.pop());
    if (next == nullptr) break;
    any = true;
    const auto found = links_.find(next->conn);
    if (found == links_.end() || found->second.number != next->link) continue;
    attend(*found->second.link, [&] { found->second.link->notify(std::move(next)); });
    found->second.has_work = true;
  }
  return any;
}

void Endpoint::Impl::take_events() {
  WakeableEpoll::Tags room;
  for (const uint64_t tag : events_.readable(room)) {
    const auto found = links_.find(ConnId{tag});
    if (found != links_.end()) found->second.readable = true;
  }
}

void Endpoint::Impl::watch(ServedLink& served, bool on) {
  if (std::exchange(served.watched, on) != on) events_.watch(served.link->fd(), static_cast<uint64_t>(served.link->id()), on);
}

// Links that have ended, and those that nobody has used for long.
void Endpoint::Impl::look_after_links() {
  const TimePoint now = Clock::steady().now();
  size_t idle = 0;
  ServedLink* oldest = nullptr;
  for (auto& [id, served] : links_) {
    if (!served.idle_since || !served.link->reads()) continue;
    ++idle;
    if (oldest == nullptr || *served.idle_since < *oldest->idle_since) oldest = &served;
  }
  if (oldest != nullptr && (idle > config_.max_idle_connections || now - *oldest->idle_since >= saturated(config_.idle_time))) {
    oldest->removed = true;
    attend(*oldest->link, [&] { oldest->link->close(); });
  }
  const auto is_left_behind = [](const ServedLink& served) {
    return served.accepted_in_background && served.link->closed() && served.link->has_arrivals();
  };
  const size_t left_behind = static_cast<size_t>(
      std::count_if(links_.begin(), links_.end(), [&](const auto& entry) { return is_left_behind(entry.second); }));
  size_t too_many = left_behind > kMaxLeftBehind ? left_behind - kMaxLeftBehind : 0;
  // The oldest first: ids grow.
  for (auto served = links_.begin(); served != links_.end();) {
    if (!served->second.link->reads()) watch(served->second, false);
    const Link& link = *served->second.link;
    bool accepted_in_background = served->second.accepted_in_background && !link.has_arrivals();
    if (too_many > 0 && is_left_behind(served->second)) {
      accepted_in_background = true;
      --too_many;
    }
    const bool gone = (served->second.removed || served->second.idle_since || accepted_in_background) && link.closed();
    if (gone && accepted_in_background) forget_connection(served->first);
    served = gone ? links_.erase(served) : std::next(served);
  }
  idle_ = links_.empty();
}

bool Endpoint::Impl::needs_polling() {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.link->needs_polling(); });
}

uint64_t Endpoint::Impl::chunks_in_flight() {
  uint64_t sum = 0;
  for (const auto& [id, served] : links_) sum += served.link->chunks_in_flight();
  return sum;
}

EndpointStats Endpoint::Impl::stats() {
  EndpointStats stats{.connections = {},
                      .registered_regions = registry_.regions(),
                      .advertised_ranges = registry_.advertised(),
                      .operations_outstanding = operations_.outstanding(),
                      .notifications_waiting = inbox_.size()};
  const ProgressLock lock(*this);
  for (const auto& [id, served] : links_) stats.connections.push_back(served.link->stats());
  return stats;
}

std::string Endpoint::Impl::flight_record() {
  const ProgressLock lock(*this);
  std::string text = concat(operations_.outstanding(), " operations outstanding, ", links_.size(), " connections");
  for (const auto& [id, served] : links_) text += concat("\n", served.link->flight_record());
  return text;
}

}  // namespace tcpx
