// Link: one end of a connection between two endpoints: its control stream, its lanes, and every operation under way on it. It is
// used with the ProgressEngine's lock held. Its state changes here and nowhere else:
//
//   kOpen -> kClosing    `close`: operations that have not begun to move fail, and the peer is told
//   any   -> kFailed     at an error, when both ends have said that they close, or when closing takes too long
//   kFailed -> kClosed   nothing touches any memory any more
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "endpoint/link_context.h"
#include "endpoint/local_operations.h"
#include "endpoint/peer_operations.h"

namespace tcpx {

/// A connection as callers see it.
struct Connection {
  ConnId id{};
  uint64_t link = 0;  ///< number of its current link, which changes when the connection is made anew
  std::shared_ptr<LinkFace> face;
  std::atomic<uint64_t> next_send{0}, next_recv{0};
};

/// One thread at a time: the one that makes progress. The GPU must be current.
class Link final : private ControlSink {
 public:
  Link(const LinkShared& shared, ConnId id, LinkParts parts, std::string path);
  ~Link() override;

  ConnId id() const { return context_.id; }
  const EndpointIdentity& peer() const { return context_.peer; }
  const std::string& peer_host() const { return peer_host_; }
  const std::string& proved() const { return proved_; }
  int fd() const { return context_.stream->fd(); }
  /// True if the control stream is in shared memory; `fd` then shows only what comes during a sleep.
  bool is_shared() const { return context_.stream->is_shared(); }
  /// True when the peer has changed something in shared memory that this end waits for. Costs no system call.
  bool has_arrived() const {
    return reads() && (context_.stream->has_arrived() || context_.stream->has_room() || context_.lanes.can_move());
  }
  /// Makes `fd` show what `has_arrived` would. @return true when the peer has changed something already
  bool prepare_sleep();
  void end_sleep() { context_.stream->end_sleep(); }
  const std::shared_ptr<LinkFace>& face() const { return context_.face; }

  /// Takes over an operation of this connection, whichever state the link is in.
  void submit(Operation& operation);
  /// Sends a notification, which is no operation: it leaves when the peer's window has room, or is dropped with the link.
  void notify(std::unique_ptr<Notification> notification);
  /// Moves everything along. @return true when something advanced
  /// @param readable the control connection has something to read
  bool progress(bool readable);
  /// True when something is under way that can go on without an event of the control connection.
  bool needs_turns() const;
  /// True when nothing will announce that it can.
  bool needs_polling() const;
  /// True while the control connection is read, so that its events matter.
  bool reads() const { return !context_.has_failed(); }
  uint64_t chunks_in_flight() const { return context_.lanes.chunks_in_flight(); }
  uint64_t network_bytes() const { return context_.lanes.network_bytes(); }
  /// Ends the operations that were asked to be cancelled.
  void take_cancel_requests() { local_.take_cancel_requests(); }
  void cancel_all(const Status& why) { local_.cancel_all(why); }

  /// Closes the link: operations that have not begun to move fail with kCancelled, transfers under way may end, the peer is told.
  void close();
  void fail(Status reason);
  /// Fails the link after any other call has thrown std::bad_alloc. `progress` does the steps that need memory.
  void fail_without_memory() noexcept;
  /// True when nothing touches any memory any more, and nothing is left to send.
  bool closed() const { return context_.stage == LinkStage::kClosed; }
  /// True when sends of the peer wait for a receive.
  bool has_arrivals() const { return local_.arrivals() > 0; }
  /// At least the bytes that those sends and their notifications take here.
  uint64_t arrived_bytes() const {
    uint64_t bytes = 0;
    for (const Window window : {Window::kSends, Window::kRest, Window::kSendOffers, Window::kRestOffers})
      bytes += context_.windows.held(window);
    return bytes;
  }
  /// Ok while the link takes operations; else why not.
  const Status& status() const { return context_.status; }

  /// True when an operation of the peer uses the region.
  bool serves(MemoryId region) const;
  /// Lets the lanes forget a region that nobody uses any more. @return `peer_holds`
  bool forget(MemoryId region);
  /// True while the peer has not yet let go of a region that was forgotten.
  bool peer_holds(MemoryId region) const { return reads() ? context_.lanes.peer_holds(region) : context_.lanes.is_read(); }
  ConnectionStats stats() const;
  std::string flight_record() const;

 private:
  Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override;
  Status hand_over(const FrameHeader& header, std::span<const std::byte> payload);
  template <class Frame, class Part>
  Status to(Part& part, const FrameHeader& header, std::span<const std::byte> payload);
  Status on(const GoFrame& frame);
  Status on(const BeginFrame& frame);
  Status on(const CancelFrame& frame);
  Status on(const CreditFrame& frame);
  Status on(const NotifyFrame& frame);
  Status on(const ByeFrame& frame);

  void fail_if_broken();
  bool progress_lanes();
  bool move(Lane& lane);
  Status located(const Job& job) const;
  bool send_notifications();
  bool shares_early() const;
  bool share_early();
  bool flush();
  void end_late();
  void end_all();
  bool quiet() const;
  bool waits_outside_lanes() const;
  void advance_state();

  const std::string peer_host_, peer_name_, proved_, path_;
  LinkContext context_;
  LocalOperations local_{context_};
  PeerOperations peer_{context_};
  bool peer_closing_ = false, said_bye_ = false;
  bool all_ended_ = false;  // in kFailed: `end_all` has completed
  const bool shares_;       // the peer is another process of this host
  MemoryId shared_up_to_{};  // GPU memory: what was registered later has not been shared early
  TimePoint close_until_, next_alive_look_, next_flush_;
};

}  // namespace tcpx
