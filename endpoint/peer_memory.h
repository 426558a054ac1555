// PeerMemory: bounds how much all peers of an endpoint together can make it hold, whoever they are.
//
// A connection has a place from before its set-up until nothing of it is left. A place starts with kFloorBytes, which is enough for
// every peer to work: small windows (wire/credit_windows.h), a frame that is half read, answers that have not left. Places grow while
// something is left. When little is left, windows stay small and the peers' messages wait at the peers; nothing is lost.
//
// The places of one address together get at most as much as is still free. So the first greedy address gets half, the second a
// quarter, and something is always left for one that comes later. A connection that this end asks for is not refused for its
// address, because no stranger has chosen that.
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
  /// Of each connection: 1 MiB of windows, a frame of 2 MiB, and 1 MiB for answers and the connection itself.
  static constexpr uint64_t kFloorBytes = 4u << 20;
  /// Smallest bound for all connections: enough for a few.
  static constexpr uint64_t kLeastBytes = 32u << 20;

  /// @param most bytes for all connections together, at least kLeastBytes
  explicit PeerMemory(uint64_t most) : most_(most) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

 private:
  struct Address {
    uint64_t places = 0, bytes = 0;
  };

 public:
  /// Default bound in bytes: a share of the memory that this process may use.
  static uint64_t usual_bytes();
  /// The bound from `config`, else from the environment, else the default. Part of it goes to the inbox (notify_inbox.h).
  /// @return kInvalidArgument or kBadConfig: less than kLeastBytes
  static Result<uint64_t> configured(const EndpointConfig& config);

  /// The place of one connection. Gives everything back at its end; the PeerMemory must outlive it.
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

    /// @param part grows only if at most 1/part of all is taken afterwards
    /// @return false: nothing has changed
    bool grow(uint64_t bytes, uint64_t part = 1);
    void shrink(uint64_t bytes);
    /// True when more than half of all is taken: give back what is not needed.
    bool is_crowded() const;
    uint64_t bytes() const { return bytes_; }

   private:
    friend class PeerMemory;
    PeerMemory* all_ = nullptr;
    std::map<std::string, Address>::iterator of_ = {};
    uint64_t bytes_ = 0;
  };
  /// @param invited this end asked for the connection. @return kExhausted: no room for one more connection, or for that address
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
  std::map<std::string, Address> addresses_ TCPX_GUARDED_BY(mutex_);  // only addresses that have places
};

}  // namespace tcpx
