// DataReceiver: takes in the data of this end's receives and reads. A receive meets a send of the peer; a read gets the peer's answer.
// Short data comes inside a frame and is put in place at once, or by the GPU. For long data this end says Go, and a receiving lane
// moves it.
//
// Nothing that the peer sends is trusted: numbers are looked up and sizes compared, and a frame that a correct peer would not send
// ends the link.
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

  // A receive is first submitted, then posted.
  void submit(const LocalOperation& local) { matching_.submit(local.operation->sequence, local.number()); }
  void post(LocalOperation& local);
  /// The receive ends early. Its place in the order stays taken: the n-th send meets nobody.
  void give_up(const LocalOperation& local);
  /// The read ends early. On an eager link its bytes may still come.
  void give_up_read(const LocalOperation& local);
  /// A read that was given up has been answered: nothing comes any more.
  void forget_read(uint64_t number);
  bool has_come(uint64_t sequence) const { return matching_.has_come(sequence); }

  // Frames of the peer. @return kProtocol: a correct peer would not send this now
  Status on(const SendFrame& frame);
  Status on(const SendDataFrame& frame);
  /// The peer gives up a send.
  Status on(const CancelFrame& frame);
  Status on(const ReadDataFrame& frame);
  Status on(const ReadyFrame& frame);

  /// Call when the data is in place. A receive's notification is delivered here, a read's is sent to the peer.
  void deliver_notify(LocalOperation& local);
  /// Moves short copies along. @return true when something advanced
  bool progress();
  /// Call when the link has failed. Messages that have arrived whole can still be received.
  void end() { matching_.end(); }
  bool copying() const { return !copies_.empty(); }
  size_t arrivals() const { return matching_.arrivals(); }

 private:
  Status take_in(Arrival arrival, std::span<const std::byte> data, uint64_t sequence);
  void match(LocalOperation& local, Arrival arrival, std::span<const std::byte> data);
  struct GivenUpRead {
    std::vector<uint64_t> lengths;  // bytes of its ranges
    uint64_t cost = 0;              // in the peer's window
  };
  void tell_posted(LocalOperation& local);
  void take_begun(LocalOperation& local, Arrival arrival);
  Status take_begun(const ReadyFrame& frame);
  void refuse_arrival(const Arrival& arrival, const Status& why);
  void take_data(LocalOperation& local, std::span<const std::byte> data);
  void receive(LocalOperation& local, const WireOffers& offers, const GoFrame& go);
  void keep_notify(LocalOperation& local, std::unique_ptr<NotifyMsg> notify, const Charge& charge);

  LinkContext& link_;
  OperationBook& book_;
  SendMatching matching_;
  CopyQueue<uint64_t> copies_;                                // in kWriteIn, by operation
  std::unordered_map<uint64_t, GivenUpRead> given_up_reads_;  // eager link: until the peer has answered
  uint64_t given_up_cost_ = 0;
};

}  // namespace tcpx
