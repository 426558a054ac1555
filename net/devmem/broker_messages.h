// What tcpx_devmemd and its clients say to each other, each message a packet of a SOCK_SEQPACKET Unix socket.
//
// A client asks, and the broker answers every question, in order. A connection is for one binding: its end, for whatever reason,
// undoes the binding and its rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/netlink.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

inline constexpr uint32_t kBrokerMagic = 0x31424454;  // "TDB1"
inline constexpr uint16_t kBrokerVersion = 1;
inline constexpr uint64_t kMostBoundBytes = uint64_t{64} << 30;  // of one dma-buf

enum class BrokerQuestionKind : uint16_t {
  kBind = 1,    ///< comes with a dma-buf; answer: its id and queue
  kLead = 2,    ///< comes with a listening TCP socket; answer: the number of the rule
  kUnlead = 3,  ///< removes a rule
  kUnbind = 4,  ///< removes all rules and the binding; nothing else is answered after that
};

struct BrokerQuestion {
  uint32_t magic = kBrokerMagic;
  uint16_t version = kBrokerVersion;
  BrokerQuestionKind kind{};
  char interface[16] = {};  ///< kBind: ends with a zero
  uint64_t bytes = 0;       ///< kBind: of the dma-buf, at most kMostBoundBytes
  uint32_t rule = 0;        ///< kUnlead
  uint32_t reserved = 0;
};
static_assert(sizeof(BrokerQuestion) == 40 && offsetof(BrokerQuestion, interface) == 8 && offsetof(BrokerQuestion, bytes) == 24);
static_assert(std::is_trivially_copyable_v<BrokerQuestion>);

struct BrokerAnswer {
  uint32_t magic = kBrokerMagic;
  uint16_t version = kBrokerVersion;
  uint16_t text_bytes = 0;
  int32_t code = 0;   ///< 0, or a Code
  int32_t error = 0;  ///< errno; 0: none
  uint32_t id = 0;    ///< kBind: of the dma-buf; kLead: of the rule
  uint32_t queue = 0;
  char text[488] = {};  ///< why not
};
static_assert(sizeof(BrokerAnswer) == 512 && offsetof(BrokerAnswer, text) == 24);
static_assert(std::is_trivially_copyable_v<BrokerAnswer>);

}  // namespace tcpx::devmem
