#include "programs/doctor/rxdm_message.h"

#include <cstdint>

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

/// Reads what is left of a message, never beyond its end.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}
  bool at_end() const { return rest_.empty(); }

  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return std::nullopt;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::optional<std::string_view> bytes(uint64_t count) {
    if (count > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  struct Field {
    uint64_t number;
    uint64_t value;            // kVarint
    std::string_view content;  // kLengthDelimited
    bool is_varint;
  };
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag) return std::nullopt;
    Field field{.number = *tag >> 3, .value = 0, .content = {}, .is_varint = (*tag & 7) == kVarint};
    if (field.is_varint) {
      const auto value = varint();
      if (!value) return std::nullopt;
      field.value = *value;
      return field;
    }
    std::optional<uint64_t> length;
    if ((*tag & 7) == kFixed64) length = 8;
    if ((*tag & 7) == kFixed32) length = 4;
    if ((*tag & 7) == kLengthDelimited) length = varint();
    const auto content = length ? bytes(*length) : std::nullopt;
    if (!content) return std::nullopt;
    field.content = *content;
    return field;
  }

 private:
  std::string_view rest_;
};

bool read_ids(std::string_view response, std::vector<int>& ids) {
  Reader fields(response);
  while (!fields.at_end()) {
    const auto field = fields.next();
    if (!field) return false;
    if (field->number != kFirstField) continue;
    if (field->is_varint) ids.push_back(static_cast<int>(field->value));
    // Writers may pack repeated numbers into one field.
    for (Reader packed(field->content); !packed.at_end();) {
      const auto id = packed.varint();
      if (!id) return false;
      ids.push_back(static_cast<int>(*id));
    }
  }
  return true;
}

}  // namespace

std::string queue_query(std::string_view gpu_pci_address) {
  const std::string body = field(kQueueIdQuery, field(kFirstField, gpu_pci_address.substr(0, 100)));
  return std::string{'\0', static_cast<char>(body.size())} + body;
}

std::optional<std::vector<int>> queue_ids_in(std::string_view message) {
  std::optional<std::vector<int>> ids;
  Reader fields(message);
  while (!fields.at_end()) {
    const auto field = fields.next();
    if (!field) return std::nullopt;
    if (field->number != kQueueIdResponse || field->is_varint) continue;
    if (!ids) ids.emplace();
    if (!read_ids(field->content, *ids)) return std::nullopt;
  }
  return ids;
}

}  // namespace tcpx::doctor
