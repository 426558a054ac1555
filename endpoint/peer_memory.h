// PeerMemory: how much the peers of an endpoint may make it hold together, whoever they are.
//
// A connection has a place from before it is set up until nothing of it is left. A place begins with kFloorBytes, which let every
// peer work: small windows (wire/credit_windows.h), a frame that is half read, answers that have not left. What goes beyond
// comes out of what is left. When little is left, windows stay small, and what their peers say waits at the peers; nothing is lost.
//
// Places of one address together get at most as much as nobody has. One that takes all it can have gets half, a second one then a
// quarter, and there is always something left for one that comes later. Connections that this end asks for are not refused for
// their address, for no stranger has chosen it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "tcpx/endpoint.h"
#include "tcpx/status.h"

namespace tcpx {

/// Any thread.
class PeerMemory {
 public:
  /// Of a connection: 1 MiB of windows, a frame of 2 MiB, and 1 MiB for answers and all that is there to talk at all.
  static constexpr uint64_t kFloorBytes = 4u << 20;
  /// Of all: a few connections.
  static constexpr uint64_t kLeastBytes = 32u << 20;

  /// @param most bytes that all have together, at least kLeastBytes
  explicit PeerMemory(uint64_t most) : most_(most) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

 private:
  struct Address {
    uint64_t places = 0, bytes = 0;
  };

 public:
  /// A share of what this process may use, in bytes.
  static uint64_t usual_bytes();
  /// The bound that an endpoint is given, or the environment's, or the usual one. Some of it is the inbox's (notify_inbox.h).
  /// @return kInvalidArgument or kBadConfig: less than kLeastBytes
  static Result<uint64_t> configured(const EndpointConfig& config);

  /// Of one connection. Gives everything back at its end; the PeerMemory must outlive it.
  class Place {
   public:
    Place() = default;  ///< of no PeerMemory: nothing is counted or refused
    Place(Place&& other) noexcept
        : all_(std::exchange(other.all_, nullptr)), of_(other.of_), bytes_(std::exchange(other.bytes_, 0)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(all_, other.all_);
      std::swap(of_, other.of_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Place();

    /// @param part only where less than one `part`-th of all is taken then; 1: where there is any
    /// @return false: nothing has changed
    bool grow(uint64_t bytes, uint64_t part = 1);
    void shrink(uint64_t bytes);
    /// More than half of all is taken: what this one can do without is to go back.
    bool is_crowded() const;
    uint64_t bytes() const { return bytes_; }

   private:
    friend class PeerMemory;
    PeerMemory* all_ = nullptr;
    std::map<std::string, Address>::iterator of_ = {};
    uint64_t bytes_ = 0;
  };
  /// @param invited this end has asked for the connection. @return kExhausted: there is no room for one more, or for that address
  Result<Place> admit(const std::string& address, bool invited) TCPX_EXCLUDES(mutex_);

  uint64_t held() const TCPX_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return held_;
  }
  uint64_t most() const { return most_; }

 private:
  void add(Place& place, uint64_t bytes) TCPX_REQUIRES(mutex_);

  const uint64_t most_;
  mutable Mutex mutex_;
  uint64_t held_ TCPX_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Address> addresses_ TCPX_GUARDED_BY(mutex_);  // that have places
};

}  // namespace tcpx
