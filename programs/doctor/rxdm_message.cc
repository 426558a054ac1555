#include "programs/doctor/services.h"

namespace tcpx::doctor {
namespace {

// Protocol Buffers, "Encoding": wire types.
constexpr uint32_t kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
constexpr uint32_t kQueueIdQuery = 3, kQueueIdResponse = 4, kFirstField = 1;

/// A field with its length in front; all of ours are shorter than 128 bytes, so the length takes one.
std::string field(uint32_t number, std::string_view content) {
  std::string out;
  out.push_back(static_cast<char>(number << 3 | kLengthDelimited));
  out.push_back(static_cast<char>(content.size()));
  return out.append(content);
}

std::optional<uint64_t> take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct Field {
  uint64_t number = 0;
  std::string_view content;  ///< of a varint its own bytes
  bool is_bytes = false;
};
/// Takes the first field off `rest`, never beyond its end. nullopt: it is malformed.
std::optional<Field> take_field(std::string_view& rest) {
  const auto tag = take_varint(rest);
  if (!tag) return std::nullopt;
  const std::string_view begin = rest;
  const uint32_t type = *tag & 7;
  std::optional<uint64_t> length;
  if (type == kVarint && take_varint(rest)) return Field{*tag >> 3, begin.substr(0, begin.size() - rest.size()), false};
  if (type == kFixed64) length = 8;
  if (type == kFixed32) length = 4;
  if (type == kLengthDelimited) length = take_varint(rest);
  if (!length || *length > rest.size()) return std::nullopt;
  const Field field{*tag >> 3, rest.substr(0, *length), true};
  rest.remove_prefix(*length);
  return field;
}

}  // namespace

std::string queue_query(std::string_view gpu_pci_address) {
  const std::string body = field(kQueueIdQuery, field(kFirstField, gpu_pci_address.substr(0, 100)));
  return std::string{'\0', static_cast<char>(body.size())} + body;
}

std::optional<std::vector<int>> queue_ids_in(std::string_view message) {
  std::optional<std::vector<int>> ids;
  while (!message.empty()) {
    const auto outer = take_field(message);
    if (!outer) return std::nullopt;
    if (outer->number != kQueueIdResponse || !outer->is_bytes) continue;
    if (!ids) ids.emplace();
    for (std::string_view response = outer->content; !response.empty();) {
      const auto inner = take_field(response);
      if (!inner) return std::nullopt;
      if (inner->number != kFirstField) continue;
      for (std::string_view numbers = inner->content; !numbers.empty();) {  // several when the writer has packed them
        const auto id = take_varint(numbers);
        if (!id) return std::nullopt;
        ids->push_back(static_cast<int>(*id));
      }
    }
  }
  return ids;
}

}  // namespace tcpx::doctor
