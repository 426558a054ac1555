// Lanes: all lanes of one connection. What concerns each of them is one loop, here, and here alone it is decided which of them moves
// what: the sender offers, the receiver takes the best way that both have, and says Go.
//
//   pull     the receiver copies out of the sender's memory, on one host; its Go says that it has
//   ring     memory that both share, on one host
//   network  the last that is asked: to register and stage memory may cost much
//
// Without a way on one host a connection may be eager (wire/messages.h): then its sender begins before the Go, and the two ends agree
// on the order by what the sender says.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "lanes/net/net_lane.h"
#include "lanes/pull/pull_lane.h"
#include "lanes/pull/sources.h"
#include "lanes/ring/ring_lane.h"
#include "wire/control_stream.h"

namespace tcpx {

/// What a sender tells the receiver of its bytes.
struct Offer {
  Packing packing = Packing::kWhole;  ///< over the network
  std::vector<WireSource> sources;    ///< on this host; none: over the network alone
};

/// One thread at a time: the one that makes progress. The GPU must be current.
class Lanes {
 public:
  /// @param host null: the peer shares no memory with this end. What is given by reference or pointer must outlive this
  Lanes(std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv, const LaneParts& net, HostPeer* host,
        const PullParts& on_host, ControlStream& stream, bool eager);

  // Sender.
  /// To be asked before the peer is told of a transfer, while it can still be refused alone.
  /// @param on_host false: over the network alone
  /// @return the error of the plugin, or of the allocator: it cannot leave in any way
  Result<Offer> offer(std::span<const HeldRange> ranges, uint64_t bytes, bool on_host = true);
  /// Over the network. @return `wanted`, or kPacked; errors as of `offer`
  Result<Packing> prepare_send(std::span<const HeldRange> ranges, Packing wanted) { return net_send_.prepare(ranges, wanted); }
  /// What is wrong with a Go for bytes that were offered; empty: nothing. @param best way_on_host of their offer
  std::string_view objection_to(Packing way, std::span<const HeldRange> ranges, Packing best) const;
  /// Behind the peer's Go, to which there is no objection. @param job its packing is the way @param of_read of the peer
  void send(std::unique_ptr<Job> job, bool of_read);
  /// Before the peer's Go.
  void send_begun(std::unique_ptr<Job> job) { net_send_.push(std::move(job)); }
  /// Of jobs that the network has not sent yet.
  uint64_t bytes_to_send() const { return net_send_.bytes(); }

  // Receiver.
  /// How bytes come that the peer offers with these sources. @param over_network their packing there
  /// @return what the Go names; errors as of `offer`
  Result<Packing> take(std::span<const HeldRange> to, const WireArray<WireSource>& sources, Packing over_network);
  /// Over the network. @return `wanted`, or kPacked; errors as of `offer`
  Result<Packing> prepare_recv(std::span<const HeldRange> ranges, Packing wanted) { return net_recv_.prepare(ranges, wanted); }
  /// Gives the job to the lane that `take` has chosen, and tells the peer when it is due. @param go its packing is that
  void receive(std::unique_ptr<Job> job, const WireArray<WireSource>& sources, const GoFrame& go);
  /// What the peer has begun without a Go.
  void receive_begun(std::unique_ptr<Job> job) { net_recv_.push(std::move(job)); }
  /// The peer begins what it was told to, on an eager connection. @return false: none of that name waits for it
  bool begin(uint64_t number, bool of_read) { return net_recv_.begin(number, of_read); }
  /// The peer does not begin a write of its own. @return null: none of that number waits for it
  std::unique_ptr<Job> take_awaited_write(uint64_t number) { return net_recv_.take_awaited_write(number); }

  // Memory of this host that an end shares. @return kProtocol: no peer of ours says that
  Status on(const ShareFrame& frame) { return pull_.on(frame); }
  Status on(const UnshareFrame& frame) { return frame.gone ? sources_.on(frame) : pull_.on(frame); }
  /// The peer is to be told that something is not mapped here any more.
  bool has_gone() const { return pull_.has_gone(); }
  /// Tells it. @return true when there was something
  bool tell_gone() { return pull_.tell_gone(); }
  /// The peer was told to unmap it, and has not said yet that it has.
  bool is_mapped(uint64_t share) const { return sources_.is_mapped(share); }

  /// In the order in which they are moved along.
  const auto& all() const { return all_; }

  // As those of Lane.
  bool idle() const;
  bool rests(TimePoint now) const;
  bool closed() const;
  void fail(const Status& reason);
  void abandon();
  bool can_move() const;
  uint32_t wants(TimePoint now) const;
  uint32_t take_told();
  uint64_t chunks_in_flight() const;
  void add_to(ConnectionStats& stats) const;
  /// Lines of those that are not idle, each behind a line break.
  std::string flight_record() const;
  bool serves(MemoryId region) const;
  /// @return shares of the region that the peer has been told to unmap
  std::vector<uint64_t> forget(MemoryId region);

  /// Once the connection has ended and all are closed: lets go of what both ends share.
  void close();

 private:
  BulkRing* bulk_ring(bool own) const { return host_ == nullptr ? nullptr : &host_->area.bulk_ring(own == host_->area.first()); }

  HostPeer* const host_;
  const PullParts on_host_;

  ControlStream& stream_;
  const bool eager_;
  bool declined_ = false;  // what was offered on the host: the peer asks for the network
  NetLane net_send_, net_recv_;
  RingLane ring_send_, ring_recv_;
  Sources sources_;
  PulledLane pulled_;
  PullLane pull_;
  const std::array<Lane*, 6> all_{&net_send_, &net_recv_, &ring_send_, &ring_recv_, &pulled_, &pull_};
};

}  // namespace tcpx
