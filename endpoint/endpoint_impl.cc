#include "endpoint/endpoint_impl.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/log.h"
#include "base/pci_device.h"
#include "base/random.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/usable_cores.h"

namespace tcpx {
namespace {

constexpr size_t kMaxNotifyWaits = 65536;                        // notifications of a connection that wait for the peer's window
constexpr size_t kMaxNotifyWaitBytes = 64u << 20;                // bytes of their names and texts
constexpr Duration kEnd = std::chrono::seconds(4);               // longest time to close all links
constexpr Duration kUnmapping = std::chrono::milliseconds(100);  // how long a deregistration waits for peers on this host

size_t size_of(const std::pair<size_t, size_t>& stretch) {
  return stretch.second - stretch.first;
}

Status refuse(OperationKind kind, std::string why) {
  return Status(Code::kInvalidArgument, std::string(name_of(kind)), std::move(why));
}

Status check(const EndpointConfig& config) {
  const auto refuse = [](std::string why) { return Status(Code::kInvalidArgument, "create endpoint", std::move(why)); };
  if (config.max_operations < 1 || config.max_operations > (1u << 20))
    return refuse(concat("max_operations ", config.max_operations, ", must be 1 to ", 1u << 20));
  if (config.inline_bytes && *config.inline_bytes > kMaxInlineBytes)
    return refuse(concat("inline_bytes ", *config.inline_bytes, ", at most ", kMaxInlineBytes));
  if (config.operation_timeout && config.operation_timeout->count() < 1) return refuse("an operation timeout below 1 ms");
  const VariableInfo& peer_timeout = environment_info(Variable::kPeerTimeoutMs);
  if (config.peer_timeout && (config.peer_timeout->count() < peer_timeout.min || config.peer_timeout->count() > peer_timeout.max))
    return refuse(
        concat("a peer timeout of ", config.peer_timeout->count(), " ms, must be ", peer_timeout.min, " to ", peer_timeout.max));
  if (config.max_notifications < 1) return refuse("max_notifications 0, must be at least 1");
  return Status::ok();
}

Status check(const NotifyMsg& message) {
  if (message.name.size() <= kMaxNotifyNameBytes && message.msg.size() <= kMaxNotifyTextBytes) return Status::ok();
  return Status(Code::kInvalidArgument, "notify",
                concat("a name of ", message.name.size(), " and a text of ", message.msg.size(), " bytes; at most ",
                       kMaxNotifyNameBytes, " and ", kMaxNotifyTextBytes));
}

// Checks that one more notification may wait for the peer's window.
Status check_room(const LinkFace& face, const NotifyMsg& message) {
  const size_t waiting = face.notifications.load(std::memory_order_relaxed);
  const size_t bytes = face.notification_bytes.load(std::memory_order_relaxed);
  if (waiting < kMaxNotifyWaits && bytes + size_of(message) <= kMaxNotifyWaitBytes) return Status::ok();
  return Status(Code::kExhausted, "notify",
                concat(waiting, " notifications of ", bytes, " bytes wait for the peer to take some"));
}

// The kernel pins every page that it copies for a thread, which takes longer than to copy it: 64 MiB at a time move at 16 GB/s with
// 8 threads and at 23 with 16 (32 cores). The application and the progress thread need cores, too.
size_t copy_threads(uint32_t cores) {
  return std::min(cores, std::clamp(cores / 2, 2u, 16u));
}

}  // namespace

Result<Endpoint::Impl::Copiers> Endpoint::Impl::Copiers::create(MemoryOps& memory, int gpu_idx, bool steered) {
  Copiers copiers{.order = memory.make_gpu_order(gpu_idx), .host_memory = make_host_memory_ops()};
  TCPX_ASSIGN_OR_RETURN(copiers.bulk, memory.make_segment_copier(gpu_idx));
  TCPX_ASSIGN_OR_RETURN(copiers.brief, memory.make_segment_copier(gpu_idx));
  TCPX_ASSIGN_OR_RETURN(copiers.host, copiers.host_memory->make_segment_copier(0));
  copiers.messages = std::make_unique<InlineCopies>(memory, *copiers.brief, gpu_idx);
  // Allocated now: later, the allocation may wait for GPU work that itself waits for this endpoint.
  if (memory.has_gpu()) TCPX_RETURN_IF_ERROR(copiers.messages->prepare());
  copiers.reach = std::make_unique<GpuReach>(memory, gpu_idx, steered);
  copiers.pulls = std::make_unique<HostCopier>(copy_threads(usable_cores()));
  return copiers;
}

Result<std::unique_ptr<Endpoint::Impl>> Endpoint::Impl::create(EndpointParts parts, EndpointConfig config) {
  TCPX_RETURN_IF_ERROR(check(config));
  TCPX_ASSIGN_OR_RETURN(const auto timeout, environment_integer(Variable::kOpTimeoutMs));
  config.operation_timeout = config.operation_timeout.value_or(Milliseconds(timeout));
  TCPX_ASSIGN_OR_RETURN(const auto peer_timeout, environment_integer(Variable::kPeerTimeoutMs));
  config.peer_timeout = config.peer_timeout.value_or(Milliseconds(peer_timeout));
  TCPX_ASSIGN_OR_RETURN(const auto inline_bytes, environment_integer(Variable::kInlineBytes));
  config.inline_bytes = config.inline_bytes.value_or(static_cast<uint32_t>(inline_bytes));
  TCPX_ASSIGN_OR_RETURN(config.max_peer_bytes, PeerMemory::configured(config));
  TCPX_ASSIGN_OR_RETURN(const auto local, environment_choice(Variable::kLocal));
  config.same_host = config.same_host && local == 0;
  TCPX_ASSIGN_OR_RETURN(const auto checksum, environment_choice(Variable::kChecksum));
  parts.checksums = checksum != 0;
  parts.repeats = checksum == 2;
  TCPX_ASSIGN_OR_RETURN(const auto instance, random_id());
  const std::shared_ptr<MemoryOps> memory = parts.memory;
  const CurrentGpu gpu(*memory, config.gpu_idx);
  TCPX_ASSIGN_OR_RETURN(auto copiers, Copiers::create(*memory, config.gpu_idx, parts.plugin->steers_flows()));
  std::unique_ptr<Impl> impl(new Impl(std::move(parts), config, std::move(copiers), instance));
  TCPX_RETURN_IF_ERROR(impl->connections_.listen());
  TCPX_RETURN_IF_ERROR(impl->engine_.start(config.progress_thread ? impl->parts_.plugin->borrow_io() : nullptr));
  return impl;
}

Endpoint::Impl::Impl(EndpointParts parts, const EndpointConfig& config, Copiers copiers, uint64_t instance)
    : config_(config),
      parts_(std::move(parts)),
      born_in_(count_forks()),
      copiers_(std::move(copiers)),
      unmapper_(parts_.memory, config.gpu_idx, [this] { engine_.wake(); }),
      staging_(*parts_.memory, *copiers_.host_memory, config.gpu_idx, kStagingBytes, unmapper_),
      peers_(*config.max_peer_bytes - inbox_part(*config.max_peer_bytes)),
      budget_({.channels = static_cast<uint32_t>(parts_.devices.size())}),
      registry_(instance),
      operations_(config.max_operations, &signal_),
      inbox_(config.max_notifications, &signal_, inbox_part(*config.max_peer_bytes)),
      shared_{.operations = operations_,
              .memory = registry_,
              .copies = *copiers_.messages,
              .inbox = inbox_,
              .lanes = {.staging = staging_,
                        .device_copier = *copiers_.bulk,
                        .host_copier = *copiers_.host,
                        .steered = parts_.plugin->steers_flows(),
                        .told = [this] { engine_.tell(); }},
              .pulls = {.memory = *parts_.memory,
                        .gpu = config.gpu_idx,
                        .gpu_copier = *copiers_.bulk,
                        .host_copier = *copiers_.pulls,
                        .unmapper = unmapper_},
              .clock = Clock::steady(),
              .peer_timeout = *config.peer_timeout,
              .repeats = parts_.repeats},
      engine_(*parts_.memory, config_, operations_, [this](ConnId conn) { (void)connections_.forget(conn); }),
      connections_({.config = config_,
                    .endpoint = parts_,
                    .identity = {.instance = instance,
                                 .gpu_idx = config.gpu_idx,
                                 .inline_bytes = *config.inline_bytes,
                                 .gpu_bus = bus_id_of(parts_.memory->pci_path(config.gpu_idx).value_or(""))},
                    .links = shared_,
                    .budget = budget_,
                    .peers = peers_,
                    .engine = engine_,
                    .stop = stop_}) {}

void Endpoint::Impl::stop_waiting() {
  stop_ = true;
  engine_.wake();
  connections_.stop_waiting();
}

Endpoint::Impl::~Impl() {
  stop_waiting();
  connections_.stop();
  // Makes progress here, with or without a progress thread. Calls of other threads end when what they wait for has ended.
  for (const Deadline deadline = Deadline::after(kEnd); !deadline.expired();) {
    const bool alone = calls_ == 0;  // before close_links: a call that was leaving may have made a link
    if (engine_.close_links() && alone) break;
    engine_.wake();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  engine_.stop();
  unmapper_.end();
}

Status Endpoint::Impl::is_a_fork() {
  return Status(Code::kUnsupported, "use endpoint",
                "this process is a fork of the one that made the endpoint, and has none of its threads: start a program instead");
}

Result<MemoryId> Endpoint::Impl::register_memory(const void* data, size_t bytes, std::optional<MemoryType> type) {
  MemoryOps& memory = *parts_.memory;
  if (!type) type = memory.has_gpu() && memory.is_device_memory(data) ? MemoryType::kCuda : MemoryType::kHost;
  if (memory.has_gpu() && (*type == MemoryType::kCuda) != memory.is_device_memory(data)) {
    return Status(Code::kInvalidArgument, "register memory",
                  *type == MemoryType::kCuda ? "not GPU memory" : "GPU memory cannot be registered as host memory");
  }
  GpuAccess access{.gpu = config_.gpu_idx};
  if (*type == MemoryType::kCuda) {
    TCPX_ASSIGN_OR_RETURN(access, copiers_.reach->access_to(data, bytes));
  }
  bool writable = true;
  if (*type == MemoryType::kHost || !memory.has_gpu()) {
    TCPX_ASSIGN_OR_RETURN(writable, is_writable(data, bytes));
  }
  auto id = registry_.add(data, bytes, *type, access, writable);
  // Links look for such memory by themselves, so this waits for no turn of theirs.
  if (id.is_ok() && *id == registry_.newest_on_gpu()) engine_.tell();
  return id;
}

Status Endpoint::Impl::deregister(MemoryId id, Deadline deadline) {
  auto removed = remove_region(id, deadline);
  // A peer may use the region for ever. Closing its connection ends that, and is waited for once.
  if (!removed.is_ok() && removed.status().code() == Code::kTimeout) {
    if (const auto closed_at = fail_links_that_serve(id)) removed = remove_region(id, Deadline(*closed_at + kGrace));
  }
  if (removed.is_ok() && *removed) {
    const MemoryId region = (*removed)->id;
    std::vector<ServedLinks::Holder> holders;
    {
      const ProgressEngine::Lock lock(engine_);
      holders = engine_.links().forget(region);
    }
    wait_until_unmapped(std::move(holders), region);
  }
  return removed.status();
}

// Memory that a peer maps is not really free when the application frees it. A running peer unmaps it in less than a millisecond, unless
// one of its own kernels delays that.
void Endpoint::Impl::wait_until_unmapped(std::vector<ServedLinks::Holder> holders, MemoryId region) {
  const Deadline deadline = Deadline::after(kUnmapping);
  Backoff backoff(engine_.cores());
  while (!holders.empty() && !deadline.expired()) {
    if (config_.progress_thread) std::this_thread::sleep_for(std::chrono::microseconds(50));
    engine_.help(backoff);
    const ProgressEngine::Lock lock(engine_);
    engine_.links().look_at(holders, region);
  }
  for (const ServedLinks::Holder& one : holders) {
    log(LogLevel::kWarning, "deregister memory: the peer of connection ", static_cast<uint64_t>(one.conn),
        " has not unmapped it after ", kUnmapping.count() / 1'000'000, " ms: the freed GPU memory stays taken until it has");
  }
}

Result<std::optional<Region>> Endpoint::Impl::remove_region(MemoryId id, Deadline deadline) {
  // Without a progress thread, the waiting caller makes the progress that it waits for.
  while (!config_.progress_thread && !deadline.expired()) {
    auto removed = registry_.try_remove(id);
    if (removed.is_ok() || removed.status().code() != Code::kExhausted) return removed;
    if (!progress()) std::this_thread::yield();
  }
  return registry_.remove(id, deadline);
}

// @return as ServedLinks::fail_those_that_serve
std::optional<TimePoint> Endpoint::Impl::fail_links_that_serve(MemoryId region) {
  const ProgressEngine::Lock lock(engine_);
  const auto failed_at = engine_.links().fail_those_that_serve(region);
  if (failed_at) engine_.wake();
  return failed_at;
}

Result<RemoteSlot> Endpoint::Impl::advertise(std::optional<ConnId> conn, const LocalRange& range,
                                             const AdvertiseOptions& options) {
  if (conn) TCPX_RETURN_IF_ERROR(connections_.find(*conn).status());
  std::unique_ptr<GpuMark> after;
  if (options.after_stream) {
    TCPX_ASSIGN_OR_RETURN(const RegionUse use, registry_.use(range.memory, range.data, range.bytes));
    TCPX_ASSIGN_OR_RETURN(after, copiers_.order->mark_stream(*options.after_stream, use.region().access.gpu));
  }
  // Through Deadline, which knows that a long time is for ever.
  const SlotEnd end{.at = options.ends_after ? Deadline::after(*options.ends_after).at() : TimePoint::max(),
                    .uses = options.uses};
  return registry_.advertise(conn.value_or(kAnyConnection), range.memory, range.data, range.bytes, options.access,
                             std::move(after), options.after_stream.value_or(nullptr), end);
}

Status Endpoint::Impl::withdraw(const RemoteSlot& slot) {
  TCPX_RETURN_IF_ERROR(check_slot(slot));
  return registry_.withdraw(slot.id);
}

Result<OperationId> Endpoint::Impl::submit(OperationKind kind, ConnId conn, std::span<const LocalRange> ranges,
                                           std::span<const RemoteRange> remote, const SubmitOptions& options) {
  const bool one_sided = kind == OperationKind::kWrite || kind == OperationKind::kRead;
  if (one_sided && remote.size() != ranges.size())
    return refuse(kind, concat(ranges.size(), " local ranges and ", remote.size(), " remote ones"));
  if (!one_sided && ranges.size() > kMaxRanges) return refuse(kind, concat(ranges.size(), " ranges, at most ", kMaxRanges));
  if (ranges.size() > kMaxWireRanges) {
    TCPX_ASSIGN_OR_RETURN(auto plan, prepare(ranges, remote));
    return submit(kind, conn, std::move(plan), std::nullopt, options);
  }
  NamedRanges named(ranges, remote);
  TCPX_RETURN_IF_ERROR(named.check(registry_, is_target(kind)));
  const size_t most = one_sided && !named.counts_uses() ? parts_of(ranges.size(), named.bytes()) : 1;
  const auto prepare = [&](Operation& whole, std::span<Operation* const> movers) -> Status {
    whole.uses = named.take_uses();
    for (size_t part = 0; part < movers.size(); ++part)
      named.make_room(size_of(stretch_of(ranges.size(), part, movers.size())), *movers[part]);
    return Status::ok();
  };
  const auto give = [&](const Operation& whole, Operation& mover, size_t part, size_t parts) {
    named.give(size_of(stretch_of(ranges.size(), part, parts)), whole.uses, mover);
  };
  return start(kind, conn, options, most, prepare, give);
}

Result<OperationId> Endpoint::Impl::submit(OperationKind kind, ConnId conn, std::shared_ptr<const PlannedRanges> plan,
                                           std::optional<PlannedRounds::Chosen> chosen, const SubmitOptions& options) {
  if (plan == nullptr || plan->endpoint != registry_.instance()) return refuse(kind, "a plan that this endpoint has not made");
  const auto prepare = [&](Operation& whole, std::span<Operation* const> movers) -> Status {
    TCPX_RETURN_IF_ERROR(plan->hold(registry_, whole.uses));
    for (size_t part = 0; part < movers.size(); ++part) {
      TCPX_ASSIGN_OR_RETURN(movers[part]->rounds,
                            PlannedRounds::begin(plan, whole.uses, chosen, is_target(kind), part, movers.size()));
    }
    return Status::ok();
  };
  const size_t count = chosen ? chosen->local.size() : plan->count();
  const size_t most = plan->counts_uses ? 1 : parts_of(count, plan->bytes_of(count));
  return start(kind, conn, options, most, prepare, [](const Operation&, Operation&, size_t, size_t) {});
}

// @param most parts of it, if there is room for so many operations
// @param prepare checks all ranges, and holds their regions in the whole, which is the only mover if it has no parts
// @param give gives a mover its ranges, cannot fail, and takes the longer the more they are: what is before it has then begun
template <class Prepare, class Give>
Result<OperationId> Endpoint::Impl::start(OperationKind kind, ConnId conn, const SubmitOptions& options, size_t most,
                                          Prepare prepare, Give give) {
  TCPX_ASSIGN_OR_RETURN(const auto connection, connections_.find(conn));
  if (options.notify != nullptr) {
    if (kind == OperationKind::kRecv) return refuse(kind, "a receive takes no notification: the sender attaches it");
    TCPX_RETURN_IF_ERROR(check(*options.notify));
    // A read's notification leaves when the read is done, and then waits for the window like any other.
    if (kind == OperationKind::kRead) TCPX_RETURN_IF_ERROR(check_room(*connection->face, *options.notify));
  }
  if (options.timeout && options.timeout->count() < 1) return refuse(kind, "a timeout below 1 ms");

  NewOperations acquired(operations_);
  TCPX_ASSIGN_OR_RETURN(Operation* const operation, acquired.first(kind));
  const OperationId id = operation->id;
  operation->conn = conn;
  operation->link = connection->link;
  operation->submitted_at = Clock::steady().now();
  operation->deadline = later(operation->submitted_at, saturated(options.timeout.value_or(timeout())));
  const bool in_parts = most > 1 && acquired.add(most + (options.notify != nullptr ? 1 : 0));
  const size_t parts = in_parts ? most : 1;
  const std::span<Operation* const> movers = in_parts ? acquired.all().subspan(1, parts) : acquired.all();
  Operation& last = *acquired.all().back();  // of parts: moves nothing, and brings the notification when all bytes are in place
  try {
    TCPX_RETURN_IF_ERROR(prepare(*operation, movers));
    for (Operation* const mover : movers) TCPX_RETURN_IF_ERROR(order(*mover, operation->uses, options));
    if (options.notify != nullptr) last.notify = std::make_unique<NotifyMsg>(*options.notify);
  } catch (const std::bad_alloc&) {
    return Status(Code::kExhausted, "start operation", "out of memory");
  }
  if (options.completion_event) {
    TCPX_ASSIGN_OR_RETURN(auto signal, copiers_.order->make_signal());
    operation->set_signal(std::move(signal));
  }
  if (in_parts) {
    if (options.notify != nullptr) last.kind = OperationKind::kWrite;
    operations_.join(*operation, movers, options.notify != nullptr ? &last : nullptr);
  }
  acquired.let_go();
  if (kind == OperationKind::kSend) operation->sequence = connection->next_send.fetch_add(1, std::memory_order_relaxed);
  if (kind == OperationKind::kRecv) operation->sequence = connection->next_recv.fetch_add(1, std::memory_order_relaxed);
  for (size_t part = 0; part < parts; ++part) {
    give(*operation, *movers[part], part, parts);
    engine_.submit(*movers[part]);
  }
  return id;
}

// Orders the operation among the GPUs' work. @param uses of its memory, or of all parts of what it is a part of
Status Endpoint::Impl::order(Operation& operation, std::span<const RegionUse> uses, const SubmitOptions& options) {
  const auto after = [&operation](Result<std::unique_ptr<GpuMark>> mark) {
    if (mark.is_ok()) operation.after.push_back(std::move(*mark));
    return mark.status();
  };
  if (options.after_stream) {
    for (const int gpu : gpus_of(uses, config_.gpu_idx))
      TCPX_RETURN_IF_ERROR(after(copiers_.order->mark_stream(*options.after_stream, gpu)));
  }
  if (options.after_event != nullptr) TCPX_RETURN_IF_ERROR(after(copiers_.order->mark_event(options.after_event)));
  return Status::ok();
}

OperationAnswer Endpoint::Impl::poll(OperationId id) {
  OperationAnswer answer = operations_.poll(id);
  if (answer.state == OperationState::kPending && engine_.look()) answer = operations_.poll(id);
  return answer;
}

std::vector<NotifyMsg> Endpoint::Impl::take_notifs() {
  std::vector<NotifyMsg> taken = inbox_.take_all();
  if (taken.empty() && engine_.look()) taken = inbox_.take_all();
  return taken;
}

Status Endpoint::Impl::wait(OperationId id, std::optional<Milliseconds> timeout) {
  const Deadline deadline = timeout ? Deadline::after(*timeout)
                                    : Deadline(later(Deadline::after(*config_.operation_timeout).at(), kWaitBeyondDeadline));
  Backoff backoff(engine_.cores());
  const ProgressEngine::Waiter waiter(
      engine_, [&] { return operations_.is_pending(id); }, deadline);
  for (;;) {
    const bool ended = operations_.wait(id, config_.progress_thread ? deadline : Deadline(TimePoint{}), waiter.spin());
    if (ended) {
      OperationAnswer answer = operations_.poll(id);
      if (answer.state == OperationState::kUnknown)
        return Status(Code::kNotFound, "wait", concat("no operation ", static_cast<uint64_t>(id)));
      return answer.status;
    }
    if (deadline.expired()) return Status(Code::kTimeout, "wait", "the operation is still pending");
    engine_.help(backoff);
  }
}

Status Endpoint::Impl::cancel(OperationId id) {
  if (operations_.is_unknown(id)) return Status(Code::kNotFound, "cancel", concat("no operation ", static_cast<uint64_t>(id)));
  if (operations_.request_cancel(id)) engine_.wake();
  return Status::ok();
}

Status Endpoint::Impl::notify(ConnId conn, const NotifyMsg& message) {
  TCPX_ASSIGN_OR_RETURN(const auto connection, connections_.find(conn));
  TCPX_RETURN_IF_ERROR(check(message));
  const std::shared_ptr<LinkFace>& face = connection->face;
  if (face->ended) {
    const ProgressEngine::Lock lock(engine_);
    return engine_.links().why_ended(conn);
  }
  TCPX_RETURN_IF_ERROR(check_room(*face, message));
  engine_.notify(std::make_unique<Notification>(conn, connection->link, message, face));
  return Status::ok();
}

std::vector<NotifyMsg> Endpoint::Impl::wait_notifs(Deadline deadline) {
  Backoff backoff(engine_.cores());
  const ProgressEngine::Waiter waiter(
      engine_, [&] { return inbox_.size() == 0 && !stop_; }, deadline);
  for (;;) {
    const Deadline look = config_.progress_thread ? Deadline::after(kLookAtStop).earlier(deadline) : Deadline(TimePoint{});
    std::vector<NotifyMsg> taken = inbox_.take_all(look);
    if (!taken.empty() || deadline.expired() || stop_) return taken;
    engine_.help(backoff);
  }
}

Result<int> Endpoint::Impl::event_fd() {
  // Ends and notifications become visible with the lock held, so each raises the descriptor or is seen by the caller who gets it.
  const ProgressEngine::Lock lock(engine_);
  return signal_.open();
}

EndpointStats Endpoint::Impl::stats() {
  EndpointStats stats{.connections = {},
                      .ended = {},
                      .registered_regions = registry_.regions(),
                      .advertised_ranges = registry_.advertised(),
                      .operations_outstanding = operations_.outstanding(),
                      .notifications_waiting = inbox_.size(),
                      .peer_bytes = peers_.held() + inbox_.bytes(),
                      .max_peer_bytes = *config_.max_peer_bytes};
  const ProgressEngine::Lock lock(engine_);
  stats.connections = engine_.links().stats();
  stats.ended = engine_.links().ended();
  return stats;
}

std::string Endpoint::Impl::flight_record() {
  const ProgressEngine::Lock lock(engine_);
  return concat(operations_.outstanding(), " operations outstanding, ", engine_.links().flight_record());
}

}  // namespace tcpx
