// Sends that the kernel makes without a copy (MSG_ZEROCOPY): it reads the sender's memory until the peer has acknowledged the bytes.
//
// Each sendmsg with that flag that succeeds takes the next number, modulo 2^32. When the kernel reads its memory no longer, it puts the
// number into the socket's error queue: as a range with its neighbours, and not always in order.
//
// The flag is only a wish. Where a driver cannot gather pages the kernel copies after all, and says so afterwards; and it refuses a send
// when the user has locked too many pages, when too many notifications are under way, or when it cannot hold the memory. All of these
// cost more than a send without the flag, so a socket that has met only such answers for a while stops asking.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <map>

namespace tcpx {

/// One socket's sends without a copy: which of them are over. One thread at a time.
class ZeroCopySends {
 public:
  static constexpr uint32_t kInVain = 8;  ///< so many bad answers in a row, and is_worth_it() is false

  /// @param first number of the first send; a socket begins at 0
  explicit ZeroCopySends(uint64_t first = 0) : next_(first), oldest_(first) {}

  /// A send has succeeded. @return its number
  uint64_t sent() {
    refused_ = 0;
    return next_++;
  }
  /// The kernel has refused to send without a copy.
  void refused() { ++refused_; }
  /// The kernel has reported that sends `first` to `last`, counted modulo 2^32, are over.
  void over(uint32_t first, uint32_t last, bool copied);

  /// The kernel reads the memory of send `number`, and of all before it, no longer.
  bool is_over(uint64_t number) const { return number < oldest_; }
  bool all_over() const { return oldest_ == next_; }
  /// Reports of sends that were copied after all.
  uint64_t all_copied() const { return all_copied_; }
  bool is_worth_it() const { return copied_ < kInVain && refused_ < kInVain; }
  /// The reason when is_worth_it() is false.
  const char* trouble() const { return copied_ < kInVain ? "the kernel refuses zero copy" : "the kernel copies anyway"; }

 private:
  uint64_t next_;
  uint64_t oldest_;                     // all before it are over
  std::map<uint64_t, uint64_t> early_;  // over, though an earlier one is not: first number to the one after the last
  uint32_t copied_ = 0, refused_ = 0;   // in a row
  uint64_t all_copied_ = 0;
};

/// Lets sends on a TCP socket ask for it. False: this kernel cannot.
bool allow_zero_copy(int fd);
/// Takes what a message of the socket's error queue tells.
void take_notification(msghdr& message, ZeroCopySends& sends);
/// Reads the socket's error queue to its end.
void read_notifications(int fd, ZeroCopySends& sends);
/// True for an errno of a send without a copy that a send with one need not meet.
bool is_refusal(int error);

}  // namespace tcpx
