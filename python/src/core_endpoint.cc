#include "python/src/core_endpoint.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <span>
#include <thread>
#include <tuple>

#include "base/text.h"
#include "python/src/raise.h"
#include "python/src/stats_dict.h"
#include "python/src/unlocked.h"

namespace tcpx::python {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Calls `attempt` with short timeouts, without the interpreter lock, until it ends otherwise than with kTimeout, or too late.
template <class Attempt>
auto attempt_until(double seconds, Attempt attempt) {
  const auto deadline = Clock::now() + milliseconds_of(seconds);
  for (;;) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    auto result = [&] {
      const Unlocked unlocked;
      return attempt(std::clamp(left, Milliseconds(1), kSlice));
    }();
    // Before signals are looked at: what has been taken would be lost.
    if (result.is_ok() || result.status().code() != Code::kTimeout || left <= kSlice) return result;
    if (!run_signal_handlers()) throw nb::python_error();
  }
}

/// SubmitOptions, and what they point to.
struct Submission {
  explicit Submission(const Options& options) {
    if (options.timeout) submit.timeout = milliseconds_of(*options.timeout);
    if (options.stream) submit.after_stream = reinterpret_cast<void*>(*options.stream);
    submit.completion_event = options.completion_event;
    if (options.notify) {
      message.msg.assign(options.notify->c_str(), options.notify->size());
      submit.notify = &message;
    }
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  NotifyMsg message;
  SubmitOptions submit;
};

Status unregistered(uintptr_t data, size_t bytes) {
  return Status(Code::kNotFound, "find memory", concat(bytes, " bytes at address ", data, " are not registered"));
}

/// Block numbers as the library takes them. @param known blocks that there are
Status narrow(std::span<const int64_t> ids, uint64_t known, const char* noun, const char* where, std::vector<uint32_t>& narrowed) {
  narrowed.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<uint64_t>(ids[i]);
    if (id >= known || id > std::numeric_limits<uint32_t>::max()) {
      return Status(Code::kInvalidArgument, concat(noun, " numbers"),
                    concat("number ", i, " is ", noun, ' ', ids[i], " of ", known, where));
    }
    narrowed[i] = static_cast<uint32_t>(id);
  }
  return Status::ok();
}

}  // namespace

CoreEndpoint::CoreEndpoint(EndpointConfig config, std::shared_ptr<AcceptFilter> filter) : filter_(std::move(filter)) {
  if (filter_ != nullptr) config.accepts = [filter = filter_](const PeerInfo& peer) { return filter->accepts(peer); };
  auto endpoint = [&] {
    const Unlocked unlocked;
    return Endpoint::create(config);
  }();
  if (!endpoint.is_ok() && filter_ != nullptr) filter_->end();
  shared_ = std::make_shared<SharedEndpoint>(check(std::move(endpoint)));
}

CoreEndpoint::~CoreEndpoint() {
  close();
  if (filter_ != nullptr) filter_->end();
}

void CoreEndpoint::close() {
  if (filter_ != nullptr) filter_->stop();
  const Unlocked unlocked;
  shared_->close();
}

std::shared_ptr<Endpoint> CoreEndpoint::use() const {
  auto endpoint = shared_->use();
  if (endpoint == nullptr) raise(shared_->why_not_in_use("use an endpoint"));
  return endpoint;
}

nb::bytes CoreEndpoint::metadata() const {
  const std::vector<uint8_t> bytes = use()->get_metadata();
  return nb::bytes(bytes.data(), bytes.size());
}

uint64_t CoreEndpoint::connect(const std::string& ip, int gpu, int port, double timeout) const {
  return set_up([=, limit = milliseconds_of(timeout)](Endpoint& endpoint) { return endpoint.connect(ip, gpu, port, limit); });
}

uint64_t CoreEndpoint::connect_metadata(const nb::bytes& metadata, double timeout) const {
  const auto* const begin = static_cast<const uint8_t*>(metadata.data());
  std::vector<uint8_t> data(begin, begin + metadata.size());
  return set_up([data = std::move(data), limit = milliseconds_of(timeout)](Endpoint& endpoint) {
    return endpoint.add_remote_endpoint(data, limit);
  });
}

// In a thread of its own, because it is one attempt to the end, and this one has to look at signals.
uint64_t CoreEndpoint::set_up(std::function<Result<ConnId>(Endpoint&)> attempt) const {
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    std::optional<Result<ConnId>> result;
    bool abandoned = false;
  };
  const auto state = std::make_shared<State>();
  const auto endpoint = use();
  std::thread([state, endpoint, attempt = std::move(attempt)] {
    Result<ConnId> result = attempt(*endpoint);
    const std::lock_guard lock(state->mutex);
    if (state->abandoned && result.is_ok()) (void)endpoint->remove_connection(*result);
    state->result = std::move(result);
    state->ended.notify_all();
  }).detach();
  for (;;) {
    {
      const Unlocked unlocked;
      std::unique_lock lock(state->mutex);
      if (state->ended.wait_for(lock, kSlice, [&] { return state->result.has_value(); })) break;
    }
    if (run_signal_handlers()) continue;
    const nb::python_error raised;
    {
      const Unlocked unlocked;
      const std::lock_guard lock(state->mutex);
      state->abandoned = true;
      if (state->result && state->result->is_ok()) (void)endpoint->remove_connection(**state->result);
    }
    throw raised;
  }
  return static_cast<uint64_t>(check(*std::move(state->result)));
}

std::optional<nb::tuple> CoreEndpoint::accept(double timeout) const {
  auto accepted = attempt_until(timeout, [&](Milliseconds slice) -> Result<Endpoint::Accepted> {
    const auto endpoint = shared_->use();
    if (endpoint == nullptr) return shared_->why_not_in_use("accept");
    return endpoint->accept(slice);
  });
  if (!accepted.is_ok() && accepted.status().code() == Code::kTimeout) return std::nullopt;
  const auto peer = check(std::move(accepted));
  return nb::make_tuple(static_cast<uint64_t>(peer.conn), peer.ip, peer.remote_gpu_idx, peer.name);
}

void CoreEndpoint::start_accepting() const {
  check(use()->start_accepting());
}

void CoreEndpoint::remove(uint64_t conn) const {
  const auto endpoint = use();
  const Status status = [&] {
    const Unlocked unlocked;
    return endpoint->remove_connection(ConnId(conn));
  }();
  check(status);
}

void CoreEndpoint::add_region(uintptr_t data, size_t bytes) {
  const auto endpoint = use();
  if (regions_.add_again(data, bytes)) return;
  auto memory = [&] {
    const Unlocked unlocked;
    return endpoint->register_memory(reinterpret_cast<void*>(data), bytes);
  }();
  auto region = std::make_shared<BufferRegistration>(shared_, check(std::move(memory)));
  regions_.add(data, bytes, region);
  const Unlocked unlocked;
  region.reset();
}

void CoreEndpoint::drop_region(uintptr_t data, size_t bytes, bool wait, std::optional<double> timeout) {
  auto removed = regions_.remove(data, bytes);  // with the interpreter lock, so that no fork finds it locked
  const Status status = [&] {
    const Unlocked unlocked;
    const auto region = std::move(removed);
    const auto limit = timeout ? std::optional(milliseconds_of(*timeout)) : std::nullopt;
    return region != nullptr && wait ? region->end(limit) : Status::ok();
  }();
  check(status);
}

CoreEndpoint::Hold::~Hold() {
  const Unlocked unlocked;
  region.reset();
}

std::unique_ptr<CoreEndpoint::Hold> CoreEndpoint::hold(uintptr_t data, size_t bytes) const {
  auto region = regions_.find(data, bytes);
  return region == nullptr ? nullptr : std::unique_ptr<Hold>(new Hold{std::move(region)});
}

nb::bytes CoreEndpoint::advertise(std::optional<uint64_t> conn, std::pair<uintptr_t, size_t> region, uintptr_t data, size_t bytes,
                                  std::optional<uintptr_t> stream, int access, std::optional<double> ends_after,
                                  uint32_t uses) const {
  const Hold held{regions_.at(region.first, region.second)};
  if (held.region == nullptr) raise(unregistered(region.first, region.second));
  const LocalRange range{held.region->memory(), reinterpret_cast<void*>(data), bytes};
  const auto endpoint = use();
  AdvertiseOptions options{.access = SlotAccess(access), .uses = uses};
  if (ends_after) options.ends_after = milliseconds_of(*ends_after);
  if (stream) options.after_stream = reinterpret_cast<void*>(*stream);
  const RemoteSlot slot = check(conn ? endpoint->advertise(ConnId(*conn), range, options) : endpoint->advertise(range, options));
  return nb::bytes(&slot, sizeof slot);
}

bool CoreEndpoint::is_advertised(const nb::bytes& slot) const {
  return use()->is_advertised(slot_of(slot));
}

void CoreEndpoint::withdraw(const nb::bytes& slot) const {
  const auto endpoint = shared_->use();
  if (endpoint == nullptr) return;
  const Status status = endpoint->withdraw(slot_of(slot));
  if (status.code() != Code::kNotFound) check(status);
}

std::shared_ptr<CoreOperation> CoreEndpoint::started(Result<OperationId> id,
                                                     std::vector<std::shared_ptr<BufferRegistration>> regions) const {
  return std::make_shared<CoreOperation>(shared_, check(std::move(id)), std::move(regions));
}

std::shared_ptr<CoreOperation> CoreEndpoint::start_ranges(Endpoint& endpoint, int kind, uint64_t conn,
                                                          std::span<const LocalRange> local, std::span<const RemoteRange> remote,
                                                          const Options& options,
                                                          std::vector<std::shared_ptr<BufferRegistration>> regions) const {
  const Submission submission(options);
  auto id = [&]() -> Result<OperationId> {
    const Unlocked unlocked;
    switch (Kind(kind)) {
      case Kind::kSend:
        return endpoint.send_async(ConnId(conn), local, submission.submit);
      case Kind::kRecv:
        return endpoint.recv_async(ConnId(conn), local, submission.submit);
      case Kind::kWrite:
        return endpoint.write_async(ConnId(conn), local, remote, submission.submit);
      case Kind::kRead:
        return endpoint.read_async(ConnId(conn), local, remote, submission.submit);
    }
    return Status(Code::kInvalidArgument, "start", "no such kind of operation");
  }();
  return started(std::move(id), std::move(regions));
}

std::shared_ptr<CoreOperation> CoreEndpoint::start(int kind, uint64_t conn, uintptr_t data, size_t bytes,
                                                   const std::optional<nb::bytes>& slot, uint64_t offset,
                                                   const Options& options) const {
  const auto endpoint = use();
  std::vector regions{regions_.find(data, bytes)};
  if (regions.front() == nullptr) return nullptr;
  const LocalRange local{regions.front()->memory(), reinterpret_cast<void*>(data), bytes};
  RemoteRange remote;
  if (slot) remote = {slot_of(*slot), offset};
  return start_ranges(*endpoint, kind, conn, {&local, 1}, {&remote, slot ? 1u : 0u}, options, std::move(regions));
}

std::optional<CoreEndpoint::Registered> CoreEndpoint::registered(const LocalList& local) const {
  Registered all;
  all.ranges.reserve(local.size());
  for (const auto& [data, bytes] : local) {
    auto region = regions_.find(data, bytes);
    if (region == nullptr) return std::nullopt;
    all.ranges.push_back({region->memory(), reinterpret_cast<void*>(data), bytes});
    if (all.regions.empty() || all.regions.back() != region) all.regions.push_back(std::move(region));
  }
  return all;
}

std::shared_ptr<CoreOperation> CoreEndpoint::start_many(int kind, uint64_t conn, const Ranges& ranges,
                                                        const Options& options) const {
  const auto endpoint = use();
  auto local = registered(ranges.local);
  if (!local) return nullptr;
  return start_ranges(*endpoint, kind, conn, local->ranges, ranges.remote, options, std::move(local->regions));
}

CoreEndpoint::Plan::~Plan() {
  const Unlocked unlocked;
  regions.clear();
}

std::unique_ptr<CoreEndpoint::Plan> CoreEndpoint::prepare(const Ranges& ranges) const {
  const auto endpoint = use();
  auto local = registered(ranges.local);
  if (!local) return nullptr;
  auto plan = std::make_unique<Plan>();
  plan->ranges = check(endpoint->prepare(local->ranges, ranges.remote));
  auto& regions = local->regions;
  std::sort(regions.begin(), regions.end());
  regions.erase(std::unique(regions.begin(), regions.end()), regions.end());
  plan->regions = std::move(regions);
  return plan;
}

std::shared_ptr<CoreOperation> CoreEndpoint::start_plan(int kind, uint64_t conn, const Plan& plan,
                                                        const std::optional<BlockIds>& numbers, const Options& options) const {
  const auto endpoint = use();
  const Submission submission(options);
  auto id = [&]() -> Result<OperationId> {
    const Unlocked unlocked;
    const bool writes = Kind(kind) == Kind::kWrite;
    if (!numbers) {
      return writes ? endpoint->write_async(ConnId(conn), plan.ranges, submission.submit)
                    : endpoint->read_async(ConnId(conn), plan.ranges, submission.submit);
    }
    std::vector<uint32_t> some;
    TCPX_RETURN_IF_ERROR(narrow(std::span(numbers->data(), numbers->shape(0)), plan.ranges.size(), "range", " of the plan", some));
    return writes ? endpoint->write_async(ConnId(conn), plan.ranges, some, submission.submit)
                  : endpoint->read_async(ConnId(conn), plan.ranges, some, submission.submit);
  }();
  return started(std::move(id), plan.regions);
}

std::shared_ptr<CoreOperation> CoreEndpoint::start_blocks(int kind, uint64_t conn, uintptr_t data, size_t bytes, uint64_t count,
                                                          const BlockIds& local, const nb::bytes& slot, uint64_t offset,
                                                          uint64_t remote_count, const BlockIds& remote,
                                                          const Options& options) const {
  if (local.shape(0) != remote.shape(0)) {
    raise(Status(Code::kInvalidArgument, "block numbers", concat(local.shape(0), " here and ", remote.shape(0), " there")));
  }
  const auto endpoint = use();
  std::vector regions{regions_.find(data, bytes * count)};
  if (regions.front() == nullptr) raise(unregistered(data, bytes * count));
  const LocalRange pool{regions.front()->memory(), reinterpret_cast<void*>(data), bytes * count};
  const RemoteRange remote_pool{slot_of(slot), offset};
  const Submission submission(options);
  const std::span local_ids(local.data(), local.shape(0)), remote_ids(remote.data(), remote.shape(0));
  auto id = [&]() -> Result<OperationId> {
    const Unlocked unlocked;
    std::vector<uint32_t> here, there;
    TCPX_RETURN_IF_ERROR(narrow(local_ids, count, "block", " here", here));
    TCPX_RETURN_IF_ERROR(narrow(remote_ids, remote_count, "block", " there", there));
    TCPX_ASSIGN_OR_RETURN(const auto plan, endpoint->prepare_blocks(pool, remote_pool, bytes));
    return Kind(kind) == Kind::kWrite ? endpoint->write_async(ConnId(conn), plan, here, there, submission.submit)
                                      : endpoint->read_async(ConnId(conn), plan, here, there, submission.submit);
  }();
  return started(std::move(id), std::move(regions));
}

void CoreEndpoint::notify(uint64_t conn, const nb::bytes& name, const nb::bytes& text) const {
  const NotifyMsg message{.name = {name.c_str(), name.size()}, .msg = {text.c_str(), text.size()}};
  const auto endpoint = use();
  const Status status = [&] {
    const Unlocked unlocked;
    return endpoint->notify(ConnId(conn), message);
  }();
  check(status);
}

nb::list CoreEndpoint::notifications(double timeout) const {
  auto messages = use()->get_notifs();
  if (messages.empty() && timeout != 0) {
    auto found = attempt_until(timeout, [&](Milliseconds slice) -> Result<std::vector<NotifyMsg>> {
      const auto endpoint = shared_->use();
      if (endpoint == nullptr) return shared_->why_not_in_use("wait for notifications");
      auto some = endpoint->wait_notifs(slice);
      if (some.empty()) return Status(Code::kTimeout, "wait for notifications", "none");
      return some;
    });
    if (found.is_ok()) {
      messages = std::move(*found);
    } else if (found.status().code() != Code::kTimeout) {
      raise(found.status());
    }
  }
  nb::list list;
  for (const NotifyMsg& message : messages) {
    list.append(nb::make_tuple(static_cast<uint64_t>(message.conn), nb::bytes(message.name.data(), message.name.size()),
                               nb::bytes(message.msg.data(), message.msg.size())));
  }
  return list;
}

int CoreEndpoint::event_fd() const {
  const auto endpoint = use();
  auto descriptor = [&] {
    const Unlocked unlocked;
    return endpoint->event_fd();
  }();
  return check(std::move(descriptor));
}

std::string CoreEndpoint::flight_record() const {
  const auto endpoint = use();
  const Unlocked unlocked;
  return endpoint->flight_record();
}

std::string CoreEndpoint::metrics() const {
  const auto endpoint = use();
  const Unlocked unlocked;
  return endpoint->metrics_text();
}

nb::dict CoreEndpoint::stats() const {
  const EndpointStats stats = [&] {
    const auto endpoint = use();
    const Unlocked unlocked;
    return endpoint->stats();
  }();
  return dict_of(stats);  // may run finalizers of anybody, one of which may close this endpoint: it is not held here any more
}

}  // namespace tcpx::python
