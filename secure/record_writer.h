// Writes a stream as encrypted records to a non-blocking socket.
//
// It says of content that it is gone only when the kernel has its whole record: so a sender that goes away once all is gone leaves
// nothing behind, as with a socket in clear. Until then the caller keeps its place in the stream; it may already change the memory.
#pragma once

#include <memory>
#include <vector>

#include "secure/record_cipher.h"

namespace tcpx {

/// One thread at a time. After an error it is of no further use.
class RecordWriter {
 public:
  /// @param fd must outlive it. @param records of full length for which its buffer has room
  RecordWriter(int fd, std::unique_ptr<RecordCipher> cipher, size_t records = 8);

  /// Records are sealed that the kernel does not have: `write` sends them, whatever its content.
  bool has_unsent() const { return sent_ < end_; }
  /// Seals as much of the content as fits, unless records are unsent, and sends what the socket takes. The content begins with the first
  /// byte that is not gone. @return bytes that are gone now, 0: the socket is full; the socket's error; those of RecordCipher::seal
  Result<size_t> write(std::span<const iovec> content);
  /// Tells the peer that no more follows, unless records are unsent, and as far as the socket takes it at once. The last call.
  void end();

 private:
  Status seal(std::span<const iovec> content);
  /// Sends what the socket takes.
  Status send();

  const int fd_;
  const std::unique_ptr<RecordCipher> cipher_;
  const size_t buffer_bytes_;
  const std::unique_ptr<std::byte[]> buffer_;
  size_t sent_ = 0, end_ = 0;      // of the buffer
  size_t content_ = 0, told_ = 0;  // in the buffer; of it, so much is gone
  std::vector<iovec> parts_;       // of one record; reused
};

}  // namespace tcpx
