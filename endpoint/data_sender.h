// DataSender: moves the sends and writes of this end once they have their part of the peer's window. A short one leaves with its
// data, which the GPU may have to copy out first. A long one has been offered, and goes into a sending lane after the peer's Go; on
// an eager link it may begin without one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "endpoint/copy_queue.h"
#include "endpoint/link_context.h"
#include "endpoint/operation_book.h"

namespace tcpx {

/// One thread at a time. The GPU must be current.
class DataSender {
 public:
  /// Both must outlive this.
  DataSender(LinkContext& link, OperationBook& book) : link_(link), book_(book), copies_(link.shared.copies) {}

  /// Sends a short send or write, which has its part of the window.
  void send_short(LocalOperation& local);
  /// Sends the notification of a write that is in place, which has its part of the window.
  void send_notify(LocalOperation& local);
  /// @return true if a long send or write, which has its part of the window, may begin without a Go. May change its packing to the one
  /// that the peer posted.
  bool may_begin(LocalOperation& local);
  /// The peer wants the bytes of a long send or write. @return kProtocol: it may not ask for them
  Status on(const GoFrame& frame);
  /// The peer has posted a receive for a send to come.
  Status on(const PostedFrame& frame);
  /// Tells the peer that a send ends early. @param announced the peer knows of the send, and answers
  void tell_cancelled(const LocalOperation& local, bool announced);
  /// Moves short copies along. @return true when something advanced
  bool progress();
  /// Ends the short sends, and writes with their notifications, whose bytes the kernel now has, or the peer's memory.
  void end_left();
  /// Call when the link has failed: nothing leaves any more.
  void end() { leaving_.clear(); }
  bool leaving() const { return !leaving_.empty(); }
  bool copying() const { return !copies_.empty(); }

 private:
  void say(LocalOperation& local, std::span<const std::byte> data);
  void tell_gone(uint64_t write);
  void end_copy(LocalOperation& local, Status status);
  void give_up(LocalOperation& local, Status why);

  LinkContext& link_;
  OperationBook& book_;
  CopyQueue<uint64_t> copies_;              // in kReadOut, by operation
  std::vector<uint64_t> leaving_;           // in kLeaving
  std::vector<std::byte> room_;             // reused
  std::map<uint64_t, PostedFrame> posted_;  // by sequence: receives that no send of this end has met yet
};

}  // namespace tcpx
