// Lanes: all lanes of one connection. It chooses the lane for each transfer: the sender makes an offer, the receiver takes the best
// way that both ends have, and names it in its Go. The ways on one host come first, in the order of `ways_on_host`. The network is
// asked last, because registering and staging memory can cost much.
//
// A connection that has no way on one host may be eager (wire/messages.h): then the sender begins before the Go, and decides the
// order of the jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_sum.h"
#include "lanes/host_area.h"
#include "lanes/job_sums.h"
#include "lanes/lane.h"
#include "lanes/net/net_lane.h"
#include "wire/control_stream.h"

namespace tcpx {

/// The ways between two endpoints of one host, best first. A new way is one more entry.
std::vector<std::pair<Way, MakeLane>>& ways_on_host();

/// The ways that a sender can take for the bytes of a transfer.
struct Offer {
  Packing packing = Packing::kWhole;  ///< over the network
  std::vector<std::byte> others;      ///< WireOffers
  WaySet ways = 0;                    ///< those of `others`
};

/// One thread at a time: the one that makes progress. The GPU must be current.
class Lanes {
 public:
  /// @param host null: the peer shares no memory with this end. All references and `host` must outlive this
  /// @param sum_key of the checksums, the same at both ends; null: there are none
  Lanes(std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv, const LaneParts& net, HostPeer* host,
        const PullParts& on_host, ControlStream& stream, bool eager, const std::shared_ptr<const ByteSumKey>& sum_key);

  bool has_checksums() const { return !sums_.empty(); }

  // Sender.
  /// Prepares the ways on one host for ranges that an operation may need. @return false: threads do that; call again
  bool expect(std::span<const HeldRange> ranges);
  /// False while a thread prepares this end for these ranges: offer them later. @param wanted packing over the network
  bool is_ready_to_offer(std::span<const HeldRange> ranges, Packing wanted);
  /// True if the peer, as far as is known, gets these bytes sooner by an offer than in a frame, however few they are.
  bool beats_frames(std::span<const HeldRange> ranges);
  /// Call before telling the peer of a transfer, while the transfer can still be refused on its own.
  /// @param of how its Go will name it @param on_host false: over the network only
  /// @param uses of regions that ranges do not hold themselves
  /// @return the error of the plugin or the allocator if the bytes cannot leave in any way
  Result<Offer> offer(const OfferName& of, std::span<const HeldRange> ranges, uint64_t bytes, bool on_host = true,
                      std::span<const RegionUse> uses = {});
  /// For the network only. @return `wanted`, or kPacked; errors as for `offer`
  Result<Packing> prepare_send(std::span<const HeldRange> ranges, Packing wanted) { return net_send_.prepare(ranges, wanted); }
  /// Checks the way that a Go names. @param offered ways of the offer
  /// @return what is wrong with it; empty: nothing
  static std::string_view objection_to(const GoFrame& go, std::span<const HeldRange> ranges, WaySet offered);
  /// Sends after the peer's Go, once `objection_to` had none.
  void send(std::unique_ptr<Job> job, const GoFrame& go);
  /// Sends over the network without a Go, on an eager connection.
  void send_begun(std::unique_ptr<Job> job) { push(net_send_, std::move(job), {}); }
  /// As Lane::lease.
  void lease(MemoryRegistry& registry, ConnId conn, const SlotId& slot);
  /// Bytes of all jobs that the network has not sent yet.
  uint64_t bytes_to_send() const { return net_send_.bytes(); }

  // Receiver.
  /// False while a thread prepares this end for these ranges over the network. @param wanted as for `take`
  bool is_ready_to_take(std::span<const HeldRange> to, Packing wanted);
  /// Checks what the peer offers for so many bytes. @return kProtocol naming what a correct peer would not offer
  Status check(const WireOffers& offers, uint64_t bytes) const;
  /// Chooses the way for offered bytes. @param offers checked @param go gets the way, and the packing over the network
  /// @param over_network wanted packing; kWhole becomes kPacked where `to` is several ranges
  /// @return errors as for `offer`
  Status take(std::span<const HeldRange> to, const WireOffers& offers, Packing over_network, GoFrame& go);
  /// For the network only. @return `wanted`, or kPacked; errors as for `offer`
  Result<Packing> prepare_recv(std::span<const HeldRange> ranges, Packing wanted) { return net_recv_.prepare(ranges, wanted); }
  /// Gives the job to the lane that `take` chose. @param go as `take` made it; sent now or later
  void receive(std::unique_ptr<Job> job, const WireOffers& offers, const GoFrame& go);
  /// As Lane::push_leased.
  bool move_leased(std::unique_ptr<Job>& job, std::span<const WireRange> slots, bool writes);
  /// Receives a transfer that the peer has begun without a Go.
  void receive_begun(std::unique_ptr<Job> job) { net_recv_.push(std::move(job), {}, {}); }
  /// Eager connection: the peer begins a transfer after its Go. @return false: no such transfer waits
  bool begin(uint64_t number, bool of_read) { return net_recv_.begin(number, of_read); }
  /// Eager connection: the peer will not begin a write after its Go. @return the write's job; null: no such write waits
  std::unique_ptr<Job> take_awaited_write(uint64_t number) { return net_recv_.take_awaited_write(number); }

  /// Gives a message to its lane. @return kProtocol: a correct peer would not send this
  Status on(const LaneFrame& frame);

  /// All lanes, in the order in which they make progress.
  const std::vector<Lane*>& all() const { return all_; }
  /// Compares checksums of jobs that have ended. Call it after the lane's `progress`. @return true when something advanced
  bool compare_sums(const Lane& lane);
  /// As Lane::ended, without jobs whose checksums have not been compared.
  Job* ended(const Lane& lane) const;

  // As in Lane, for all lanes together.
  bool idle() const;
  bool rests(TimePoint now) const;
  /// True when each lane rests or is told.
  bool is_told(TimePoint now) const;
  bool closed() const;
  void fail(const Status& reason);
  void abandon();
  bool can_move() const;
  uint32_t wants(TimePoint now) const;
  uint64_t chunks_in_flight() const;
  /// Bytes of all jobs that are queued or under way over the network, in both directions.
  uint64_t network_bytes() const { return net_send_.bytes() + net_recv_.bytes(); }
  void add_to(ConnectionStats& stats) const;
  /// One line for each lane that is not idle, with a line break before it.
  std::string flight_record() const;
  bool serves(MemoryId region) const;
  void forget(MemoryId region);
  bool peer_holds(MemoryId region) const;
  bool is_read() const;

  /// Releases what both ends share. Call when the connection has ended and all lanes are closed.
  void close();

 private:
  Lane* find(Way way, bool receives) const;
  JobSums* sums_of(const Lane& lane) const;
  void push(Lane& lane, std::unique_ptr<Job> job, const GoFrame& go);
  Status receive_elsewhere(std::unique_ptr<Job>&& job, GoFrame go);

  HostPeer* const host_;
  const PullParts on_host_;
  ControlStream& stream_;
  const bool eager_;
  bool declined_ = false;  // a peer on this host has chosen the network, so offers prepare it, too
  bool pulls_gpu_ = true;  // as far as is known, the peer copies GPU memory of this end by itself
  NetLane net_send_, net_recv_;
  std::vector<std::unique_ptr<Lane>> near_;  // on one host: best first, of each way the sender and then the receiver
  std::vector<Lane*> all_{&net_send_, &net_recv_};
  std::vector<std::unique_ptr<JobSums>> sums_;  // of each lane in `all_`; empty: there are no checksums
};

}  // namespace tcpx
