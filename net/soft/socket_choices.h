// The choice of sockets on a connection that has some of a NIC's queue and some of the host. A message goes by those that its receiver
// names on the control socket: only that end knows where the bytes are to lie. As long as the sender has heard nothing, it goes by where
// they come from. A choice holds for all later messages; one that comes late costs a copy, for messages are received by any socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "net/soft/comm.h"
#include "net/soft/wire.h"
#include "tcpx/status.h"

namespace tcpx::soft {

/// The receiver's end. One thread at a time.
class ToldChoices {
 public:
  /// Call for each message in turn. @return true when there is something to tell: call `tell`
  bool choose(uint64_t sequence, bool device);
  /// Hands the newest choice to the kernel. @return false: call again when the socket has room
  bool tell(const ControlSocket& socket);

 private:
  std::optional<bool> chosen_;          // for the newest message; nullopt: there was none
  std::optional<SocketChoice> choice_;  // to be told
  std::array<std::byte, kChoiceBytes> record_;
  size_t left_ = 0;  // of the record
};

/// The sender's end. One thread at a time.
class HeardChoices {
 public:
  /// Takes what has come on the control socket. @param posted number of the next message
  /// @return kProtocol: no receiver would choose that now
  Status take(std::span<const std::byte> bytes, uint64_t posted);
  /// The choice for message `posted`, a number that never decreases; nullopt: none was heard.
  std::optional<bool> device_for(uint64_t posted);

 private:
  std::deque<SocketChoice> choices_;  // the earliest first; the first one holds, or is the next
  std::array<std::byte, kChoiceBytes> record_;
  size_t read_ = 0;  // of the record
};

}  // namespace tcpx::soft
