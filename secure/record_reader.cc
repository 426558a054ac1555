#include "secure/record_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/guarded_copy.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr const char* kReceive = "receive";
constexpr size_t kAlertBytes = 2;

}  // namespace

RecordReader::RecordReader(int fd, std::unique_ptr<RecordCipher> cipher, size_t records)
    : fd_(fd),
      cipher_(std::move(cipher)),
      buffer_bytes_(records * RecordCipher::kMostBytes),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(buffer_bytes_)) {}

Result<bool> RecordReader::open_next() {
  const auto come = std::span(buffer_.get(), end_).subspan(begin_);
  if (come.size() < RecordCipher::kHeadBytes) return false;
  TCPX_ASSIGN_OR_RETURN(const size_t size, RecordCipher::size_of(come.first<RecordCipher::kHeadBytes>()));
  if (come.size() < size) return false;
  TCPX_ASSIGN_OR_RETURN(const RecordCipher::Opened opened, cipher_->open(come.first(size)));
  begin_ += size;
  if (opened.type == RecordCipher::Type::kData) {
    content_ = opened.content;
  } else if (opened.content.size() == kAlertBytes) {
    alert_ = std::to_integer<uint8_t>(opened.content[1]);
  } else {
    return Status(Code::kProtocol, kReceive, concat("an alert of ", opened.content.size(), " bytes"));
  }
  return true;
}

Result<std::optional<size_t>> RecordReader::receive() {
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  const size_t room = buffer_bytes_ - end_;
  ssize_t n = 0;
  do n = ::recv(fd_, buffer_.get() + end_, room, MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  drained_ = n < static_cast<ssize_t>(room);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Result(std::optional<size_t>()) : stream_error(kReceive, errno);
  end_ += static_cast<size_t>(n);
  received_ += static_cast<uint64_t>(n);
  return std::optional(static_cast<size_t>(n));
}

Result<std::optional<size_t>> RecordReader::read(std::span<const iovec> room) {
  size_t filled = 0;
  for (size_t used = 0; !room.empty() && broken_.is_ok();) {  // of the first piece
    const iovec& piece = room.front();
    if (used == piece.iov_len) {
      room = room.subspan(1);
      used = 0;
    } else if (!content_.empty()) {
      const size_t bytes = std::min(content_.size(), piece.iov_len - used);
      const int error = guarded_copy(static_cast<std::byte*>(piece.iov_base) + used, content_.data(), bytes);
      if (error != 0) broken_ = system_error(kReceive, error);
      content_ = content_.subspan(bytes);
      used += bytes;
      filled += error == 0 ? bytes : 0;
    } else if (alert_) {
      return std::optional(filled);
    } else if (const auto opened = open_next(); !opened.is_ok()) {
      broken_ = opened.status();
    } else if (!*opened) {  // less than one record is here
      if (filled > 0 && drained_) break;
      const auto come = receive();
      if (!come.is_ok()) {
        broken_ = come.status();
      } else if (come->value_or(0) == 0) {
        return filled > 0 ? std::optional(filled) : *come;
      }
    }
  }
  if (filled == 0 && !broken_.is_ok()) return broken_;
  return std::optional(filled);
}

}  // namespace tcpx
