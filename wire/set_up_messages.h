// The frames with which a connection is set up: one encode and one decode function per type. Pure: no socket, no clock, no log.
//
// Decoding trusts nothing: counts and lengths are bounded before use, every byte of a payload must be accounted for, and text is
// made printable because it ends in logs. A frame of another type, or a payload that does not add up, is kProtocol.
//
// A text is a u16 length and so many bytes, at most 1024. The fields, in the header's `value` or the payload:
//
//   type        value     payload
//   hello       -         text: version of the sender's build. The first frame of each side, the client's first
//   parameters  -         u32 count, then name and value of each as texts; programs compare them
//   handles     -         u32 count, u32 bytes per handle (128), then the handles
//   barrier     number    -  (how many barriers the sender has entered, this one included)
//   finish      code      what failed (Code in tcpx/status.h). The sender's last frame
//
// An end that has done its part sends frames of messages.h at once; the other finds them behind the last frame of the set-up.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tcpx/status.h"
#include "tcpx/types.h"
#include "wire/frame.h"

namespace tcpx {

inline constexpr size_t kMaxHandlesPerFrame = 256;
inline constexpr size_t kMaxParameters = 30;
inline constexpr size_t kMaxParameterBytes = 1024;

/// Program parameters by name ("bytes" -> "4096"): at most kMaxParameters, names and values of at most kMaxParameterBytes each.
using Parameters = std::map<std::string, std::string>;

/// @return kInvalidArgument when there are none or more than kMaxHandlesPerFrame.
Result<Frame> encode_handles(std::span<const Handle> handles);
/// @return kProtocol when the payload is not a list of 1 ... `max_count` handles.
Result<std::vector<Handle>> decode_handles(const Frame& frame, size_t max_count);

/// @return kInvalidArgument when there are too many or one is too long.
Result<Frame> encode_parameters(const Parameters& parameters);
Result<Parameters> decode_parameters(const Frame& frame);
/// @return kMismatch naming each one of `must_match` that differs, with both values.
Status compare_parameters(const Parameters& mine, const Parameters& theirs, std::span<const std::string_view> must_match);

Frame encode_hello(std::string_view build_version);
/// Text with everything that is not printable replaced, as it may end in a log.
Result<std::string> decode_hello(const Frame& frame);

/// `number`: how many barriers the sender has entered, this one included.
Frame encode_barrier(uint64_t number);
Result<uint64_t> decode_barrier(const Frame& frame);

Frame encode_finish(const Status& status);
/// The sender's report as a Status of this side (status_of_peer). Writes `reported` only on success.
Status decode_finish(const Frame& frame, Status& reported);

}  // namespace tcpx
