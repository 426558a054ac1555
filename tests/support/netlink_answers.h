// Answers of a kernel over netlink, in the order of the questions, which can be read afterwards.
#pragma once

#include <gtest/gtest.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "base/netlink.h"

namespace tcpx::testing {

class NetlinkAnswers {
 public:
  NetlinkAnswers() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    near_ = UniqueFd(ends[0]);
    far_ = UniqueFd(ends[1]);
  }

  /// Call once.
  NetlinkSocket socket() { return NetlinkSocket(std::move(near_)); }

  /// Answers with these attributes.
  void answer(const Bytes& attributes) {
    Bytes body = bytes_of(genlmsghdr{.cmd = 1, .version = 1, .reserved = 0});
    body.insert(body.end(), attributes.begin(), attributes.end());
    put(NLMSG_MIN_TYPE, 0, body);
  }
  void family(uint16_t id) {
    Bytes attributes;
    append_attribute(attributes, CTRL_ATTR_FAMILY_ID, bytes_of(id));
    answer(attributes);
  }
  /// @param capped the kernel repeats the header of the question only
  void refuse(int error, const std::string& words = {}, bool capped = true) {
    constexpr size_t kQuestionBytes = 24;
    Bytes body = bytes_of(-error);
    Bytes question = bytes_of(nlmsghdr{.nlmsg_len = kQuestionBytes});
    if (!capped) question.resize(kQuestionBytes);
    body.insert(body.end(), question.begin(), question.end());
    if (!words.empty()) append_attribute(body, NLMSGERR_ATTR_MSG, std::as_bytes(std::span(words.c_str(), words.size() + 1)));
    put(NLMSG_ERROR, (capped ? NLM_F_CAPPED : 0) | (words.empty() ? 0 : NLM_F_ACK_TLVS), body);
  }

  /// The socket has been closed.
  bool is_closed() const {
    pollfd entry{far_.get(), 0, 0};
    return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
  }

  const Bytes& last() const { return last_; }
  /// The next question.
  Bytes asked() const {
    Bytes question(4096);
    const ssize_t got = ::recv(far_.get(), question.data(), question.size(), MSG_DONTWAIT);
    EXPECT_GE(got, static_cast<ssize_t>(sizeof(nlmsghdr)));
    question.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return question;
  }

 private:
  void put(uint16_t type, int flags, const Bytes& body) {
    last_ = bytes_of(nlmsghdr{.nlmsg_len = static_cast<uint32_t>(sizeof(nlmsghdr) + body.size()),
                              .nlmsg_type = type,
                              .nlmsg_flags = static_cast<uint16_t>(flags),
                              .nlmsg_seq = ++sequence_,
                              .nlmsg_pid = 0});
    last_.insert(last_.end(), body.begin(), body.end());
    EXPECT_EQ(::send(far_.get(), last_.data(), last_.size(), 0), static_cast<ssize_t>(last_.size()));
  }

  UniqueFd near_, far_;
  Bytes last_;
  uint32_t sequence_ = 0;
};

}  // namespace tcpx::testing
