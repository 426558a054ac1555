#include "secure/record_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/guarded_copy.h"
#include "base/socket_io.h"

namespace tcpx {
namespace {

constexpr const char* kReceive = "receive";

}  // namespace

RecordReader::RecordReader(int fd, std::unique_ptr<RecordCipher> cipher)
    : fd_(fd), cipher_(std::move(cipher)), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

Result<bool> RecordReader::open_next() {
  const auto come = std::span(buffer_.get(), kBufferBytes).first(end_).subspan(begin_);
  if (come.size() < RecordCipher::kHeadBytes) return false;
  TCPX_ASSIGN_OR_RETURN(const size_t size, RecordCipher::size_of(come.first<RecordCipher::kHeadBytes>()));
  if (come.size() < size) return false;
  TCPX_ASSIGN_OR_RETURN(content_, cipher_->open(come.first(size)));
  begin_ += size;
  return true;
}

Result<std::optional<size_t>> RecordReader::read(std::span<const iovec> room) {
  size_t filled = 0;
  for (size_t used = 0; !room.empty();) {  // of the first piece
    const iovec& piece = room.front();
    if (used == piece.iov_len) {
      room = room.subspan(1);
      used = 0;
      continue;
    }
    if (!content_.empty()) {
      const size_t bytes = std::min(content_.size(), piece.iov_len - used);
      const int error = guarded_copy(static_cast<std::byte*>(piece.iov_base) + used, content_.data(), bytes);
      if (error != 0) return system_error(kReceive, error);
      content_ = content_.subspan(bytes);
      used += bytes;
      filled += bytes;
      continue;
    }
    TCPX_ASSIGN_OR_RETURN(const bool opened, open_next());
    if (opened) continue;
    if (filled > 0) break;
    // Less than one record is here.
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    const ssize_t n = ::recv(fd_, buffer_.get() + end_, kBufferBytes - end_, MSG_DONTWAIT);
    if (n == 0) return std::optional<size_t>(0);
    if (n > 0) {
      end_ += static_cast<size_t>(n);
      received_ += static_cast<uint64_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return std::optional<size_t>();
    } else if (errno != EINTR) {
      return stream_error(kReceive, errno);
    }
  }
  return std::optional<size_t>(filled);
}

}  // namespace tcpx
