// DataReceiver: arrivals for operations of this end. Receives meet the sends of the peer, reads are answered. Short data comes
// with its frame and is put in place at once, or by the GPU; for long data this end says "go" and the receiving lane takes it.
//
// Nothing a peer sends is trusted: numbers are looked up, sizes compared; a frame that no peer of ours sends ends the link.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "endpoint/copy_queue.h"
#include "endpoint/link_context.h"
#include "endpoint/operation_book.h"
#include "endpoint/send_matching.h"

namespace tcpx {

/// One thread at a time. The GPU must be current.
class DataReceiver {
 public:
  /// Both must outlive this.
  DataReceiver(LinkContext& link, OperationBook& book) : link_(link), book_(book), copies_(link.shared.copies) {}

  // Receives, in this order.
  void submit(const LocalOperation& local) { matching_.submit(local.operation->sequence, local.number()); }
  void post(LocalOperation& local);
  /// It ends early; its place stays taken: the n-th send meets nobody.
  void give_up(const LocalOperation& local);
  /// A read ends early; its bytes may come all the same.
  void give_up_read(const LocalOperation& local);
  /// It has been answered: nothing comes any more.
  void forget_read(uint64_t number);
  bool has_come(uint64_t sequence) const { return matching_.has_come(sequence); }

  // Frames of the peer. @return kProtocol: no peer of ours sends that
  Status on(const SendFrame& frame);
  Status on(const SendDataFrame& frame);
  /// Of a send.
  Status on(const CancelFrame& frame);
  Status on(const ReadDataFrame& frame);
  Status on(const ReadyFrame& frame);

  /// The data of a receive is in place, and so is due what came with it.
  void deliver_notify(LocalOperation& local);
  /// Moves short copies along. @return true when something advanced
  bool progress();
  /// The link has failed. Messages that have arrived whole can still be received.
  void end() { matching_.end(); }
  bool copying() const { return !copies_.empty(); }
  size_t arrivals() const { return matching_.arrivals(); }

 private:
  Status take_in(Arrival arrival, std::span<const std::byte> data, uint64_t sequence);
  void match(LocalOperation& local, Arrival arrival, std::span<const std::byte> data);
  struct GivenUpRead {
    std::vector<uint64_t> lengths;  // of its ranges
    uint64_t cost = 0;              // in the peer's window
  };
  void tell_posted(LocalOperation& local);
  void take_begun(LocalOperation& local, Arrival arrival);
  Status take_begun(const ReadyFrame& frame);
  void refuse_arrival(const Arrival& arrival, const Status& why);
  void take_data(LocalOperation& local, std::span<const std::byte> data);
  void receive(LocalOperation& local, const WireArray<WireSource>& sources, const GoFrame& go);
  void keep_notify(LocalOperation& local, std::unique_ptr<NotifyMsg> notify, const Charge& charge);

  LinkContext& link_;
  OperationBook& book_;
  SendMatching matching_;
  CopyQueue<uint64_t> copies_;                                            // kWriteIn, by operation
  std::unordered_map<uint64_t, GivenUpRead> given_up_reads_;  // on an eager link, until the peer has answered
  uint64_t given_up_cost_ = 0;
};

}  // namespace tcpx
