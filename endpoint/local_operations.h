// LocalOperations: the operations of this end on one connection, from submission to its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  /// Moves along what waits: for the GPU's work, for its next round, for the peer's window, for short copies. @return true when
  /// something advanced
  bool progress() {
    const bool started = progress_waiting(), sent = sender_.progress();
    return receiver_.progress() || sent || started;
  }
  /// The kernel has all that was said: short sends are done. @return true when there were some
  bool end_left() { return sender_.end_left(); }
  /// A job has come back from its lane: nothing touches its memory any more.
  void end_moved(const Job& job, bool received);

  // Frames of the peer. @return kProtocol: no peer of ours sends that
  template <class Frame>
  Status on(const Frame& frame) {
    return receiver_.on(frame);
  }
  Status on(const GoFrame& frame) { return sender_.on(frame); }
  Status on(const PostedFrame& frame) { return sender_.on(frame); }
  Status on(const DoneFrame& frame);

  /// Ends early what somebody has asked to cancel; every one; those whose deadline has passed.
  void take_cancel_requests();
  void cancel_all(const Status& why);
  /// @return kTimeout: one has not ended within its grace, so that the link has to be closed
  Status end_late();
  TimePoint next_deadline() const { return book_.next_deadline(); }
  /// The link has failed: ends all whose memory nothing touches, and forgets what waits.
  void end_all();
  /// Nothing touches any memory any more: ends the rest.
  void end_rest();

  bool empty() const { return book_.empty(); }
  size_t size() const { return book_.size(); }
  /// Some operation waits for the application's GPU work, or its next round.
  bool waits() const { return book_.any_waiting(); }
  bool copying() const { return sender_.copying() || receiver_.copying(); }
  size_t arrivals() const { return receiver_.arrivals(); }
  std::string flight_record() const { return book_.flight_record(); }

 private:
  bool progress_waiting();
  void start(LocalOperation& local);
  void enter(LocalOperation& local, Window window);
  void pass(LocalOperation& local);
  void end_early(LocalOperation& local, Status why);

  LinkContext& link_;
  OperationBook book_;
  DataSender sender_;
  DataReceiver receiver_;
  WindowQueue window_queue_;  // kWindow
};

}  // namespace tcpx
