// An end that leaves everything to the library's Endpoint, which moves things on a thread of its own: messages are operations,
// several started ahead, and this thread only waits for the oldest. Messages go to the peers in turn.
//
// One way, the operations are a send and a receive, or a write by the leader, or a read by the follower; an end only written
// to or read from advertises its memory in `allocate`, and the name travels as a notification.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/usable_cores.h"
#include "device/gpu_pattern.h"
#include "measure/end.h"
#include "measure/message_memory.h"
#include "measure/resources.h"
#include "net/plugin_loader.h"
#include "tcpx/endpoint.h"

namespace tcpx {
namespace {

constexpr uint64_t kSmallestShare = 100;  // of a message, to count a socket
constexpr Duration kAllocateLimit = std::chrono::seconds(20);

std::chrono::milliseconds remaining(Deadline deadline) {
  return std::chrono::milliseconds(deadline.poll_ms());
}

/// Range i of a vector is the part `position(i)` of its message: all of them, in an order without neighbours.
class Scattering {
 public:
  Scattering(uint64_t bytes, uint64_t range_bytes)
      : bytes_(bytes),
        range_bytes_(range_bytes == 0 ? bytes : range_bytes),
        count_(range_bytes_ == 0 ? 1 : (bytes + range_bytes_ - 1) / range_bytes_),
        stride_(count_ % kStride == 0 ? 1 : kStride) {}
  uint64_t count() const { return count_; }
  uint64_t off(uint64_t i) const { return i * stride_ % count_ * range_bytes_; }
  uint64_t bytes(uint64_t i) const { return std::min(range_bytes_, bytes_ - off(i)); }

 private:
  static constexpr uint64_t kStride = 1009;  // a prime
  uint64_t bytes_, range_bytes_, count_, stride_;
};

class EndpointEnd final : public BenchEnd {
 public:
  EndpointEnd(const EndSetup& setup, MessageMemory memory, std::vector<std::unique_ptr<Endpoint>> endpoints)
      : setup_(setup), memory_(std::move(memory)), endpoints_(std::move(endpoints)) {}

  Result<Handle> listen() override;
  Status connect(const Handle& other, Deadline deadline) override;
  Status accept(Deadline deadline) override;
  Status allocate(const RowSetup& row) override;
  Status prepare(uint64_t count) override;
  Result<Timing> run(const RoundWait& wait) override;
  Result<ComparedBytes> compare() override;
  Status close() override;
  std::string path() const override {
    const EndpointStats stats = endpoints_.front()->stats();
    return stats.connections.empty() ? "" : stats.connections.front().path;
  }

 private:
  /// Also of the follower's endpoints, which have one connection each.
  struct Peer {
    Endpoint* endpoint = nullptr;
    ConnId conn{};
    RemoteSlot remote{};
  };
  /// An endpoint with its registrations.
  struct Registered {
    std::optional<MemoryId> to_send, received;
  };
  /// One kind of operation on the messages of a round, in order.
  struct Way {
    bool sends = false;
    std::vector<OperationId> ids;                    // by slot
    uint64_t finished = 0, submitted = 0, last = 0;  // numbers of messages
    bool has_room() const { return submitted < last && submitted - finished < ids.size(); }
  };

  bool starts(bool send) const;
  void meet_progress() const;
  Status exchange_slots();
  Status register_memory();
  Status start(Way& way);
  Status finish(Way& way, Deadline deadline);
  Status stream(Way& way, Deadline deadline);
  Status play(Deadline deadline);
  Footprint footprint() const;
  void reset(Way& way) const;

  const EndSetup setup_;
  MessageMemory memory_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // of the leader: one
  std::vector<Registered> registered_ = std::vector<Registered>(endpoints_.size());
  std::vector<Peer> peers_;
  Way send_{.sends = true, .ids = {}}, receive_;
  std::vector<LocalRange> ranges_;  // reused
  std::vector<RemoteRange> remote_;
  Footprint alone_, connected_, unposted_, posted_;
};

Result<Handle> EndpointEnd::listen() {
  const std::vector<uint8_t> metadata = endpoints_.front()->get_metadata();
  TCPX_ASSIGN_OR_RETURN(const Endpoint::PeerAddress address, Endpoint::read_metadata(metadata));
  alone_ = footprint();
  Handle handle;
  std::memcpy(handle.bytes.data(), &address.port, sizeof address.port);
  return handle;
}

// Both ends are asked to connect once. The follower's call does all of it, because the leader has the one listener that counts.
Status EndpointEnd::connect(const Handle& other, Deadline deadline) {
  if (setup_.leads) return Status::ok();
  uint16_t port = 0;
  std::memcpy(&port, other.bytes.data(), sizeof port);
  for (const auto& endpoint : endpoints_) {
    TCPX_ASSIGN_OR_RETURN(const ConnId conn, endpoint->connect(setup_.peer.host(), setup_.peer_gpu, port, remaining(deadline)));
    peers_.push_back({.endpoint = endpoint.get(), .conn = conn});
  }
  connected_ = footprint();
  return Status::ok();
}

Status EndpointEnd::accept(Deadline deadline) {
  if (!setup_.leads) return Status::ok();
  while (peers_.size() < setup_.peers) {
    TCPX_ASSIGN_OR_RETURN(const Endpoint::Accepted accepted, endpoints_.front()->accept(remaining(deadline)));
    peers_.push_back({.endpoint = endpoints_.front().get(), .conn = accepted.conn});
  }
  connected_ = footprint();
  return Status::ok();
}

/// True when this end starts operations of that kind in the row.
bool EndpointEnd::starts(bool send) const {
  const RowSetup& row = memory_.row();
  if (row.pattern == Pattern::kIdle) return false;
  if (row.verb == Verb::kWrite) return send && setup_.leads;
  if (row.verb == Verb::kRead) return !send && !setup_.leads;
  return send ? memory_.sends() : memory_.receives();
}

Status EndpointEnd::allocate(const RowSetup& row) {
  TCPX_RETURN_IF_ERROR(memory_.allocate(row));
  TCPX_RETURN_IF_ERROR(register_memory());
  send_ = {.sends = true, .ids = std::vector<OperationId>(memory_.plan().slots())};
  receive_ = {.sends = false, .ids = std::vector<OperationId>(memory_.plan().slots())};
  return row.verb == Verb::kSend ? Status::ok() : exchange_slots();
}

// Anew for each row: the advertisements of the last one end with it.
Status EndpointEnd::register_memory() {
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    for (const auto& [buffer, id] :
         {std::pair(&memory_.to_send(), &registered_[i].to_send), std::pair(&memory_.received(), &registered_[i].received)}) {
      if (*id) TCPX_RETURN_IF_ERROR(endpoints_[i]->deregister(**id));
      id->reset();
      if (buffer->size() == 0) continue;
      TCPX_ASSIGN_OR_RETURN(const MemoryId made, endpoints_[i]->register_memory(buffer->data(), buffer->size(), setup_.memory));
      *id = made;
    }
  }
  return Status::ok();
}

Status EndpointEnd::exchange_slots() {
  const bool advertises = !starts(true) && !starts(false);
  const TestMemory& memory = setup_.leads ? memory_.to_send() : memory_.received();
  if (advertises) {
    for (size_t i = 0; i < peers_.size(); ++i) {
      const Registered& registered = registered_[i % registered_.size()];
      const LocalRange all{
          .memory = setup_.leads ? *registered.to_send : *registered.received, .data = memory.data(), .bytes = memory.size()};
      TCPX_ASSIGN_OR_RETURN(const RemoteSlot slot, peers_[i].endpoint->advertise(peers_[i].conn, all));
      NotifyMsg message{.name = "slot", .msg = std::string(kRemoteSlotBytes, '\0')};
      std::memcpy(message.msg.data(), &slot, sizeof slot);
      TCPX_RETURN_IF_ERROR(peers_[i].endpoint->notify(peers_[i].conn, message));
    }
    return Status::ok();
  }
  Patience patience("exchange names of memory", Deadline::after(kAllocateLimit));
  size_t missing = peers_.size();
  while (missing > 0) {
    const size_t before = missing;
    for (const auto& endpoint : endpoints_) {
      for (const NotifyMsg& message : endpoint->get_notifs()) {
        for (Peer& peer : peers_) {
          if (peer.endpoint != endpoint.get() || peer.conn != message.conn || message.msg.size() != kRemoteSlotBytes) continue;
          std::memcpy(&peer.remote, message.msg.data(), sizeof peer.remote);
          --missing;
        }
      }
    }
    TCPX_RETURN_IF_ERROR(patience.after_turn(missing < before));
  }
  return Status::ok();
}

void EndpointEnd::reset(Way& way) const {
  way.finished = way.submitted = memory_.first();
  way.last = starts(way.sends) ? memory_.first() + memory_.count() : memory_.first();
}

// The target of writes hears from the other process that they may come and that they are in place. Both are certain, but the
// thread checker knows only what threads of one process tell each other, such as by the lock that this takes.
void EndpointEnd::meet_progress() const {
  for (const auto& endpoint : endpoints_) (void)endpoint->stats();
}

Result<ComparedBytes> EndpointEnd::compare() {
  meet_progress();
  return memory_.row().pattern == Pattern::kIdle ? ComparedBytes() : memory_.compare();
}

Status EndpointEnd::prepare(uint64_t count) {
  meet_progress();
  TCPX_RETURN_IF_ERROR(memory_.begin_round(count));
  reset(send_);
  reset(receive_);
  unposted_ = footprint();
  if (memory_.row().verb == Verb::kSend) {
    while (receive_.has_room()) TCPX_RETURN_IF_ERROR(start(receive_));
  }
  posted_ = footprint();
  meet_progress();
  return Status::ok();
}

Status EndpointEnd::start(Way& way) {
  const uint64_t message = way.submitted, sent_off = memory_.plan().content_off(message);
  const uint64_t received_off = memory_.plan().slot_off(message);
  const size_t peer_idx = message % peers_.size();
  const Peer& peer = peers_[peer_idx];
  const Registered& registered = registered_[peer_idx % registered_.size()];
  const RowSetup& row = memory_.row();
  std::byte* const local = way.sends ? memory_.to_send().data() + sent_off : memory_.received().data() + received_off;
  const uint64_t remote_off = way.sends ? received_off : sent_off;

  const Scattering parts(row.message_bytes, row.range_bytes);
  ranges_.resize(parts.count());
  for (uint64_t i = 0; i < parts.count(); ++i) {
    ranges_[i] = {
        .memory = way.sends ? *registered.to_send : *registered.received, .data = local + parts.off(i), .bytes = parts.bytes(i)};
  }
  if (row.verb != Verb::kSend) {
    remote_.resize(parts.count());
    for (uint64_t i = 0; i < parts.count(); ++i) remote_[i] = {.slot = peer.remote, .offset = remote_off + parts.off(i)};
  }
  const auto started = [&]() -> Result<OperationId> {
    if (row.verb == Verb::kWrite) return peer.endpoint->write_async(peer.conn, ranges_, remote_);
    if (row.verb == Verb::kRead) return peer.endpoint->read_async(peer.conn, ranges_, remote_);
    return way.sends ? peer.endpoint->send_async(peer.conn, ranges_) : peer.endpoint->recv_async(peer.conn, ranges_);
  }();
  if (!started.is_ok()) return started.status();
  way.ids[way.submitted++ % way.ids.size()] = *started;
  return Status::ok();
}

Status EndpointEnd::finish(Way& way, Deadline deadline) {
  const Peer& peer = peers_[way.finished % peers_.size()];
  TCPX_RETURN_IF_ERROR(peer.endpoint->wait(way.ids[way.finished % way.ids.size()], remaining(deadline)));
  ++way.finished;
  return Status::ok();
}

Status EndpointEnd::stream(Way& way, Deadline deadline) {
  while (way.finished < way.last) {
    while (way.has_room()) TCPX_RETURN_IF_ERROR(start(way));
    TCPX_RETURN_IF_ERROR(finish(way, deadline));
  }
  return Status::ok();
}

Status EndpointEnd::play(Deadline deadline) {
  while (receive_.finished < receive_.last) {
    if (setup_.leads) TCPX_RETURN_IF_ERROR(start(send_));
    TCPX_RETURN_IF_ERROR(finish(receive_, deadline));
    if (!setup_.leads) TCPX_RETURN_IF_ERROR(start(send_));
    if (receive_.has_room()) TCPX_RETURN_IF_ERROR(start(receive_));
    TCPX_RETURN_IF_ERROR(finish(send_, deadline));
  }
  return Status::ok();
}

Result<Timing> EndpointEnd::run(const RoundWait& wait) {
  const Stopwatch watch;
  Timing timing;
  if (memory_.row().pattern == Pattern::kIdle) {
    std::this_thread::sleep_for(std::chrono::milliseconds(memory_.count()));
    timing = watch.stop();
  } else if (starts(true) || starts(false)) {
    const bool one_way = memory_.row().pattern == Pattern::kOneWay;
    TCPX_RETURN_IF_ERROR(one_way ? stream(starts(true) ? send_ : receive_, wait.deadline) : play(wait.deadline));
    timing = watch.stop();
  }
  timing.alone = alone_;
  timing.connected = connected_;
  timing.unposted = unposted_;
  timing.posted = posted_;
  timing.sockets = sockets_that_received(std::max<uint64_t>(1, memory_.row().message_bytes / kSmallestShare));
  return timing;
}

Status EndpointEnd::close() {
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    for (const auto& id : {registered_[i].to_send, registered_[i].received}) {
      if (id) TCPX_RETURN_IF_ERROR(endpoints_[i]->deregister(*id));
    }
  }
  endpoints_.clear();
  memory_.release();
  return Status::ok();
}

Footprint EndpointEnd::footprint() const {
  const Result<uint64_t> free_bytes = free_gpu_bytes(setup_.gpu);
  return {.resident_bytes = process_resident_bytes(), .free_gpu_bytes = free_bytes.is_ok() ? *free_bytes : 0};
}

}  // namespace

Result<std::unique_ptr<BenchEnd>> make_endpoint_end(const EndSetup& setup) {
  if (setup.peers < 1) return Status(Code::kInvalidArgument, "make endpoint end", "no peers");
  TCPX_ASSIGN_OR_RETURN(MessageMemory memory, MessageMemory::create(setup));
  EndpointConfig config{.gpu_idx = setup.gpu,
                        .listen_address = on_this_machine(setup.peer) ? kLoopback : "",
                        .plugin_path = *setup.plugin == '\0' ? kEmbedded : setup.plugin,
                        .same_host = setup.same_host};
  // Many endpoints of one process share its cores, and must not all of them poll.
  if (!setup.leads && setup.peers > 1) config.num_cpus = std::max(1u, usable_cores() / setup.peers);
  if (setup.inline_bytes >= 0) config.inline_bytes = static_cast<uint32_t>(setup.inline_bytes);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  while (endpoints.size() < (setup.leads ? 1 : setup.peers)) {
    TCPX_ASSIGN_OR_RETURN(std::unique_ptr<Endpoint> made, Endpoint::create(config));
    endpoints.push_back(std::move(made));
  }
  return std::unique_ptr<BenchEnd>(std::make_unique<EndpointEnd>(setup, std::move(memory), std::move(endpoints)));
}

}  // namespace tcpx
