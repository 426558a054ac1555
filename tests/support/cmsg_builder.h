// Writes control messages byte by byte, right and wrong ones, in the layout of a 64-bit kernel: u64 length, i32 level, i32
// type, payload, padding to 8. It shares no constant and no structure with the parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "rx/rx_cmsg_parser.h"

namespace tcpx::testing {

inline constexpr int kSolSocket = 1;
inline constexpr uint64_t kCmsgHeaderBytes = 16;

class CmsgBuilder {
 public:
  explicit CmsgBuilder(CmsgDialect dialect) : google_(dialect == CmsgDialect::kGoogle) {}

  int device_type() const { return google_ ? 99 : 79; }
  int linear_type() const { return google_ ? 98 : 78; }
  uint64_t record_bytes() const { return google_ ? 12 : 24; }

  /// Appends a complete record for bytes in device memory. @return its place in the buffer.
  size_t device(uint64_t src_off, uint32_t len, uint32_t token, uint32_t dmabuf_id = 0) {
    return message(kSolSocket, device_type(), record(src_off, len, token, dmabuf_id));
  }
  /// Appends a complete record for bytes in host memory.
  size_t linear(uint32_t len) { return message(kSolSocket, linear_type(), record(0, len, 0, 0)); }

  size_t message(int level, int type, std::span<const std::byte> payload) {
    return lying_message(kCmsgHeaderBytes + payload.size(), level, type, payload);
  }
  /// A message with `cmsg_len` in its header, regardless of the size of `payload`.
  size_t lying_message(uint64_t cmsg_len, int level, int type, std::span<const std::byte> payload) {
    const size_t at = bytes_.size();
    put(cmsg_len);
    put(static_cast<int32_t>(level));
    put(static_cast<int32_t>(type));
    bytes_.insert(bytes_.end(), payload.begin(), payload.end());
    while (bytes_.size() % 8 != 0) bytes_.push_back(std::byte{0xEE});
    return at;
  }

  std::vector<std::byte> record(uint64_t src_off, uint32_t len, uint32_t token, uint32_t dmabuf_id) const {
    CmsgBuilder out(*this);
    out.bytes_.clear();
    if (google_) {
      out.put(static_cast<uint32_t>(src_off));
    } else {
      out.put(src_off);
    }
    out.put(len);
    out.put(token);
    if (!google_) {
      out.put(dmabuf_id);
      out.put(uint32_t{0});
    }
    return out.bytes_;
  }

  /// Imitates a kernel that runs out of space in the last record without reporting it.
  void cut_last(size_t bytes) { bytes_.resize(bytes_.size() - bytes); }

  std::vector<std::byte>& bytes() { return bytes_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class T>
  void put(T value) {
    std::byte raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
  }

  bool google_;
  std::vector<std::byte> bytes_;
};

}  // namespace tcpx::testing
