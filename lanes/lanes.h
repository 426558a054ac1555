// Lanes: all lanes of one connection. It chooses the lane for each transfer: the sender makes an offer, the receiver takes the best
// way that both ends have, and names it in its Go. The ways, best first:
//
//   pull     on one host: the receiver copies out of the sender's memory, and sends the Go when it has
//   ring     on one host: through memory that both ends share
//   network  asked last, because registering and staging memory can cost much
//
// A connection that has no way on one host may be eager (wire/messages.h): then the sender begins before the Go, and decides the
// order of the jobs.
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

/// The ways that a sender can take for the bytes of a transfer.
struct Offer {
  Packing packing = Packing::kWhole;  ///< over the network
  std::vector<WireSource> sources;    ///< on this host; empty: over the network only
};

/// One thread at a time: the one that makes progress. The GPU must be current.
class Lanes {
 public:
  /// @param host null: the peer shares no memory with this end. All references and `host` must outlive this
  Lanes(std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv, const LaneParts& net, HostPeer* host,
        const PullParts& on_host, ControlStream& stream, bool eager);

  // Sender.
  /// Call before telling the peer of a transfer, while the transfer can still be refused on its own.
  /// @param on_host false: over the network only
  /// @return the error of the plugin or the allocator if the bytes cannot leave in any way
  Result<Offer> offer(std::span<const HeldRange> ranges, uint64_t bytes, bool on_host = true);
  /// For the network only. @return `wanted`, or kPacked; errors as for `offer`
  Result<Packing> prepare_send(std::span<const HeldRange> ranges, Packing wanted) { return net_send_.prepare(ranges, wanted); }
  /// Checks the way that a Go names for offered bytes. @param best way_on_host of the offer
  /// @return what is wrong with it; empty: nothing
  std::string_view objection_to(Packing way, std::span<const HeldRange> ranges, Packing best) const;
  /// Sends after the peer's Go, once `objection_to` had none. @param job its packing is the way @param of_read the peer reads
  void send(std::unique_ptr<Job> job, bool of_read);
  /// Sends over the network without a Go, on an eager connection.
  void send_begun(std::unique_ptr<Job> job) { net_send_.push(std::move(job)); }
  /// Bytes of all jobs that the network has not sent yet.
  uint64_t bytes_to_send() const { return net_send_.bytes(); }

  // Receiver.
  /// Chooses the way for bytes that the peer offers with these sources. @param over_network their packing over the network; kWhole becomes
  /// kPacked where `to` is several ranges
  /// @return the way for the Go; errors as for `offer`
  Result<Packing> take(std::span<const HeldRange> to, const WireArray<WireSource>& sources, Packing over_network);
  /// For the network only. @return `wanted`, or kPacked; errors as for `offer`
  Result<Packing> prepare_recv(std::span<const HeldRange> ranges, Packing wanted) { return net_recv_.prepare(ranges, wanted); }
  /// Gives the job to the lane that `take` chose. The Go is sent now, or for a pull at its end. @param go names that way
  void receive(std::unique_ptr<Job> job, const WireArray<WireSource>& sources, const GoFrame& go);
  /// Receives a transfer that the peer has begun without a Go.
  void receive_begun(std::unique_ptr<Job> job) { net_recv_.push(std::move(job)); }
  /// Eager connection: the peer begins a transfer after its Go. @return false: no such transfer waits
  bool begin(uint64_t number, bool of_read) { return net_recv_.begin(number, of_read); }
  /// Eager connection: the peer will not begin a write after its Go. @return the write's job; null: no such write waits
  std::unique_ptr<Job> take_awaited_write(uint64_t number) { return net_recv_.take_awaited_write(number); }

  // Frames about memory that an end shares with the other. @return kProtocol: a correct peer would not send this
  Status on(const ShareFrame& frame) { return pull_.on(frame); }
  Status on(const UnshareFrame& frame) { return frame.gone ? sources_.on(frame) : pull_.on(frame); }
  /// True when `tell_gone` has something to tell.
  bool has_gone() const { return pull_.has_gone(); }
  /// Tells the peer which of its shares are no longer mapped here. @return true when there was one
  bool tell_gone() { return pull_.tell_gone(); }
  /// True while the peer still maps a share that it was told to unmap.
  bool is_mapped(uint64_t share) const { return sources_.is_mapped(share); }

  /// All lanes, in the order in which they make progress.
  const auto& all() const { return all_; }

  // As in Lane, for all lanes together.
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
  /// One line for each lane that is not idle, with a line break before it.
  std::string flight_record() const;
  bool serves(MemoryId region) const;
  /// @return shares of the region that the peer has been told to unmap
  std::vector<uint64_t> forget(MemoryId region);

  /// Releases what both ends share. Call when the connection has ended and all lanes are closed.
  void close();

 private:
  BulkRing* bulk_ring(bool own) const { return host_ == nullptr ? nullptr : &host_->area.bulk_ring(own == host_->area.first()); }

  HostPeer* const host_;
  const PullParts on_host_;

  ControlStream& stream_;
  const bool eager_;
  bool declined_ = false;  // a peer on this host has chosen the network, so offers prepare it, too
  NetLane net_send_, net_recv_;
  RingLane ring_send_, ring_recv_;
  Sources sources_;
  PulledLane pulled_;
  PullLane pull_;
  const std::array<Lane*, 6> all_{&net_send_, &net_recv_, &ring_send_, &ring_recv_, &pulled_, &pull_};
};

}  // namespace tcpx
