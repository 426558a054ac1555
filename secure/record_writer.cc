#include "secure/record_writer.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/socket_io.h"

namespace tcpx {

RecordWriter::RecordWriter(int fd, std::unique_ptr<RecordCipher> cipher, size_t records)
    : fd_(fd),
      cipher_(std::move(cipher)),
      buffer_bytes_(records * RecordCipher::kMostBytes),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(buffer_bytes_)) {}

Status RecordWriter::seal(std::span<const iovec> content) {
  sent_ = end_ = content_ = told_ = 0;
  size_t done = 0;  // of the first piece
  while (!content.empty() && end_ + RecordCipher::kMostBytes <= buffer_bytes_) {
    parts_.clear();
    size_t room = RecordCipher::kContentBytes;
    while (!content.empty() && room > 0) {
      const iovec& piece = content.front();
      const size_t bytes = std::min(room, piece.iov_len - done);
      parts_.push_back({static_cast<std::byte*>(piece.iov_base) + done, bytes});
      room -= bytes;
      done += bytes;
      if (done < piece.iov_len) continue;
      content = content.subspan(1);
      done = 0;
    }
    TCPX_RETURN_IF_ERROR(cipher_->seal(parts_, buffer_.get() + end_));
    content_ += RecordCipher::kContentBytes - room;
    end_ += RecordCipher::kMostBytes - room;
  }
  return Status::ok();
}

Status RecordWriter::send() {
  while (has_unsent()) {
    const ssize_t n = ::send(fd_, buffer_.get() + sent_, end_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      return stream_error("send", errno);
    }
  }
  return Status::ok();
}

Result<size_t> RecordWriter::write(std::span<const iovec> content) {
  if (!has_unsent()) TCPX_RETURN_IF_ERROR(seal(content));
  TCPX_RETURN_IF_ERROR(send());
  // All records but the last are full.
  const size_t gone = has_unsent() ? sent_ / RecordCipher::kMostBytes * RecordCipher::kContentBytes : content_;
  return gone - std::exchange(told_, gone);
}

void RecordWriter::end() {
  if (has_unsent()) return;
  std::array<std::byte, 2> close_notify{std::byte{1}, std::byte{0}};  // RFC 8446, 6: its level, and what it is
  const iovec content{close_notify.data(), close_notify.size()};
  sent_ = end_ = 0;
  if (!cipher_->seal({&content, 1}, buffer_.get(), RecordCipher::Type::kAlert).is_ok()) return;
  end_ = RecordCipher::kOverheadBytes + close_notify.size();
  (void)send();
}

}  // namespace tcpx
