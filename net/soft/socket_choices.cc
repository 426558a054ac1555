#include "net/soft/socket_choices.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "net/soft/soft_table.h"

namespace tcpx::soft {

bool ToldChoices::choose(uint64_t sequence, bool device) {
  if (std::exchange(chosen_, device) == device) return false;
  choice_ = {.sequence = sequence, .device = device};
  return true;
}

bool ToldChoices::tell(const ControlSocket& socket) {
  while (left_ > 0 || choice_) {
    if (left_ == 0) {
      encode_choice(*choice_, record_);
      left_ = kChoiceBytes;
      choice_.reset();
    }
    const auto sent = socket.try_send(std::span(record_).last(left_));
    if (!sent.is_ok()) return true;  // the socket's handler sees that, too
    left_ -= *sent;
    if (left_ > 0) return false;
  }
  return true;
}

// Numbers grow, and are below that of the last receive that can be posted. So those that no message has passed are few.
Status HeardChoices::take(std::span<const std::byte> bytes, uint64_t posted) {
  while (!bytes.empty()) {
    const auto taken = bytes.first(std::min(bytes.size(), kChoiceBytes - read_));
    std::copy(taken.begin(), taken.end(), record_.begin() + static_cast<ptrdiff_t>(read_));
    read_ += taken.size();
    bytes = bytes.subspan(taken.size());
    if (read_ < kChoiceBytes) break;
    read_ = 0;
    TCPX_ASSIGN_OR_RETURN(const SocketChoice choice, decode_choice(record_));
    const bool grows = choices_.empty() || choice.sequence > choices_.back().sequence;
    if (!grows || choice.sequence >= posted + kRequests)
      return Status(Code::kProtocol, "control socket", concat("choice of sockets for message ", choice.sequence));
    choices_.push_back(choice);
  }
  return Status::ok();
}

std::optional<bool> HeardChoices::device_for(uint64_t posted) {
  while (choices_.size() > 1 && choices_[1].sequence <= posted) choices_.pop_front();
  if (choices_.empty() || choices_.front().sequence > posted) return std::nullopt;
  return choices_.front().device;
}

}  // namespace tcpx::soft
