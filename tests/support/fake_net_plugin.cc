#include "tests/support/fake_net_plugin.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/text.h"
#include "tests/support/open_counts.h"

namespace tcpx::testing {
namespace {

constexpr std::byte kPoison{0xDD};
constexpr const char* kRegistrations = "registrations with the fake plugin";
// Comms and requests are encoded numbers: kind and index, never 0.
constexpr uintptr_t comm_number(size_t index) {
  return index + 1;
}
constexpr uintptr_t request_number(size_t end, uint64_t slot) {
  return ((end + 1) << 8) | slot;
}
// Offset of GPUDirect-TCPX's scratch pointer in a handle.
constexpr size_t kScratchOffset = 80;

}  // namespace

Status plugin_refused(const char* operation, const char* why) {
  return {Code::kPlugin, operation, why, Domain::kNccl, 3};
}
Status plugin_peer_gone(const char* operation) {
  return {Code::kPeerGone, operation, "connection closed", Domain::kNccl, 2};
}

FakeNetPlugin::FakeNetPlugin(const Options& options)
    : options_(options),
      rng_(static_cast<std::minstd_rand::result_type>(options.seed)),
      pool_(size_t{options.page_bytes} * options.page_count, kPoison),
      free_pages_(options.page_count) {
  std::iota(free_pages_.begin(), free_pages_.end(), 0u);
}

void FakeNetPlugin::fail_call(Call call, uint64_t n, Status status, uint64_t times) {
  script(call).fail_at = script(call).calls + n;
  script(call).fail_times = times;
  script(call).failure = std::move(status);
}

void FakeNetPlugin::kill_peer_of(SendComm comm) {
  wires_[end_of(static_cast<uintptr_t>(comm), Direction::kSend)->wire].receiver_closed = true;
}
void FakeNetPlugin::kill_peer_of(RecvComm comm) {
  wires_[end_of(static_cast<uintptr_t>(comm), Direction::kRecv)->wire].sender_closed = true;
}

size_t FakeNetPlugin::open_comms() const {
  return static_cast<size_t>(std::count_if(ends_.begin(), ends_.end(), [](const End& end) { return end.open; }));
}

std::pair<SendComm, RecvComm> FakeNetPlugin::make_wire() {
  Handle handle;
  DeviceHandleStorage storage;
  const ListenComm listener = listen(0, handle).value();
  std::optional<SendComm> send;
  std::optional<RecvComm> recv;
  while (!send) send = try_connect(0, handle).value();
  while (!recv) recv = try_accept(listener, storage).value();
  (void)close(listener);
  return {*send, *recv};
}

Status FakeNetPlugin::enter(Call call) {
  CallScript& s = script(call);
  ++s.calls;
  return s.fail_at != 0 && s.calls >= s.fail_at && s.calls - s.fail_at < s.fail_times ? s.failure : Status::ok();
}

bool FakeNetPlugin::not_yet(Call call) {
  CallScript& s = script(call);
  if (s.not_yet == 0) return false;
  --s.not_yet;
  return true;
}

Status FakeNetPlugin::refuse(const char* operation, const char* why) {
  misuse_.push_back(concat(operation, ": ", why));
  return plugin_refused(operation, why);
}

FakeNetPlugin::End* FakeNetPlugin::end_of(uintptr_t comm, Direction direction) {
  if (comm == 0 || comm > ends_.size()) return nullptr;
  End& end = ends_[comm - 1];
  return end.open && end.direction == direction ? &end : nullptr;
}

uintptr_t FakeNetPlugin::add_end(Direction direction, size_t wire) {
  End& end = ends_.emplace_back();
  end.direction = direction;
  end.index = ends_.size() - 1;
  end.wire = wire;
  end.requests.resize(options_.queue_depth);
  return comm_number(end.index);
}

Result<DeviceProperties> FakeNetPlugin::properties(int dev) {
  if (dev < 0 || dev >= options_.devices) return plugin_refused("properties", "no such device");
  DeviceProperties p;
  p.name = concat("fake", dev);
  p.host_memory = p.cuda_memory = true;
  p.speed_mbps = 10000;
  p.max_comms = 65536;
  p.max_recvs = 1;
  p.net_device_type = NetDeviceType::kUnpack;
  p.net_device_version = 7;
  return p;
}

Result<ListenComm> FakeNetPlugin::listen(int dev, Handle& handle) {
  TCPX_RETURN_IF_ERROR(enter(Call::kListen));
  listeners_.emplace_back().dev = dev;
  handle = {};
  const uint64_t number = listeners_.size();
  std::memcpy(handle.bytes.data(), &number, sizeof number);
  return ListenComm{comm_number(listeners_.size() - 1)};
}

Result<std::optional<SendComm>> FakeNetPlugin::try_connect(int dev, Handle& handle) {
  TCPX_RETURN_IF_ERROR(enter(Call::kConnect));
  uint64_t listener = 0, scratch = 0;
  std::memcpy(&listener, handle.bytes.data(), sizeof listener);
  std::memcpy(&scratch, handle.bytes.data() + kScratchOffset, sizeof scratch);
  const auto pending = std::find(connecting_.begin(), connecting_.end(), scratch);
  if (scratch != 0 && pending == connecting_.end()) return refuse("connect", "the handle was used for another connection");
  if (listener == 0 || listener > listeners_.size()) return plugin_refused("connect", "not a handle");
  if (scratch == 0) {
    scratch = next_scratch_++;
    connecting_.push_back(scratch);
    std::memcpy(handle.bytes.data() + kScratchOffset, &scratch, sizeof scratch);
  }
  bool reaches = true;
  if (way) {
    TCPX_ASSIGN_OR_RETURN(reaches, way(dev, listeners_[listener - 1].dev));
  }
  if (not_yet(Call::kConnect) || !reaches) return std::optional<SendComm>();
  std::erase(connecting_, scratch);  // the stale value stays in the handle
  wires_.emplace_back();
  listeners_[listener - 1].wires.push_back(wires_.size() - 1);
  return std::optional(SendComm{add_end(Direction::kSend, wires_.size() - 1)});
}

Result<std::optional<RecvComm>> FakeNetPlugin::try_accept(ListenComm comm, DeviceHandleStorage&) {
  TCPX_RETURN_IF_ERROR(enter(Call::kAccept));
  Listener& listener = listeners_[static_cast<uintptr_t>(comm) - 1];
  if (!listener.open) return refuse("accept", "the listener is closed");
  if (listener.accepted) return refuse("accept", "one accept per listener");
  if (not_yet(Call::kAccept) || listener.wires.empty()) return std::optional<RecvComm>();
  listener.accepted = true;
  return std::optional(RecvComm{add_end(Direction::kRecv, listener.wires.front())});
}

Result<MemoryHandle> FakeNetPlugin::add_registration(End* end, void* data, size_t bytes, MemoryType type,
                                                     std::shared_ptr<const RangeList> list) {
  TCPX_RETURN_IF_ERROR(enter(Call::kRegister));
  if (end == nullptr) return refuse("register", "no such comm");
  if (type == MemoryType::kCuda && reinterpret_cast<uintptr_t>(data) % kPageBytes != 0) {
    return plugin_refused("register", "not aligned to 4096");
  }
  if (type == MemoryType::kCuda && bytes % kPageBytes != 0) return refuse("register", "no whole pages");
  registrations_.push_back({next_registration_, end->index, static_cast<std::byte*>(data), bytes, type, std::move(list)});
  OpenCounts::instance().add(kRegistrations, 1);
  return MemoryHandle{next_registration_++};
}

Status FakeNetPlugin::drop_registration(End* end, MemoryHandle handle) {
  TCPX_RETURN_IF_ERROR(enter(Call::kDeregister));
  if (end == nullptr) return refuse("deregister", "no such comm");
  const auto dropped =
      std::erase_if(registrations_, [&](const Registration& r) { return r.id == static_cast<uintptr_t>(handle); });
  if (dropped != 1) return refuse("deregister", "no such registration");
  OpenCounts::instance().add(kRegistrations, -1);
  return Status::ok();
}

Result<std::optional<Request>> FakeNetPlugin::post(Call call, End* end, std::byte* data, size_t bytes, int tag,
                                                   MemoryHandle handle) {
  TCPX_RETURN_IF_ERROR(enter(call));
  const char* operation = call == Call::kSend ? "isend" : "irecv";
  if (end == nullptr) return refuse(operation, "no such comm");
  const auto r = std::find_if(registrations_.begin(), registrations_.end(),
                              [&](const Registration& entry) { return entry.id == static_cast<uintptr_t>(handle); });
  if (r == registrations_.end()) return refuse(operation, "the memory is not registered");
  const auto off = static_cast<size_t>(data - r->data);
  if (off > r->bytes || bytes > r->bytes - off) return refuse(operation, "beyond the registered memory");
  if (not_yet(call)) return std::optional<Request>();
  const auto is_listed = [&](uint64_t number) {
    return call == Call::kRecv && (number == end->end ? r->type : end->at(number).type) == MemoryType::kCuda;
  };
  bool any_listed = false;
  for (uint64_t number = end->begin; number <= end->end; ++number) any_listed |= is_listed(number);
  if (end->end - end->begin >= (any_listed ? kQueueDepth : options_.queue_depth))
    return refuse(operation, "unable to allocate requests");
  FakeRequest& request = end->at(end->end);
  request.state = RequestState::kPosted;
  request.data = data;
  request.bytes = bytes;
  request.type = r->type;
  request.memory_list = r->list;
  tags_.push_back(tag);
  return std::optional(Request{request_number(end->index, end->end++ % end->requests.size())});
}

Status FakeNetPlugin::run_engine(End& end) {
  Wire& wire = wires_[end.wire];
  for (uint64_t n = end.begin; n != end.end; ++n) {
    if (end.at(n).state != RequestState::kPosted) continue;
    end.at(n).state = RequestState::kActive;
    break;  // one per call
  }
  for (uint64_t n = end.begin; n != end.end; ++n) {
    FakeRequest& request = end.at(n);
    if (request.state == RequestState::kTransmitting && request.delay > 0) {
      --request.delay;
      break;
    }
    if (request.state != RequestState::kActive) continue;
    if (end.direction == Direction::kSend) {
      if (wire.receiver_closed) return plugin_peer_gone("test");
      std::vector<std::byte> message;
      for (const iovec& part : parts_of(request)) {
        const auto* const begin = static_cast<const std::byte*>(part.iov_base);
        message.insert(message.end(), begin, begin + part.iov_len);
      }
      wire.messages.push_back(std::move(message));
    } else if (!wire.messages.empty()) {
      if (!attach_message(end, request)) break;
      wire.messages.pop_front();
    } else if (wire.sender_closed) {
      return plugin_peer_gone("test");
    } else {
      break;
    }
    request.delay = random(options_.max_delay_tests);
    request.state = RequestState::kTransmitting;
    if (end.direction == Direction::kRecv && wire.messages.empty() && wire.sender_closed && !wire.end_seen) {
      wire.end_seen = true;  // the end was read together with the last message
      return plugin_peer_gone("test");
    }
    break;  // one per call
  }
  return Status::ok();
}

// The places of a request's bytes.
std::vector<iovec> FakeNetPlugin::parts_of(const FakeRequest& request) {
  std::vector<iovec> parts;
  if (request.memory_list == nullptr) {
    parts.push_back({request.data, request.bytes});
  } else {
    request.memory_list->append_to(parts, static_cast<uint64_t>(request.data - request.memory_list->begin()), request.bytes);
  }
  return parts;
}

bool FakeNetPlugin::attach_message(End& end, FakeRequest& request) {
  const std::vector<std::byte>& message = wires_[end.wire].messages.front();
  request.list.clear();
  request.pages.clear();
  if (request.type == MemoryType::kHost) {
    auto from = message.begin();
    for (const iovec& part : parts_of(request)) {
      const auto bytes = std::min(static_cast<ptrdiff_t>(part.iov_len), message.end() - from);
      std::copy_n(from, bytes, static_cast<std::byte*>(part.iov_base));
      from += bytes;
    }
  } else {
    for (size_t done = 0; done < message.size();) {
      if (free_pages_.empty()) {  // wait for pages, having taken none
        free_pages_.insert(free_pages_.end(), request.pages.begin(), request.pages.end());
        return false;
      }
      const uint32_t page = free_pages_.back();
      free_pages_.pop_back();
      request.pages.push_back(page);
      const uint32_t skip = options_.ragged_fragments ? random(options_.page_bytes / 4) : 0;
      uint32_t len = options_.page_bytes - skip;
      if (options_.ragged_fragments) len -= random(len / 2);
      len = static_cast<uint32_t>(std::min<size_t>(len, message.size() - done));
      const uint32_t src_off = page * options_.page_bytes + skip;
      std::copy_n(message.begin() + static_cast<ptrdiff_t>(done), len, pool_.begin() + src_off);
      request.list.push_back({src_off, len, done});
      done += len;
    }
    if (options_.shuffle_fragments) std::shuffle(request.list.begin(), request.list.end(), rng_);
  }
  request.received = {
      .bytes = message.size(), .fragments = nullptr, .fragment_count = 0, .in_place = request.type == MemoryType::kHost};
  if (rewrite) rewrite(messages_, request.received, request.list);
  ++messages_;
  request.received.fragments = request.list.data();
  request.received.fragment_count = std::max<uint64_t>(request.received.fragment_count, request.list.size());
  return true;
}

Result<Completion> FakeNetPlugin::test(Request request) {
  const auto raw = static_cast<uintptr_t>(request);
  const size_t index = (raw >> 8) - 1;
  if (index >= ends_.size() || !ends_[index].open) return refuse("test", "no such comm");
  End& end = ends_[index];
  TCPX_RETURN_IF_ERROR(enter(end.direction == Direction::kSend ? Call::kTestSend : Call::kTestRecv));
  FakeRequest& tested = end.requests[raw & 0xff];
  if (tested.state == RequestState::kFree) return refuse("test", "no such request");
  if (tested.state == RequestState::kDone) misuse_.push_back("test: completion is reported once");
  if (end.direction == Direction::kRecv && false_peer_gone_ > 0) {
    --false_peer_gone_;
    return plugin_peer_gone("test");
  }
  TCPX_RETURN_IF_ERROR(run_engine(end));
  uint64_t oldest = end.begin;
  while (oldest != end.end && end.at(oldest).state == RequestState::kDone) ++oldest;
  if (oldest == end.end) return Completion{};
  if (&end.at(oldest) != &tested) {
    misuse_.push_back("test: not the oldest request");
    if (end.at(oldest).state == RequestState::kTransmitting) return plugin_refused("test", "not the oldest request");
    return Completion{};
  }
  if (tested.state != RequestState::kTransmitting || tested.delay > 0) return Completion{};
  tested.state = RequestState::kDone;
  tested.posts_when_done = end.end;
  if (end.direction == Direction::kSend) {
    tested.state = RequestState::kFree;
    ++end.begin;
  }
  return Completion{.done = true};
}

Result<ReceivedMessage> FakeNetPlugin::received(Request request) {
  TCPX_RETURN_IF_ERROR(enter(Call::kReceived));
  const auto raw = static_cast<uintptr_t>(request);
  const End& end = ends_[(raw >> 8) - 1];
  const FakeRequest& r = end.requests[raw & 0xff];
  if (r.state != RequestState::kDone) return refuse("received", "the request is not done");
  if (r.posts_when_done != end.end) return refuse("received", "the comm has posted again");
  return r.received;
}

Status FakeNetPlugin::consumed(RecvComm comm, Request request) {
  TCPX_RETURN_IF_ERROR(enter(Call::kConsumed));
  End* end = end_of(static_cast<uintptr_t>(comm), Direction::kRecv);
  if (end == nullptr) return refuse("irecvConsumed", "no such comm");
  FakeRequest& r = end->requests[static_cast<uintptr_t>(request) & 0xff];
  if (end->begin == end->end || &end->at(end->begin) != &r) return refuse("irecvConsumed", "not the oldest request");
  if (r.state != RequestState::kDone) return refuse("irecvConsumed", "the request is not done");
  for (const uint32_t page : r.pages) {
    std::fill_n(pool_.begin() + static_cast<ptrdiff_t>(size_t{page} * options_.page_bytes), options_.page_bytes, kPoison);
    free_pages_.push_back(page);
  }
  r.state = RequestState::kFree;
  ++end->begin;
  return Status::ok();
}

Result<BouncePool> FakeNetPlugin::bounce_pool(const DeviceHandleStorage&, const MemoryOps&, CopyLane&) {
  TCPX_RETURN_IF_ERROR(enter(Call::kBouncePool));
  return pool();
}

Status FakeNetPlugin::close_end(End* end) {
  TCPX_RETURN_IF_ERROR(enter(Call::kClose));
  if (end == nullptr) return refuse("close", "no such comm");
  end->open = false;
  // They go with a comm that is closed with requests outstanding. From any other one its user has forgotten to take them back: they
  // count as open for ever.
  const auto gone = std::erase_if(registrations_, [&](const Registration& r) { return r.end == end->index; });
  if (end->begin != end->end) OpenCounts::instance().add(kRegistrations, -static_cast<int64_t>(gone));
  Wire& wire = wires_[end->wire];
  (end->direction == Direction::kSend ? wire.sender_closed : wire.receiver_closed) = true;
  for (FakeRequest& request : end->requests) {
    if (request.state == RequestState::kDone || request.state == RequestState::kTransmitting) {
      free_pages_.insert(free_pages_.end(), request.pages.begin(), request.pages.end());
    }
  }
  return Status::ok();
}

Status FakeNetPlugin::close(ListenComm comm) {
  TCPX_RETURN_IF_ERROR(enter(Call::kClose));
  Listener& listener = listeners_[static_cast<uintptr_t>(comm) - 1];
  if (!std::exchange(listener.open, false)) return refuse("close", "no such listener");
  return Status::ok();
}

Result<MemoryHandle> FakeNetPlugin::register_memory(SendComm comm, void* data, size_t bytes, MemoryType type) {
  return add_registration(end_of(static_cast<uintptr_t>(comm), Direction::kSend), data, bytes, type);
}
Result<MemoryHandle> FakeNetPlugin::register_memory(RecvComm comm, void* data, size_t bytes, MemoryType type) {
  return add_registration(end_of(static_cast<uintptr_t>(comm), Direction::kRecv), data, bytes, type);
}
Result<MemoryHandle> FakeNetPlugin::register_list(SendComm comm, std::shared_ptr<const RangeList> list) {
  ++lists_;
  return add_registration(end_of(static_cast<uintptr_t>(comm), Direction::kSend), list->begin(), list->bytes(), MemoryType::kHost,
                          list);
}
Result<MemoryHandle> FakeNetPlugin::register_list(RecvComm comm, std::shared_ptr<const RangeList> list) {
  ++lists_;
  return add_registration(end_of(static_cast<uintptr_t>(comm), Direction::kRecv), list->begin(), list->bytes(), MemoryType::kHost,
                          list);
}
Status FakeNetPlugin::deregister_memory(SendComm comm, MemoryHandle handle) {
  return drop_registration(end_of(static_cast<uintptr_t>(comm), Direction::kSend), handle);
}
Status FakeNetPlugin::deregister_memory(RecvComm comm, MemoryHandle handle) {
  return drop_registration(end_of(static_cast<uintptr_t>(comm), Direction::kRecv), handle);
}
Result<std::optional<Request>> FakeNetPlugin::try_send(SendComm comm, const void* data, size_t bytes, int tag,
                                                       MemoryHandle handle) {
  // The fake only reads through it.
  auto* bytes_to_read = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  return post(Call::kSend, end_of(static_cast<uintptr_t>(comm), Direction::kSend), bytes_to_read, bytes, tag, handle);
}
Result<std::optional<Request>> FakeNetPlugin::try_recv(RecvComm comm, void* data, size_t bytes, int tag, MemoryHandle handle) {
  return post(Call::kRecv, end_of(static_cast<uintptr_t>(comm), Direction::kRecv), static_cast<std::byte*>(data), bytes, tag,
              handle);
}
Status FakeNetPlugin::close(SendComm comm) {
  return close_end(end_of(static_cast<uintptr_t>(comm), Direction::kSend));
}
Status FakeNetPlugin::close(RecvComm comm) {
  return close_end(end_of(static_cast<uintptr_t>(comm), Direction::kRecv));
}

}  // namespace tcpx::testing
