// The life of a chunk, as data. Each direction has one path of states. From any state but the last of the path a chunk can fail;
// failing is no step of a single chunk, because a comm fails as a whole.
//
//   recv: Queued -> Posted -> Arrived -> Unpacking -> Consumed      send: Queued -> Posted -> Sent      either: -> Failed
//
// Queued     neither the plugin nor the unpacker knows the chunk yet
// Posted     the plugin has its request; it may read (send) or write (host receive) the memory
// Arrived    the bytes lie in the bounce pool, or already in place
// Unpacking  the unpacker copies the bytes; a message that arrived in place passes through this state without a copy of its own
// Consumed   the pages are given back and the bytes are where they belong
// Sent       the plugin no longer reads the memory (not: the peer has it)
// Failed     neither the plugin nor the unpacker touches the memory any more, and the bytes must not be trusted
//
// Invariants, and the code that enforces each.
//  - A slot of the window is held from Posted to the end.                                        InflightFifo
//  - Chunks pass through the states in order: none overtakes another.                            InflightFifo
//  - Only the oldest posted request is tested; only the oldest unpacking one is given back.      InflightFifo::oldest
//  - Arrived chunks are submitted together or not at all, and share one ticket.                  Channel::unpack_arrived
//  - Nothing is given back before its unpack ticket is done.                                     Channel::consume_unpacked
//  - A chunk is Failed only when its ticket is done and the comm is closed.                      Channel::drain
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tcpx {

enum class Direction : uint8_t { kSend, kRecv };

enum class ChunkState : uint8_t { kQueued, kPosted, kArrived, kUnpacking, kConsumed, kSent, kFailed };
inline constexpr size_t kChunkStateCount = 7;

struct ChunkTransition {
  Direction direction;
  ChunkState from;
  ChunkState to;
};

/// The steps of InflightFifo::advance.
inline constexpr std::array kChunkTransitions = {
    ChunkTransition{Direction::kRecv, ChunkState::kQueued, ChunkState::kPosted},
    ChunkTransition{Direction::kRecv, ChunkState::kPosted, ChunkState::kArrived},
    ChunkTransition{Direction::kRecv, ChunkState::kArrived, ChunkState::kUnpacking},
    ChunkTransition{Direction::kRecv, ChunkState::kUnpacking, ChunkState::kConsumed},
    ChunkTransition{Direction::kSend, ChunkState::kQueued, ChunkState::kPosted},
    ChunkTransition{Direction::kSend, ChunkState::kPosted, ChunkState::kSent},
};

/// The state after `state` on the path; `state` itself at the end of the path, and for kFailed.
constexpr ChunkState successor(Direction direction, ChunkState state) {
  for (const ChunkTransition& t : kChunkTransitions) {
    if (t.direction == direction && t.from == state) return t.to;
  }
  return state;
}

constexpr std::string_view name_of(Direction direction) {
  return direction == Direction::kSend ? "send" : "recv";
}

constexpr std::string_view name_of(ChunkState state) {
  constexpr std::array<std::string_view, kChunkStateCount> kNames{"queued",   "posted", "arrived", "unpacking",
                                                                  "consumed", "sent",   "failed"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace tcpx
