// Conversations with services behind unix sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tcpx::doctor {

struct ServiceAnswer {
  enum class End : uint8_t {
    kConnected,  ///< and nothing was asked
    kAnswered,
    kAbsent,   ///< no such file
    kDenied,   ///< this user may not
    kRefused,  ///< a socket that nobody listens on
    kClosed,   ///< it closed the connection in place of an answer
    kSilent,   ///< no answer in time, or it accepts nobody
    kFailed,   ///< anything else: `detail`
  };
  End end = End::kAbsent;
  std::string message;  ///< of kAnswered, without its length
  std::string detail;
};

class ServiceSource {
 public:
  virtual ~ServiceSource() = default;
  /// Connects to the stream socket at `path`; sends `request` unless it is empty, and reads one answer that has its length in
  /// front, 2 bytes, big endian. Then closes.
  virtual ServiceAnswer talk(const std::string& path, std::string_view request) = 0;
};

/// @param limit for each conversation
std::unique_ptr<ServiceSource> make_service_source(Duration limit = std::chrono::seconds(2));

}  // namespace tcpx::doctor
