// ServedLinks: an endpoint's links, by connection, as the one that makes progress serves them: in each turn those that have
// something to do, now and then all of them, for deadlines and for what has ended.
//
//   in use <--retire, revive--> kept for a while, in case somebody asks for the connection again
//     |                                |
//     +---- close, or too long --------+--> closing --> gone, when nothing touches any memory any more
//
// A link that was let in and not claimed goes by itself once it has ended, for nobody has its id to remove it. A few are left
// behind for a while when sends of their peers can still be received.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "endpoint/link.h"
#include "endpoint/wakeable_epoll.h"

namespace tcpx {

/// One thread at a time: the one that makes progress. The GPU must be current.
class ServedLinks {
 public:
  /// Interval of looks at links without an event: deadlines, a peer that is gone.
  static constexpr std::chrono::milliseconds kLookEvery{20};

  /// @param forget called with a connection whose link goes by itself
  ServedLinks(const EndpointConfig& config, OperationTable& operations, WakeableEpoll& events, std::function<void(ConnId)> forget)
      : config_(config), operations_(operations), events_(events), forget_(std::move(forget)) {}

  /// An id that no connection has had.
  ConnId new_id() const { return ConnId{last_conn_ + 1}; }
  /// Takes the place of the link that its connection has now, if there is one. @param unclaimed let in, and nobody knows of it
  /// @return its number, which tells it from other links of the connection
  uint64_t add(std::unique_ptr<Link> link, bool unclaimed = false);
  /// From now on somebody knows of it. @return nullptr: it has ended, and left nothing
  const Link* claim(ConnId conn);
  /// It is there and of use.
  bool is_alive(ConnId conn) const;
  /// Takes a connection into use again that was kept. @return false: it has ended
  bool revive(ConnId conn);
  /// Nobody uses the connection any more. @param keep for a while
  void retire(ConnId conn, bool keep);
  void close(ConnId conn);
  void close_all();
  void clear() { links_.clear(); }

  /// Gives an operation to its link, or ends it when that is gone.
  void submit(Operation& operation);
  /// Gives a notification to its link, or drops it when that is gone.
  void notify(std::unique_ptr<Notification> notification);
  /// Moves along what has something to do. @return true when something advanced
  bool turn();
  /// Moves one along.
  void progress(ConnId conn);
  /// Something is under way that no event will announce.
  bool needs_polling() const;
  uint64_t chunks_in_flight() const;
  /// From now on whatever comes ends a sleep on the events. @return true when something has come already
  bool prepare_sleep();
  /// After a sleep, by the thread that slept.
  void end_sleep();

  /// Fails the links whose peers use the region. @return false: there is none
  bool fail_those_that_serve(MemoryId region);
  /// Memory that a peer maps and has been told to unmap.
  struct Mapped {
    ConnId conn;
    uint64_t link;  ///< which of the connection's links
    uint64_t share;
  };
  /// Registrations with the plugin go before the application may free the memory. @return what peers still map of it
  std::vector<Mapped> forget(MemoryId region);
  /// Leaves only those that peers still map.
  void look_at(std::vector<Mapped>& mapped);

  bool empty() const { return links_.empty(); }
  /// The reason why nothing is taken for the connection.
  Status why_ended(ConnId conn) const;
  std::vector<ConnectionStats> stats() const;
  /// Sums of links that are gone.
  const ConnectionStats& ended() const { return ended_; }
  std::string flight_record() const;

 private:
  struct Served {
    std::unique_ptr<Link> link;
    uint64_t number = 0;
    bool unclaimed = false;
    bool watched = false;   // by epoll
    bool readable = false;  // in this turn
    bool has_work = false;  // an operation has come
    bool removed = false;   // goes when it is closed
    std::optional<TimePoint> idle_since;
  };

  Served* find(ConnId conn);
  Served* find(ConnId conn, uint64_t number);
  void watch(Served& served, bool on);
  void mark_readable();
  void look_after();
  void close_longest_idle();
  bool keep_counts(const Link& link);

  const EndpointConfig& config_;
  OperationTable& operations_;
  WakeableEpoll& events_;
  const std::function<void(ConnId)> forget_;
  std::map<ConnId, Served> links_;
  ConnectionStats ended_;
  uint64_t last_conn_ = 0, last_number_ = 0;
  TimePoint next_look_;
  size_t sockets_ = 0;   // watched ones that carry bytes
  bool asleep_ = false;  // since prepare_sleep
  bool woken_ = false;   // nobody has looked at the events since
};

}  // namespace tcpx
