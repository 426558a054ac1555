// Regions: memory that an agent has registered, here and at others.
#pragma once

#include <cstring>
#include <string>

#include "integrations/nixl/nixl_abi.h"
#include "tcpx/endpoint.h"

namespace tcpx::nixl {

/// Memory of this agent.
struct LocalRegion final : abi::Metadata {
  LocalRegion(const abi::BasicDesc& where, MemoryId what, const RemoteSlot& name)
      : abi::Metadata(true), range(where), memory(what), slot(name) {}

  const abi::BasicDesc range;
  const MemoryId memory;
  const RemoteSlot slot;  ///< under which any peer may use it
};

/// Memory of an agent, by its addresses and the name that it has there. Of this agent too, for transfers within one.
struct RemoteRegion final : abi::Metadata {
  RemoteRegion(uint64_t first, const RemoteSlot& name) : abi::Metadata(false), address(first), slot(name) {}

  const uint64_t address;
  const RemoteSlot slot;
};

/// The slot is all that others need of a region: it goes into the agent's metadata as it is.
inline std::string encode_slot(const RemoteSlot& slot) {
  return {reinterpret_cast<const char*>(&slot), sizeof slot};
}
/// @return false: not one
inline bool decode_slot(const std::string& text, RemoteSlot& slot) {
  if (text.size() != sizeof slot) return false;
  std::memcpy(&slot, text.data(), sizeof slot);
  return true;
}

}  // namespace tcpx::nixl
