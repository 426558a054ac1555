#include "endpoint/metadata.h"

#include <array>
#include <cctype>
#include <cstring>
#include <type_traits>

#include "base/socket_address.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr std::array<char, 6> kMagic = {'T', 'C', 'P', 'X', 'E', 'P'};
constexpr uint16_t kVersion = 1;

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
  std::vector<uint8_t> bytes(sizeof front + metadata.host.size());
  std::memcpy(bytes.data(), &front, sizeof front);
  std::memcpy(bytes.data() + sizeof front, metadata.host.data(), metadata.host.size());
  return bytes;
}

Result<EndpointMetadata> decode_metadata(std::span<const uint8_t> bytes) {
  const auto refuse = [](Code code, std::string why) { return Status(code, "read endpoint metadata", std::move(why)); };
  Front front;
  if (bytes.size() < sizeof front)
    return refuse(Code::kInvalidArgument, concat(bytes.size(), " bytes, at least ", sizeof front, " are needed"));
  std::memcpy(&front, bytes.data(), sizeof front);
  if (front.magic != kMagic) return refuse(Code::kInvalidArgument, "these bytes are no metadata of an endpoint");
  if (front.version != kVersion)
    return refuse(Code::kUnsupported, concat("version ", front.version, "; this build knows version ", kVersion));
  if (front.host_bytes == 0 || front.host_bytes > kMaxHostBytes || bytes.size() - sizeof front != front.host_bytes) {
    return refuse(Code::kInvalidArgument, concat("a host of ", front.host_bytes, " bytes in ", bytes.size() - sizeof front,
                                                 " bytes: truncated, or not metadata"));
  }
  if (front.port == 0 || front.gpu_idx < 0)
    return refuse(Code::kInvalidArgument, concat("port ", front.port, ", GPU ", front.gpu_idx));
  EndpointMetadata metadata{.host = {}, .port = front.port, .gpu_idx = front.gpu_idx, .instance = front.instance};
  for (const uint8_t byte : bytes.subspan(sizeof front)) {
    if (std::isgraph(byte) == 0) return refuse(Code::kInvalidArgument, "the host is not printable");
    metadata.host.push_back(static_cast<char>(byte));
  }
  return metadata;
}

}  // namespace tcpx
