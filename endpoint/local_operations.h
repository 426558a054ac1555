// LocalOperations: drives the operations that this end has started on one connection, each from its submission to its end.
// DataSender and DataReceiver do the steps of either direction, WindowQueue holds those that wait for the peer's window.
#pragma once

#include <string>

#include "endpoint/data_receiver.h"
#include "endpoint/data_sender.h"
#include "endpoint/link_context.h"
#include "endpoint/operation_book.h"
#include "endpoint/window_queue.h"

namespace tcpx {

/// One thread at a time. The GPU must be current.
class LocalOperations {
 public:
  /// @param link must outlive this
  explicit LocalOperations(LinkContext& link)
      : link_(link), book_(link), sender_(link, book_), receiver_(link, book_), window_queue_(link.windows, *link.stream) {}

  void submit(Operation& operation);
  /// Moves along operations that wait for the GPU's work, their next round, a lane, the peer's window or a short copy.
  /// @return true when something advanced
  bool progress() {
    const bool started = (book_.any_waiting() || !window_queue_.empty()) && progress_waiting();
    const bool sent = sender_.copying() && sender_.progress();
    return (receiver_.copying() && receiver_.progress()) || sent || started;
  }
  /// Ends the short sends whose bytes the kernel now has. @return true when there were some
  bool end_left() {
    if (!sender_.leaving()) return false;
    sender_.end_left();
    return true;
  }
  /// A lane has ended a job: nothing touches its memory any more.
  void end_moved(const Job& job, bool received);

  // Frames of the peer. @return kProtocol: a correct peer would not send this now
  template <class Frame>
  Status on(const Frame& frame) {
    return receiver_.on(frame);
  }
  Status on(const GoFrame& frame) { return sender_.on(frame); }
  Status on(const PostedFrame& frame) { return sender_.on(frame); }
  Status on(const DoneFrame& frame);

  /// Ends early the operations that were asked to be cancelled.
  void take_cancel_requests();
  /// Ends early every operation.
  void cancel_all(const Status& why);
  /// Ends early the operations whose deadline has passed. @return kTimeout: one did not end within its grace; close the link
  Status end_late();
  TimePoint next_deadline() const { return book_.next_deadline(); }
  /// Call when the link has failed: ends every operation whose memory nothing touches.
  void end_all();
  /// Call when nothing touches any memory any more: ends the others.
  void end_rest();

  bool empty() const { return book_.empty(); }
  size_t size() const { return book_.size(); }
  /// True when an operation waits for the application's GPU work, for its next round, or for a lane.
  bool waits() const { return book_.any_waiting(); }
  bool copying() const { return sender_.copying() || receiver_.copying(); }
  size_t arrivals() const { return receiver_.arrivals(); }
  std::string flight_record() const { return book_.flight_record(); }

 private:
  bool progress_waiting();
  bool start(LocalOperation& local);
  bool start_leased(LocalOperation& local);
  bool are_lanes_ready(const Operation& operation);
  void enter(LocalOperation& local, Window window);
  void pass(LocalOperation& local);
  void end_written(LocalOperation& local);
  bool may_repeat(const LocalOperation& local) const;
  void end_corrupt(LocalOperation& local, const Status& found, Code at_peer);
  void end_early(LocalOperation& local, Status why);

  LinkContext& link_;
  OperationBook book_;
  DataSender sender_;
  DataReceiver receiver_;
  WindowQueue window_queue_;  // operations in kWindow
};

}  // namespace tcpx
