// Tells from the kernel's TCP state whether the host at the other end still answers. The kernel there answers even when the
// process does not read, so silence means that the host, or the network path to it, is gone.
//
// The kernel here asks, and counts the questions without an answer:
//   - idle connection: probes, once a second with SO_KEEPALIVE and TCP_KEEPIDLE 1 s, TCP_KEEPINTVL 1 s
//   - data under way: retransmissions, the first after about 0.2 s, each later one after twice as long
//   - peer's window shut: probes with growing pauses; a living host keeps answering them without taking data
// Every answer resets `since_ack` and the probes. While the window is shut, an answer does not reset the retransmissions, so only
// the probes count then.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tcpx {

struct HostSigns {
  std::chrono::milliseconds since_ack{0};   ///< time since the last acknowledgement, also of a probe
  std::chrono::milliseconds since_data{0};  ///< time since the last data came
  uint32_t probes = 0;                      ///< probes sent since the last answer
  uint32_t retransmits = 0;                 ///< retransmissions of the oldest data in flight, since data was last acknowledged
  bool window_shut = false;                 ///< data waits because the peer's TCP window is closed
};

/// @return nullopt: not a TCP socket, or an older kernel
std::optional<HostSigns> host_signs(int fd);

/// True when nothing came for `silence` although the kernel asked; silence without a question proves nothing. To survive outages of
/// two seconds, one question must have been sent after that: the third probe of an idle connection comes after 3 s, and the fourth
/// question with growing pauses after 15 times the first pause, which is at least 0.2 s.
/// @param silence longer than 3 s, so that the answer to that question had time to come
bool is_silent(const HostSigns& signs, Duration silence);

}  // namespace tcpx
