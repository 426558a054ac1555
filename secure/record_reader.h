// Reads a stream of encrypted records from a non-blocking socket.
//
// A record is decrypted in this reader's buffer and copied from there once it has proved genuine, so no other byte ever reaches the
// destination; and memory that has gone away ends the copy, not the process (base/guarded_copy.h).
#pragma once

#include <memory>
#include <optional>

#include "secure/record_cipher.h"

namespace tcpx {

/// One thread at a time. After an error it is of no further use.
class RecordReader {
 public:
  /// @param fd must outlive it. @param records of full length for which its buffer has room
  RecordReader(int fd, std::unique_ptr<RecordCipher> cipher, size_t records = 8);

  /// Fills the room in order, with what has come. @param room not empty
  /// @return number of bytes, 0: the stream has ended; nullopt: none now, and the socket has shown that it is empty. Errors come after all
  /// bytes from before them: kProtocol: what came is not what the peer sent; the socket's; kSystem with EFAULT: the room is missing
  Result<std::optional<size_t>> read(std::span<const iovec> room);
  /// The alert with which the peer has ended the stream (RFC 8446, 6); nullopt: it has not ended, or it was cut off.
  std::optional<uint8_t> alert() const { return alert_; }
  /// After nullopt: bytes of a record whose rest is still to come.
  size_t held() const { return end_ - begin_; }
  /// Bytes read from the socket.
  uint64_t received() const { return received_; }

 private:
  /// Opens the next record if the whole of it is here.
  Result<bool> open_next();
  /// Takes what the socket has. @return as `read`; a number: more has come
  Result<std::optional<size_t>> receive();

  const int fd_;
  const std::unique_ptr<RecordCipher> cipher_;
  const size_t buffer_bytes_;
  const std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;    // of the records that are not open yet
  std::span<std::byte> content_;  // of the one that is: what has not been copied; lies before begin_
  uint64_t received_ = 0;
  bool drained_ = false;  // the socket had less than there was room for
  std::optional<uint8_t> alert_;
  Status broken_;
};

}  // namespace tcpx
