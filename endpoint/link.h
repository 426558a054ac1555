// Link: one connection between two endpoints, as the thread that makes progress sees it: the control stream, a lane of bulk data
// each way, and every operation that is under way on it.
//
// What an operation goes through:
//
//   kGpu       its memory waits for the application's GPU work
//   kReadOut   a short message is being copied from the GPU
//   kWindow    it waits until the peer holds less of what it was told
//   kLeaving   a short send is in the control stream's buffer, and not yet with the kernel
//   kPosted    receive: no send has come to it
//   kOffered   the peer has been told and has not answered
//   kMoving    its job is in a lane
//   kWriteIn   a short message is being copied to the GPU
//   kAnswer    write: all has been sent, the peer has not said that it is in place
//
// Ending early (deadline, cancel). In kGpu, kReadOut, kWindow and kPosted nothing is known to the peer, or what is known can be
// taken back; the operation ends at once (after the copy). What is in kLeaving ends at once too, and may arrive all the same. In
// kOffered the peer may say "go" at the same moment: it is asked, and its answer is waited for. In kMoving the pipeline's
// transfer is let run to its end. Who waits longer than kGrace for either closes the link, because only that makes sure that
// nothing touches the memory any more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/trace_range.h"
#include "endpoint/control_stream.h"
#include "endpoint/inline_copies.h"
#include "endpoint/lane.h"
#include "endpoint/link_rules.h"
#include "endpoint/link_setup.h"
#include "endpoint/notify_inbox.h"
#include "endpoint/operation.h"
#include "endpoint/sequence_set.h"

namespace tcpx {

/// What all links of an endpoint share. Must outlive them.
struct LinkShared {
  OperationTable& operations;
  MemoryRegistry& memory;
  InlineCopies& copies;
  NotifyInbox& inbox;
  LaneParts lanes;
  const Clock& clock;
  uint32_t inline_bytes = 0;
};

/// What callers see of a link without waiting for the thread that makes progress. They may keep it for longer than the link
/// lives, and the other way round, so it is shared.
struct LinkFace {
  std::atomic<bool> ended{false};        ///< nothing new is taken
  std::atomic<size_t> notifications{0};  ///< that have not left
};

/// A notification from `notify` until it leaves, which counts as long as it lives.
struct Notification {
  Notification(ConnId to, uint64_t number, NotifyMsg text, std::shared_ptr<LinkFace> link_face)
      : conn(to), link(number), message(std::move(text)), face(std::move(link_face)) {
    face->notifications.fetch_add(1, std::memory_order_relaxed);
  }
  ~Notification() { face->notifications.fetch_sub(1, std::memory_order_relaxed); }
  Notification(const Notification&) = delete;
  Notification& operator=(const Notification&) = delete;

  const ConnId conn;
  const uint64_t link;  ///< which of the connection's links, when it is made anew
  const NotifyMsg message;
  const std::shared_ptr<LinkFace> face;
  Notification* next_submitted = nullptr;
};

/// One thread at a time: the one that makes progress. The GPU must be current.
class Link final : private ControlSink {
 public:
  Link(const LinkShared& shared, ConnId id, LinkParts parts, std::string path);
  ~Link() override;

  ConnId id() const { return id_; }
  const EndpointIdentity& peer() const { return peer_; }
  const std::string& peer_host() const { return peer_host_; }
  int fd() const { return stream_->fd(); }
  const std::shared_ptr<LinkFace>& face() const { return face_; }

  /// Takes over an operation of this connection, whichever state the link is in.
  void submit(Operation& operation);
  /// Sends a notification. Not an operation: it leaves when the peer's window lets it, or is dropped with the link.
  void notify(std::unique_ptr<Notification> notification);
  /// Moves everything along. @return true when something advanced
  /// @param readable the control connection has something to read
  bool progress(bool readable);
  /// Something is under way that no event of the control connection will announce.
  bool needs_polling() const;
  /// The control connection is still read, so its events matter.
  bool reads() const { return state_ <= State::kClosing; }
  uint64_t chunks_in_flight() const { return send_lane_.connection().in_flight() + recv_lane_.connection().in_flight(); }
  /// Looks at what somebody has asked to cancel.
  void take_cancel_requests();
  /// Ends every operation of this end early.
  void cancel_all(const Status& why);

  /// Ends the link: operations that have not begun to move fail with kCancelled, what is moving is let end, the peer is told.
  void close();
  /// Ends it at once.
  void fail(Status reason);
  /// The same when any other call has thrown std::bad_alloc. What this needs memory for is left to `progress`.
  void fail_without_memory() noexcept;
  /// True when nothing touches any memory any more, and nothing is left to say.
  bool closed() const { return state_ == State::kClosed; }
  /// Sends of the peer wait for a receive.
  bool has_arrivals() const { return !arrivals_.empty(); }
  /// Ok while the link is of use; else why it is not.
  const Status& status() const { return status_; }

  /// Something that the peer has started uses the region.
  bool serves(MemoryId region) const;
  /// Lets the lanes forget a region that nobody uses any more.
  void forget(MemoryId region);
  ConnectionStats stats() const;
  std::string flight_record() const;

 private:
  enum class State : uint8_t { kOpen, kClosing, kFailed, kClosed };
  enum class Phase : uint8_t { kGpu, kReadOut, kWindow, kLeaving, kPosted, kOffered, kMoving, kWriteIn, kAnswer };
  static const char* name_of(Phase phase);
  /// An operation of this end.
  struct Local {
    Operation* operation = nullptr;
    TraceRange trace;
    Phase phase = Phase::kGpu;
    Charge charge;                      // kWindow, kReadOut: what it takes there
    Packing packing = Packing::kWhole;  // of a send or write that is offered
    TimePoint waits_since{};            // kWindow
    InlineCopies::Copy copy;            // kReadOut, kWriteIn
    bool has_copy = false;
    bool answered = false;              // write: the peer has said how it went, before the lane has
    Status ending;                      // why it ends early; ok: it does not
    TimePoint grace{};                  // until when its early end may take
    std::vector<std::byte> data;        // kWriteIn that waits for a slot
    std::unique_ptr<NotifyMsg> notify;  // receive: came with the send
    Charge held;                        // receive: by the notification
    Status answer;
  };
  /// A send of the peer that no receive has met.
  struct Arrival {
    uint64_t number = 0;
    uint64_t bytes = 0;
    Packing packing = Packing::kWhole;
    bool with_data = false;
    std::vector<uint64_t> lengths;
    std::vector<std::byte> data;
    std::unique_ptr<NotifyMsg> notify;
    Charge charge;
  };
  /// A short copy for an operation of the peer.
  struct RemoteCopy {
    enum class Kind : uint8_t { kWrite, kRead } kind = Kind::kWrite;
    uint64_t number = 0;
    std::vector<HeldRange> ranges;
    std::vector<std::byte> data;  // write: until a slot is free
    InlineCopies::Copy copy;
    bool started = false;
    Charge charge;
    std::unique_ptr<NotifyMsg> notify;
  };

  // link.cc
  bool progress_lanes();
  bool progress_copies();
  bool progress_waiting();
  bool send_notifications();
  bool deliver_held();
  void advance_state();
  bool flush();
  void look_at_deadlines();
  void note_deadline(TimePoint at);
  void finish(Local& local, Status status);
  void end_all();

  // link_operations.cc: what this end starts
  void start(Local& local);
  void start_send(Local& local);
  void start_write(Local& local);
  void start_read(Local& local);
  void enter(Local& local, Window window);
  Charge charge_for(const Local& local, Window window) const;
  bool is_late(const Local& local) const;
  bool window_open(const Local& local) const;
  bool waits_too_long(const Local& local) const;
  void pass(Local& local);
  void write_offer(const Local& local);
  void send_inline(Local& local);
  void match(Local& local, Arrival arrival);
  void take_data(Local& local, std::span<const std::byte> data);
  void push_receive(Local& local, uint64_t number, bool mine, Packing packing);
  void say_go(uint64_t number, bool mine, Packing packing);
  void queue_copy(Local& local, Phase phase);
  bool begin_copy(Local& local);
  void end_copy(Local& local, Status status);
  void tell_cancelled(const Operation& operation, bool offered);
  void end_early(Local& local, Status why);
  void give_up_receive(uint64_t sequence);
  Arrival take_arrival(std::unordered_map<uint64_t, Arrival>::iterator arrived);
  static Status given_up_by_receiver();
  void refuse_arrival(const Arrival& arrival, const Status& why);
  void end_moved(std::unique_ptr<Job> job, bool received);
  void gather(const std::vector<HeldRange>& ranges);
  static void scatter(const std::vector<HeldRange>& ranges, std::span<const std::byte> data);
  static bool on_gpu(const std::vector<HeldRange>& ranges);

  // link_frames.cc: what the peer says
  Status on_frame(const ControlHeader& header, std::span<const std::byte> payload) override;
  template <class Frame>
  Status on(const ControlHeader& header, std::span<const std::byte> payload);
  Status handle(const SendFrame& frame);
  Status handle(const SendDataFrame& frame);
  Status handle(const WriteFrame& frame);
  Status handle(const WriteDataFrame& frame);
  Status handle(const ReadFrame& frame);
  Status handle(const ReadDataFrame& frame);
  Status handle(const ReadyFrame& frame);
  Status handle(const GoFrame& frame);
  Status handle(const DoneFrame& frame);
  Status handle(const CancelFrame& frame);
  Status handle(const CreditFrame& frame);
  Status handle(const NotifyFrame& frame);
  Status handle(const ByeFrame& frame);
  Status begin_send(Arrival arrival, std::span<const std::byte> data, uint64_t sequence);
  Status look_up(const WireArray<WireRange>& wanted, std::vector<HeldRange>& ranges);
  void answer(uint64_t number, const Status& status);
  Status count(ControlType type, uint64_t operation, const Charge& charge);
  void give_back(const Charge& charge);
  void keep_notify(Local& local, std::unique_ptr<NotifyMsg> notify, const Charge& charge);
  void send_read_data(uint64_t number, std::span<const std::byte> data);
  void queue(RemoteCopy copy);
  bool begin(RemoteCopy& copy);
  bool step(RemoteCopy& copy);
  void deliver(std::unique_ptr<NotifyMsg> message, uint64_t number, bool answers, const Charge& charge);

  LinkShared shared_;
  const ConnId id_;
  const EndpointIdentity peer_;
  const std::string peer_host_, peer_name_, path_;
  std::unique_ptr<ControlStream> stream_;
  Lane send_lane_, recv_lane_;
  const std::shared_ptr<LinkFace> face_ = std::make_shared<LinkFace>();
  State state_ = State::kOpen;
  Status status_;
  bool peer_closing_ = false, said_bye_ = false;
  bool all_ended_ = false;  // kFailed: what fail does to operations, lanes and stream is done
  TimePoint close_until_;

  std::unordered_map<uint64_t, Local> local_;                   // by operation
  std::unordered_map<uint64_t, uint64_t> receives_;             // kPosted, by sequence
  std::unordered_map<uint64_t, Arrival> arrivals_;              // by sequence
  SequenceSet cancelled_;                                       // sequences of sends that the peer has given up
  SequenceSet given_up_;                                        // sequences of receives that ended before a send came
  std::unordered_map<uint64_t, std::unique_ptr<Job>> serving_;  // reads of the peer that wait for its "go"
  std::deque<RemoteCopy> remote_copies_;
  std::vector<uint64_t> gpu_waits_;                          // kGpu
  std::deque<uint64_t> copies_;                              // kReadOut and kWriteIn, in order of their tickets
  std::array<std::deque<uint64_t>, kWindows> window_waits_;  // kWindow, of each window
  std::vector<uint64_t> leaving_;                            // kLeaving
  std::deque<std::unique_ptr<Notification>> notify_waits_;
  /// Delivered here as soon as the inbox has room.
  struct HeldNotify {
    std::unique_ptr<NotifyMsg> message;
    uint64_t number = 0;
    bool answers = false;
    Charge charge;
  };
  std::deque<HeldNotify> held_;
  uint64_t next_announced_ = 0;  // behind the last sequence of a send that the peer has been told
  std::array<uint64_t, kWindows> window_left_{kInlineWindowBytes, kInlineWindowBytes, kOfferWindowBytes, kOfferWindowBytes};
  std::array<uint64_t, kWindows> taken_{};  // of the peer's, and not told that there is room again
  std::array<uint64_t, kWindows> owed_{};   // part of it that there is room for
  std::vector<std::byte> scratch_;

  TimePoint now_, next_deadline_, next_alive_look_, flushed_at_;
  ConnectionStats stats_;
};

}  // namespace tcpx
