// What `Endpoint::get_metadata` ships: where an endpoint listens, and which one it is. Pure.
//
//    0  magic "TCPXEP"      8  port, u16        12  gpu, i32            24  host, `host bytes` long
//    6  version, u16 = 1   10  host bytes, u16  16  instance, u64
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

struct EndpointMetadata {
  std::string host;  ///< address or name, 1 ... 255 bytes
  uint16_t port = 0;
  int32_t gpu_idx = 0;
  uint64_t instance = 0;
};

std::vector<uint8_t> encode_metadata(const EndpointMetadata& metadata);
/// @return kInvalidArgument naming what is wrong: too short, too long, not ours; kUnsupported: of another version
Result<EndpointMetadata> decode_metadata(std::span<const uint8_t> bytes);

}  // namespace tcpx
