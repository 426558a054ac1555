// The walk trusts two things only: the buffer it was given and the record size of the chosen dialect. It walks by offset and
// copies every structure out, because the buffer may have any alignment and CMSG_NXTHDR, as some C libraries implement it,
// trusts cmsg_len.
#include "rx/rx_cmsg_parser.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

namespace tcpx {
namespace {

// google/nccl-plugin-gpudirecttcpx: src/sock/tcpx.h (process_recv_cmsg) and src/macro.h (SCM_DEVMEM_HEADER, SCM_DEVMEM_OFFSET),
// 2024.
struct GoogleRecord {
  static constexpr int kLinearType = 98;
  static constexpr int kDeviceType = 99;
  uint32_t frag_offset;
  uint32_t frag_size;
  uint32_t frag_token;
};
static_assert(sizeof(GoogleRecord) == 12 && offsetof(GoogleRecord, frag_size) == 4 && offsetof(GoogleRecord, frag_token) == 8);

// torvalds/linux: include/uapi/linux/uio.h (struct dmabuf_cmsg), include/uapi/asm-generic/socket.h (SCM_DEVMEM_LINEAR,
// SCM_DEVMEM_DMABUF) and Documentation/networking/devmem.rst, 6.12. parisc has other numbers and is not supported.
struct LinuxRecord {
  static constexpr int kLinearType = 78;
  static constexpr int kDeviceType = 79;
  uint64_t frag_offset;
  uint32_t frag_size;
  uint32_t frag_token;
  uint32_t dmabuf_id;
  uint32_t flags;  // reserved
};
static_assert(sizeof(LinuxRecord) == 24 && offsetof(LinuxRecord, frag_size) == 8 && offsetof(LinuxRecord, frag_token) == 12 &&
              offsetof(LinuxRecord, dmabuf_id) == 16 && offsetof(LinuxRecord, flags) == 20);

template <class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

uint32_t dmabuf_of(const GoogleRecord&) {
  return 0;
}
uint32_t dmabuf_of(const LinuxRecord& record) {
  return record.dmabuf_id;
}

template <class Record>
class Walk {
 public:
  explicit Walk(const CmsgInput& input) : input_(input) {
    const size_t most = input.control.size() / CMSG_SPACE(sizeof(Record)) + 1;
    out_.fragments.reserve(std::min<size_t>(most, kMaxFragments));
    out_.tokens.reserve(most);
  }

  ParsedCmsg run() {
    const std::span<const std::byte> control = input_.control;
    if (input_.control_truncated) fail(CmsgError::kTruncated, control.size());
    if (input_.dst_off > std::numeric_limits<uint64_t>::max() - input_.received_bytes) fail(CmsgError::kOverflow, control.size());
    for (size_t at = 0; at < control.size();) {
      const std::optional<size_t> step = message(control.subspan(at), at);
      if (!step) break;
      // The padding after the last message may be missing.
      at += std::min(*step, control.size() - at);
    }
    if (placed_bytes_ < input_.received_bytes) {
      const bool none = out_.tokens.empty() && out_.linear_bytes == 0;
      if (none && input_.takes_linear && out_.error == CmsgError::kNone) {
        out_.linear_bytes = input_.received_bytes;
        place(out_.linear, 0, input_.received_bytes, control.size());
      } else {
        fail(none ? CmsgError::kNoRecord : CmsgError::kSizeMismatch, control.size());
      }
    }
    if (out_.error != CmsgError::kNone) out_.fragments.clear(), out_.linear.clear();
    return std::move(out_);
  }

 private:
  void fail(CmsgError error, size_t at) {
    if (out_.error != CmsgError::kNone) return;
    out_.error = error;
    out_.error_at = at;
  }

  /// Takes the message at the front of `rest`. @return the distance to the next one, nullopt when that is unknown.
  std::optional<size_t> message(std::span<const std::byte> rest, size_t at) {
    if (rest.size() < sizeof(cmsghdr)) {
      fail(CmsgError::kShortHeader, at);
      return std::nullopt;
    }
    const auto header = load<cmsghdr>(rest);
    if (header.cmsg_len < CMSG_LEN(0)) {
      fail(CmsgError::kShortHeader, at);
      return std::nullopt;
    }
    if (header.cmsg_len > rest.size()) {
      fail(CmsgError::kShortRecord, at);
      return std::nullopt;
    }
    if (header.cmsg_level == SOL_SOCKET) {
      // Of a longer record than we know only the beginning is read: the kernel appends to its structures and never reorders them.
      const auto payload = rest.subspan(CMSG_LEN(0), header.cmsg_len - CMSG_LEN(0));
      if (header.cmsg_type != Record::kLinearType && header.cmsg_type != Record::kDeviceType) {
        fail(CmsgError::kUnknownType, at);
      } else if (payload.size() < sizeof(Record)) {
        fail(CmsgError::kShortRecord, at);
      } else if (header.cmsg_type == Record::kLinearType) {
        const uint32_t size = load<Record>(payload).frag_size;
        if (!input_.takes_linear) fail(CmsgError::kLinear, at);
        place(out_.linear, out_.linear_bytes, size, at);
        out_.linear_bytes += size;
      } else {
        fragment(load<Record>(payload), at);
      }
    }
    return CMSG_ALIGN(header.cmsg_len);
  }

  void fragment(const Record& record, size_t at) {
    if (out_.tokens.empty()) out_.dmabuf_id = dmabuf_of(record);
    out_.tokens.push_back(record.frag_token);
    if (record.frag_size != 0 && dmabuf_of(record) != out_.dmabuf_id) fail(CmsgError::kMixedDmabufs, at);
    place(out_.fragments, record.frag_offset, record.frag_size, at);
  }

  /// Appends the next `size` bytes of the read to `list`.
  void place(std::vector<Fragment>& list, uint64_t src_off, uint64_t size, size_t at) {
    if (out_.error != CmsgError::kNone) return;
    if (size == 0) {
      fail(CmsgError::kZeroLength, at);
    } else if (src_off >= kMaxPoolBytes || size > kMaxPoolBytes - src_off || size > input_.received_bytes - placed_bytes_) {
      fail(CmsgError::kOverflow, at);
    } else if (size > std::numeric_limits<uint32_t>::max()) {  // of a read without a record
      fail(CmsgError::kOverflow, at);
    } else if (list.size() == kMaxFragments) {
      fail(CmsgError::kTooMany, at);
    } else {
      list.push_back({static_cast<uint32_t>(src_off), static_cast<uint32_t>(size), input_.dst_off + placed_bytes_});
      placed_bytes_ += size;
    }
  }

  const CmsgInput& input_;
  ParsedCmsg out_;
  uint64_t placed_bytes_ = 0;  // never more than received_bytes
};

}  // namespace

std::string_view name_of(CmsgError error) {
  switch (error) {
    case CmsgError::kNone:
      return "none";
    case CmsgError::kTruncated:
      return "control data truncated";
    case CmsgError::kShortHeader:
      return "short header";
    case CmsgError::kShortRecord:
      return "short record";
    case CmsgError::kUnknownType:
      return "unknown type";
    case CmsgError::kLinear:
      return "linear bytes";
    case CmsgError::kZeroLength:
      return "zero length";
    case CmsgError::kOverflow:
      return "overflow";
    case CmsgError::kTooMany:
      return "too many fragments";
    case CmsgError::kMixedDmabufs:
      return "mixed dma-bufs";
    case CmsgError::kSizeMismatch:
      return "size mismatch";
    case CmsgError::kNoRecord:
      return "no record (TCPX_H_NO_CONTROL_MESSAGE)";
  }
  return "unknown error";
}

ParsedCmsg parse_rx_cmsg(const CmsgInput& input) {
  return input.dialect == CmsgDialect::kGoogle ? Walk<GoogleRecord>(input).run() : Walk<LinuxRecord>(input).run();
}

}  // namespace tcpx
