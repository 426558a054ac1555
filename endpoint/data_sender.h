// DataSender: sends and writes of this end that the peer's window has let through. A short one leaves with its data, which the
// GPU may have to copy out first; a long one has been announced and goes into a sending lane when the peer says so.
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

  /// A short send or write, which has its part of the window.
  void send_short(LocalOperation& local);
  /// A long one, which has its part of the window, goes to the peer behind its announcement, without waiting for a Go. Sets the packing
  /// that the peer wants.
  bool may_begin(LocalOperation& local);
  /// The peer wants a long one. @return kProtocol: it cannot
  Status on(const GoFrame& frame);
  /// The peer has a receive for a send to come.
  Status on(const PostedFrame& frame);
  /// Tells the peer that a send ends early. @param announced the peer has been told of it, and answers
  void tell_cancelled(const LocalOperation& local, bool announced);
  /// Moves short copies along. @return true when something advanced
  bool progress();
  /// The kernel has all that was said: short sends are done. @return true when there were some
  bool end_left();
  /// The link has failed: nothing leaves any more.
  void end() { leaving_.clear(); }
  bool copying() const { return !copies_.empty(); }

 private:
  void say(LocalOperation& local, std::span<const std::byte> data);
  void tell_gone(uint64_t write);
  void end_copy(LocalOperation& local, Status status);
  void give_up(LocalOperation& local, Status why);

  LinkContext& link_;
  OperationBook& book_;
  CopyQueue<uint64_t> copies_;     // kReadOut, by operation
  std::vector<uint64_t> leaving_;  // kLeaving
  std::vector<std::byte> room_;    // reused
  std::map<uint64_t, PostedFrame> posted_;  // by sequence: receives that no send of this end has met
};

}  // namespace tcpx
