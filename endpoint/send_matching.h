// SendMatching: the n-th send of the peer meets the n-th receive of this end, whichever comes first. Each place is in one of
// these states, and is forgotten when the second of the two has come:
//
//   receive submitted -> receive posted      no send has come; only a posted one is met
//   send arrived                             no receive is posted
//   send cancelled                           the peer has given it up: its receive will be told
//   receive given up                         it ended before a send came: its send will be refused
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "wire/credit_windows.h"
#include "endpoint/sequence_set.h"
#include "wire/messages.h"
#include "tcpx/endpoint.h"
#include "tcpx/status.h"

namespace tcpx {

/// A send of the peer that no receive has met.
struct Arrival {
  uint64_t number = 0;  ///< the peer's, of the operation
  uint64_t bytes = 0;
  Packing packing = Packing::kWhole;
  bool with_data = false;
  bool begun = false;
  std::vector<uint64_t> lengths;
  std::vector<WireSource> sources;
  std::vector<std::byte> data;
  std::unique_ptr<NotifyMsg> notify;
  Charge charge;
};

/// Of one connection. Receives are known by the number of their operation. One thread at a time.
class SendMatching {
 public:
  /// Holes between sends that a peer has given up before they were announced. Each is a send that was announced, or waits there.
  static constexpr size_t kMaxGivenUpSends = 1u << 17;

  // Receives of this end, each place once.

  /// A receive is there, and meets nobody before `post`.
  void submit(uint64_t sequence, uint64_t receive) { receives_[sequence] = {.number = receive}; }
  /// The match of a posted receive: a send, one that was cancelled, or none yet. The receive owns its match.
  struct Met {
    bool cancelled = false;
    std::optional<Arrival> arrival;
  };
  Met post(uint64_t sequence);
  /// The receive ends without a send; its place stays taken. @return the send that had come, to be refused
  std::optional<Arrival> give_up(uint64_t sequence);
  /// A receive of this place would have something to meet.
  bool has_come(uint64_t sequence) const { return arrivals_.contains(sequence) || cancelled_.contains(sequence); }

  // Sends of the peer.

  enum class Meets : uint8_t {
    kNobody,          ///< to be kept
    kReceive,         ///< a posted one, which is the send's now
    kGivenUpReceive,  ///< to be refused
    kAnotherSend,     ///< of the same place: against the protocol
  };
  struct Meeting {
    Meets with = Meets::kNobody;
    uint64_t receive = 0;  ///< kReceive
  };
  Meeting meet(uint64_t sequence);
  void keep(uint64_t sequence, Arrival arrival) { arrivals_.emplace(sequence, std::move(arrival)); }
  /// The peer gives up a send that it has announced. @return its cost in the window; nullopt when it has been met, and so
  /// goes on; kProtocol when it is not that send, or came with its data
  Result<std::optional<Charge>> cancel_announced(uint64_t sequence, uint64_t number);
  /// The same of one that it has not announced, and whose place stays empty. @return the receive that waits for it, which ends;
  /// kProtocol when the send has come, or when there are too many holes
  Result<std::optional<uint64_t>> cancel_unannounced(uint64_t sequence);

  /// Nothing more comes. Messages that have arrived whole can still be received; all else is forgotten.
  void end();
  /// Sends that wait for a receive.
  size_t arrivals() const { return arrivals_.size(); }

 private:
  struct Receive {
    uint64_t number = 0;
    bool posted = false;
  };

  std::unordered_map<uint64_t, Receive> receives_;
  std::unordered_map<uint64_t, Arrival> arrivals_;
  SequenceSet cancelled_, given_up_;
};

}  // namespace tcpx
