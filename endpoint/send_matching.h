// SendMatching: matches the n-th send of the peer with the n-th receive of this end, whichever comes first. Each place n is in one of
// these states, and is forgotten when both its send and its receive have come:
//
//   receive submitted -> receive posted      no send has come; a send meets only a posted receive
//   send arrived                             no receive is posted
//   send cancelled                           the peer has given the send up; its receive will be told
//   receive given up                         the receive ended before its send came; that send will be refused
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "endpoint/sequence_set.h"
#include "tcpx/endpoint.h"
#include "tcpx/status.h"
#include "wire/credit_windows.h"
#include "wire/messages.h"

namespace tcpx {

/// A send of the peer that no receive has met.
struct Arrival {
  uint64_t number = 0;  ///< of the operation, given by the peer
  uint64_t bytes = 0;
  Packing packing = Packing::kWhole;
  bool with_data = false;
  bool begun = false;
  std::vector<uint64_t> lengths;
  std::vector<std::byte> offers;  // WireOffers
  std::vector<std::byte> data;
  std::unique_ptr<NotifyMsg> notify;
  Charge charge;
};

/// For one connection. A receive is named by the number of its operation. One thread at a time.
class SendMatching {
 public:
  /// Most holes between sends that the peer gave up before announcing them. Each hole is a send that was announced or still waits there.
  static constexpr size_t kMaxGivenUpSends = 1u << 17;

  // Receives of this end, each place once.

  /// Adds a receive, which meets no send before `post`.
  void submit(uint64_t sequence, uint64_t receive) { receives_[sequence] = {.number = receive}; }
  /// The match of a posted receive: a send, a cancelled send, or nothing yet.
  struct Met {
    bool cancelled = false;
    std::optional<Arrival> arrival;
  };
  Met post(uint64_t sequence);
  /// Ends a receive without a send; its place stays taken. @return the send that had come, to be refused
  std::optional<Arrival> give_up(uint64_t sequence);
  /// True if a receive of this place would meet a send, or a cancelled one.
  bool has_come(uint64_t sequence) const { return arrivals_.contains(sequence) || cancelled_.contains(sequence); }

  // Sends of the peer.

  enum class Meets : uint8_t {
    kNobody,          ///< no receive is posted: `keep` the send
    kReceive,         ///< a posted receive, which no other send meets
    kGivenUpReceive,  ///< refuse the send
    kAnotherSend,     ///< a send of this place has come before: against the protocol
  };
  struct Meeting {
    Meets with = Meets::kNobody;
    uint64_t receive = 0;  ///< kReceive
  };
  Meeting meet(uint64_t sequence);
  void keep(uint64_t sequence, Arrival arrival) { arrivals_.emplace(sequence, std::move(arrival)); }
  /// The peer gives up a send that it has announced. @return its cost in the window; nullopt: it has met its receive and goes on;
  /// kProtocol: another send has this place, or it came with its data
  Result<std::optional<Charge>> cancel_announced(uint64_t sequence, uint64_t number);
  /// The peer gives up a send that it has not announced, whose place stays empty. @return the receive that waits for it and must end;
  /// kProtocol: the send has come, or there are too many holes
  Result<std::optional<uint64_t>> cancel_unannounced(uint64_t sequence);

  /// Call when nothing more comes. Messages that have arrived whole can still be received; all else is forgotten.
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
