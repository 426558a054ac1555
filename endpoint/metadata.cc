#include "endpoint/metadata.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <type_traits>

#include "base/socket_address.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr std::array<char, 6> kMagic = {'T', 'C', 'P', 'X', 'E', 'P'};
constexpr uint16_t kVersion = 2, kVersionOfOneHost = 1;

struct Front {
  std::array<char, 6> magic;
  uint16_t version;
  uint16_t port;
  uint16_t host_bytes;
  int32_t gpu_idx;
  uint64_t instance;
};
static_assert(sizeof(Front) == 24 && offsetof(Front, port) == 8 && offsetof(Front, gpu_idx) == 12 &&
              offsetof(Front, instance) == 16 && std::is_trivially_copyable_v<Front>);

}  // namespace

std::vector<uint8_t> encode_metadata(const EndpointMetadata& metadata) {
  const Front front{.magic = kMagic,
                    .version = kVersion,
                    .port = metadata.port,
                    .host_bytes = static_cast<uint16_t>(metadata.host.size()),
                    .gpu_idx = metadata.gpu_idx,
                    .instance = metadata.instance};
  std::vector<uint8_t> bytes(sizeof front + sizeof metadata.network + metadata.host.size());
  std::memcpy(bytes.data(), &front, sizeof front);
  std::memcpy(bytes.data() + sizeof front, &metadata.network, sizeof metadata.network);
  std::memcpy(bytes.data() + sizeof front + sizeof metadata.network, metadata.host.data(), metadata.host.size());
  return bytes;
}

Result<EndpointMetadata> decode_metadata(std::span<const uint8_t> bytes) {
  const auto refuse = [](Code code, std::string why) { return Status(code, "read endpoint metadata", std::move(why)); };
  Front front;
  if (bytes.size() < sizeof front)
    return refuse(Code::kInvalidArgument, concat(bytes.size(), " bytes, at least ", sizeof front, " are needed"));
  std::memcpy(&front, bytes.data(), sizeof front);
  std::span<const uint8_t> rest = bytes.subspan(sizeof front);
  if (front.magic != kMagic) return refuse(Code::kInvalidArgument, "these bytes are no metadata of an endpoint");
  if (front.version != kVersion && front.version != kVersionOfOneHost)
    return refuse(Code::kUnsupported, concat("version ", front.version, "; this build knows versions 1 and ", kVersion));
  EndpointMetadata metadata{.host = {}, .port = front.port, .gpu_idx = front.gpu_idx, .instance = front.instance};
  if (front.version == kVersion && rest.size() >= sizeof metadata.network) {
    std::memcpy(&metadata.network, rest.data(), sizeof metadata.network);
    rest = rest.subspan(sizeof metadata.network);
  }
  if (rest.size() != front.host_bytes) {
    return refuse(Code::kInvalidArgument,
                  concat("hosts of ", front.host_bytes, " bytes in ", rest.size(), " bytes: truncated, or not metadata"));
  }
  if (front.port == 0 || front.gpu_idx < 0)
    return refuse(Code::kInvalidArgument, concat("port ", front.port, ", GPU ", front.gpu_idx));
  if (!std::all_of(rest.begin(), rest.end(), [](uint8_t byte) { return std::isgraph(byte) != 0; }))
    return refuse(Code::kInvalidArgument, "the hosts are not printable");
  metadata.host.assign(rest.begin(), rest.end());
  TCPX_RETURN_IF_ERROR(split_hosts(metadata.host).status());
  return metadata;
}

}  // namespace tcpx
