// Help for people beyond an error's name: a sentence, and a link to the documents.
//
// Every Code has an entry in docs/troubleshooting.md under its name. So has every Hint: a well-known mistake or trap that shows
// up under a code too general to tell. Code that knows that a hint applies writes its name into the detail of the Status, or
// into the line that it logs.
#pragma once

#include <iterator>
#include <string>
#include <string_view>

#include "tcpx/status.h"

namespace tcpx {

enum class Hint {
  kUnpackSlow,        ///< the unpacker in use is slower than another one
  kTooManyRequests,   ///< a 17th request was posted
  kConsumedEarly,     ///< received bytes are wrong, perhaps because pages were given back before they were copied
  kTagsIgnored,       ///< a receive waits, or got another message, although its tag equals that of the send meant for it
  kNoControlMessage,  ///< bytes arrived, but no control message said where they lie
};

struct HintText {
  std::string_view name;
  std::string_view sentence;
};

/// In the order of Hint.
inline constexpr HintText kHints[] = {
    {"TCPX_H_UNPACK_SLOW", "Another way to unpack is faster on this machine than the one in use."},
    {"TCPX_H_TOO_MANY_REQUESTS",
     "A comm holds at most 16 requests (of the software plugin 128, unless one is a receive of GPU memory), and a receive counts until "
     "it is consumed; a post beyond is refused."},
    {"TCPX_H_CONSUMED_EARLY",
     "Received pages that are given back before the copy out of them has ended are overwritten by later messages."},
    {"TCPX_H_TAGS_IGNORED",
     "Tags match nothing: the n-th send of a comm meets its n-th receive, so both ends must post in one order."},
    {"TCPX_H_NO_CONTROL_MESSAGE", "Bytes were received, but no control message said where in the bounce pool they lie."},
};
static_assert(std::size(kHints) == static_cast<size_t>(Hint::kNoControlMessage) + 1);

constexpr std::string_view name_of(Hint hint) {
  return kHints[static_cast<size_t>(hint)].name;
}
constexpr std::string_view sentence_of(Hint hint) {
  return kHints[static_cast<size_t>(hint)].sentence;
}

/// " (TCPX_H_...)": the end of a detail that names `hint`.
inline std::string name_in_detail(Hint hint) {
  return std::string(" (").append(name_of(hint)).append(")");
}

/// Meaning of `code` for the person who sees it.
constexpr std::string_view sentence_of(Code code) {
  switch (code) {
    case Code::kOk:
      return "All is well.";
    case Code::kInvalidArgument:
      return "A call was given something that no call of its kind accepts; the program that made it must change.";
    case Code::kNotFound:
      return "A file, device or object that was named does not exist.";
    case Code::kUnsupported:
      return "This machine, this build or this plugin cannot do what was asked for.";
    case Code::kBadConfig:
      return "An environment variable is set to something malformed or out of range; it never falls back to its default.";
    case Code::kTimeout:
      return "What was waited for did not happen before the deadline.";
    case Code::kPeerGone:
      return "The other end closed the connection, died, or cannot be reached.";
    case Code::kProtocol:
      return "The other end, the plugin or the kernel said something that breaks the agreed format, so nothing of it was "
             "believed.";
    case Code::kPlugin:
      return "The net plugin refused a call; its own code and its own log lines say why.";
    case Code::kCuda:
      return "A CUDA call failed; after most of these errors the process must be started anew.";
    case Code::kSystem:
      return "A system call failed; the errno says how.";
    case Code::kExhausted:
      return "Something that is bounded is used up: a queue of ours, or descriptors, memory or ports of this process or machine.";
    case Code::kMismatch:
      return "Two things that must be equal differ: the settings of the two ends, a message's size, or the bytes that arrived.";
    case Code::kInternal:
      return "An exception that nobody expected reached the edge of the library; this is a defect of ours.";
    case Code::kCancelled:
      return "The operation was given up by a caller, here or at the other end.";
    case Code::kCorrupt:
      return "The bytes that arrived are not those that were sent: their checksums differ.";
  }
  return "A code that this version does not know.";
}

/// "The other end closed ... See docs/troubleshooting.md#TCPX_E_PEER_GONE"
inline std::string help_of(Code code) {
  return std::string(sentence_of(code)).append(" See docs/troubleshooting.md#").append(name_of(code));
}
inline std::string help_of(Hint hint) {
  return std::string(sentence_of(hint)).append(" See docs/troubleshooting.md#").append(name_of(hint));
}
/// "help: ..." for the code of `status`, and such a line for each other code (the cause, as a plugin or the peer reported it) and
/// each hint that its detail names; no newline at the end.
inline std::string help_lines(const Status& status) {
  std::string lines = "help: " + help_of(status.code());
  for (int i = 0; i <= static_cast<int>(kLastCode); ++i) {
    const Code code = static_cast<Code>(i);
    const std::string name(name_of(code));
    if (code != status.code() && status.detail().find(name + ":") != std::string::npos) lines += "\nhelp: " + help_of(code);
  }
  for (size_t i = 0; i < std::size(kHints); ++i) {
    if (status.detail().find(kHints[i].name) != std::string::npos) lines += "\nhelp: " + help_of(static_cast<Hint>(i));
  }
  return lines;
}

}  // namespace tcpx
