#include "wire/set_up_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "wire/operation_payload.h"

namespace tcpx {
namespace {

constexpr size_t kMaxTextBytes = 1024;
static_assert(kMaxParameterBytes <= kMaxTextBytes);
static_assert(4 + kMaxParameters * 2 * (2 + kMaxParameterBytes) <= kMaxSetUpPayloadBytes,
              "any legal set of parameters fits one frame");
static_assert(8 + kMaxHandlesPerFrame * kHandleBytes <= kMaxSetUpPayloadBytes, "any legal set of handles fits one frame");

Status bad_message(std::string detail) {
  return Status(Code::kProtocol, "read set-up message", std::move(detail));
}

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  append(out, std::as_bytes(std::span(&value, 1)));
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  const auto length = static_cast<uint16_t>(std::min(text.size(), kMaxTextBytes));
  put(out, length);
  append(out, text.substr(0, length));
}

// Takes fields from the front of a payload; `false` when they are not there.
class Reader {
 public:
  explicit Reader(const Frame& frame) : rest_(frame.payload) {}

  template <class T>
  bool take(T& value) {
    if (rest_.size() < sizeof value) return false;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return true;
  }

  bool take_text(std::string& text) {
    uint16_t length = 0;
    if (!take(length) || length > kMaxTextBytes || rest_.size() < length) return false;
    text.assign(reinterpret_cast<const char*>(rest_.data()), length);
    rest_ = rest_.subspan(length);
    return true;
  }

  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

Status require_type(const Frame& frame, FrameType type) {
  if (frame.type == type) return Status::ok();
  return bad_message(concat("expected a ", name_of(type), " frame, got ", name_of(frame.type)));
}

}  // namespace

// Handles: u32 count, u32 bytes per handle, then the handles.

Result<Frame> encode_handles(std::span<const Handle> handles) {
  if (handles.empty() || handles.size() > kMaxHandlesPerFrame) {
    return Status(Code::kInvalidArgument, "encode handles",
                  concat(handles.size(), " handles, expected 1 to ", kMaxHandlesPerFrame));
  }
  Frame frame{FrameType::kHandles, {}};
  put(frame.payload, static_cast<uint32_t>(handles.size()));
  put(frame.payload, static_cast<uint32_t>(kHandleBytes));
  for (const Handle& handle : handles) put(frame.payload, handle.bytes);
  return frame;
}

Result<std::vector<Handle>> decode_handles(const Frame& frame, size_t max_count) {
  TCPX_RETURN_IF_ERROR(require_type(frame, FrameType::kHandles));
  Reader reader(frame);
  uint32_t count = 0, handle_bytes = 0;
  if (!reader.take(count) || !reader.take(handle_bytes)) return bad_message("handle list without count");
  if (handle_bytes != kHandleBytes) return bad_message(concat("handles of ", handle_bytes, " bytes, expected ", kHandleBytes));
  const size_t limit = std::min<size_t>(max_count, kMaxHandlesPerFrame);
  if (count == 0 || count > limit) return bad_message(concat(count, " handles, expected 1 to ", limit));
  if (reader.left() != count * kHandleBytes) {
    return bad_message(concat(count, " handles announced, ", reader.left(), " bytes of them present"));
  }
  std::vector<Handle> handles(count);
  for (Handle& handle : handles) reader.take(handle.bytes);
  return handles;
}

// Parameters: u32 count, then name and value of each as texts (u16 length, bytes).

Result<Frame> encode_parameters(const Parameters& parameters) {
  constexpr const char* kEncode = "encode parameters";
  if (parameters.size() > kMaxParameters) {
    return Status(Code::kInvalidArgument, kEncode, concat(parameters.size(), " parameters, the limit is ", kMaxParameters));
  }
  Frame frame{FrameType::kParameters, {}};
  put(frame.payload, static_cast<uint32_t>(parameters.size()));
  for (const auto& [name, value] : parameters) {
    if (name.size() > kMaxParameterBytes || value.size() > kMaxParameterBytes) {
      return Status(Code::kInvalidArgument, kEncode, concat("name or value longer than ", kMaxParameterBytes, " bytes"));
    }
    put_text(frame.payload, name);
    put_text(frame.payload, value);
  }
  return frame;
}

Result<Parameters> decode_parameters(const Frame& frame) {
  TCPX_RETURN_IF_ERROR(require_type(frame, FrameType::kParameters));
  Reader reader(frame);
  uint32_t count = 0;
  if (!reader.take(count) || count > kMaxParameters) return bad_message("parameter list with a bad count");
  Parameters parameters;
  for (uint32_t i = 0; i < count; ++i) {
    std::string name, value;
    if (!reader.take_text(name) || !reader.take_text(value)) return bad_message(concat("parameter ", i, " is cut short"));
    if (!parameters.emplace(std::move(name), std::move(value)).second)
      return bad_message(concat("parameter ", i, " comes twice"));
  }
  if (reader.left() != 0) return bad_message(concat(reader.left(), " bytes after the last parameter"));
  return parameters;
}

Status compare_parameters(const Parameters& mine, const Parameters& theirs, std::span<const std::string_view> must_match) {
  std::string differences;
  const auto value_in = [](const Parameters& parameters, const std::string& name) {
    const auto found = parameters.find(name);
    return found != parameters.end() ? found->second : std::string("not given");
  };
  for (const std::string_view name_view : must_match) {
    const std::string name(name_view);
    const std::string here = value_in(mine, name), there = value_in(theirs, name);
    if (here == there) continue;
    differences += concat(differences.empty() ? "" : "; ", name, " is ", here, " here and ",
                          printable(std::as_bytes(std::span(there)), kMaxParameterBytes), " at the peer");
  }
  return differences.empty() ? Status::ok() : Status(Code::kMismatch, "compare parameters", differences);
}

Frame encode_hello(std::string_view build_version) {
  Frame frame{FrameType::kHello, {}};
  put_text(frame.payload, build_version);
  return frame;
}

Result<std::string> decode_hello(const Frame& frame) {
  TCPX_RETURN_IF_ERROR(require_type(frame, FrameType::kHello));
  Reader reader(frame);
  std::string version;
  if (!reader.take_text(version) || reader.left() != 0) return bad_message("malformed hello");
  return printable(std::as_bytes(std::span(version)), kMaxTextBytes);
}

Frame encode_barrier(uint64_t number) {
  return {.type = FrameType::kBarrier, .value = number};
}

Result<uint64_t> decode_barrier(const Frame& frame) {
  TCPX_RETURN_IF_ERROR(require_type(frame, FrameType::kBarrier));
  return frame.value;
}

Frame encode_finish(const Status& status) {
  Frame frame{.type = FrameType::kFinish, .value = static_cast<uint64_t>(status.code())};
  append(frame.payload, text_for_peer(status));
  return frame;
}

Status decode_finish(const Frame& frame, Status& reported) {
  TCPX_RETURN_IF_ERROR(require_type(frame, FrameType::kFinish));
  reported = status_of_peer(frame.value, frame.payload);
  return Status::ok();
}

}  // namespace tcpx
