// Encodes and decodes endpoint metadata (Endpoint::get_metadata): where an endpoint listens, and which one it is. Pure.
//
//    0  magic "TCPXEP"       8  port, u16         12  gpu, i32            24  network, u64
//    6  version, u16 = 2    10  hosts' bytes, u16 16  instance, u64       32  hosts, separated by commas
//
// Version 1, still accepted, has no network, and one host at 24.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

struct EndpointMetadata {
  std::string host;  ///< addresses or names separated by commas, in the order to try them (base/socket_address.h: split_hosts)
  uint16_t port = 0;
  int32_t gpu_idx = 0;
  uint64_t instance = 0;
  uint64_t network = 0;  ///< network_of_thread there; 0: unknown
};

std::vector<uint8_t> encode_metadata(const EndpointMetadata& metadata);
/// @return kInvalidArgument naming what is wrong: too short, too long, not metadata; kUnsupported: another version
Result<EndpointMetadata> decode_metadata(std::span<const uint8_t> bytes);

}  // namespace tcpx
