// ServedLinks: an endpoint's links, by connection. In each turn it serves the links that have something to do, and every kLookEvery all
// of them, for deadlines and for links that have ended.
//
//   in use <--retire, revive--> kept for a while, in case somebody asks for the connection again
//     |                                |
//     +---- close, or idle too long ---+--> closing --> gone, when nothing touches any memory any more
//
// A link that was let in and not claimed is removed once it has ended, because nobody has its id to remove it. A few such links are
// kept for a while if sends of their peers can still be received.
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
  /// How often links without an event are served, for deadlines and peers that are gone.
  static constexpr std::chrono::milliseconds kLookEvery{20};
  /// Tag of the plugin's sockets in the events; no connection has it.
  static constexpr uint64_t kPluginTag = UINT64_MAX;

  /// @param forget called with a connection that nobody claimed when its link is removed. All must outlive this
  ServedLinks(const EndpointConfig& config, OperationTable& operations, WakeableEpoll& events, std::function<void(ConnId)> forget)
      : config_(config), operations_(operations), events_(events), forget_(std::move(forget)) {}

  /// An id that no connection has had.
  ConnId new_id() const { return ConnId{last_conn_ + 1}; }
  /// Adds a link, which replaces an earlier one of its connection. @param unclaimed let in, and no caller knows it yet
  /// @return its number, which tells it from other links of the connection
  uint64_t add(std::unique_ptr<Link> link, bool unclaimed = false);
  /// Marks a link as known to a caller. @return nullptr: it has ended, and left nothing to receive
  const Link* claim(ConnId conn);
  /// True if the connection has a link that takes operations.
  bool is_alive(ConnId conn) const;
  /// Puts a kept connection into use again. @return false: it has ended
  bool revive(ConnId conn);
  /// Call when nobody uses the connection any more. @param keep keep it for a while, so that it can be revived
  void retire(ConnId conn, bool keep);
  void close(ConnId conn);
  void close_all();
  void clear() { links_.clear(); }

  /// Gives an operation to its link, or ends it if the link is gone.
  void submit(Operation& operation);
  /// Gives a notification to its link, or drops it if the link is gone.
  void notify(std::unique_ptr<Notification> notification);
  /// Looks which sockets can be read, for the next turn, if that may tell something. @param and_plugins also while links only wait for
  /// the plugin's @return true when those (kPluginTag) can be read
  bool look_at_sockets(TimePoint now, bool and_plugins);
  /// Serves the links that have something to do. @param now as for the look before @return true when something advanced
  bool turn(TimePoint now);
  void progress(ConnId conn);
  /// As in Link, for any of them.
  bool needs_turns() const;
  bool needs_polling() const;
  uint64_t chunks_in_flight() const;
  uint64_t network_bytes() const;
  /// Makes whatever comes end a sleep on the events. @return true when something has come already
  bool prepare_sleep();
  /// After a sleep, by the thread that slept.
  void end_sleep();
  /// Lets the next look be a thorough one.
  void expect_readable() { woken_ = true; }

  /// Fails the links whose peers use the region. @return when the last of them was failed so, now or earlier; nullopt: there is no such link
  std::optional<TimePoint> fail_those_that_serve(MemoryId region);
  /// A link whose peer still maps memory that it has been told to unmap.
  struct Holder {
    ConnId conn;
    uint64_t link;  ///< number of the link
  };
  /// Gives back the region's registrations with plugins. Call before the application may free it. @return those who still map it
  std::vector<Holder> forget(MemoryId region);
  /// Removes those whose peers have let go of it.
  void look_at(std::vector<Holder>& holders, MemoryId region);

  bool empty() const { return links_.empty(); }
  /// Why the connection takes nothing any more.
  Status why_ended(ConnId conn) const;
  std::vector<ConnectionStats> stats() const;
  /// Sums of the counters of links that are gone.
  const ConnectionStats& ended() const { return ended_; }
  std::string flight_record() const;

 private:
  struct Served {
    std::unique_ptr<Link> link;
    uint64_t number = 0;
    bool unclaimed = false;
    bool watched = false;   // by epoll
    bool readable = false;  // in this turn
    bool has_work = false;  // since the last turn something was given to it
    bool removed = false;   // goes when it is closed
    std::optional<TimePoint> cut_off_at;  // because its peer used memory that was to be deregistered
    std::optional<TimePoint> idle_since;
  };

  Served* find(ConnId conn);
  Served* find(ConnId conn, uint64_t number);
  void watch(Served& served, bool on);
  bool mark_readable();
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
  size_t sockets_ = 0;   // watched links that are not in shared memory
  bool asleep_ = false;  // between prepare_sleep and end_sleep
  bool woken_ = false;   // a sleep has ended, and the events were not looked at since
};

}  // namespace tcpx
