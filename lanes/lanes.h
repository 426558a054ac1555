// Lanes: all lanes of one connection. What concerns each of them is one loop, here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "lanes/net/net_lane.h"
#include "lanes/pull/pull_lane.h"
#include "lanes/pull/sources.h"
#include "lanes/ring/ring_lane.h"
#include "wire/control_stream.h"

namespace tcpx {

/// One thread at a time: the one that makes progress. The GPU must be current.
class Lanes {
 public:
  /// @param host null: the peer shares no memory with this end. What is given by reference or pointer must outlive this
  Lanes(std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv, const LaneParts& net, HostPeer* host,
        const PullParts& on_host, ControlStream& stream);

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

 public:
  NetLane net_send, net_recv;
  RingLane ring_send, ring_recv;
  Sources sources;
  PullLane pulls;

 private:
  const std::array<Lane*, 5> all_{&net_send, &net_recv, &ring_send, &ring_recv, &pulls};
};

}  // namespace tcpx
