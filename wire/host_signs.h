// The kernel's knowledge of the host at the other end of a TCP connection. The kernel there answers for it even when the
// process does not read, so silence means the host, or the way to it.
//
// The kernel here asks, and counts what stays without an answer:
//   - idle connection: probes, once a second with SO_KEEPALIVE and TCP_KEEPIDLE 1 s, TCP_KEEPINTVL 1 s
//   - data under way: retransmissions, the first after about 0.2 s, each later one after twice as long
//   - peer's window shut: probes, also with growing pauses, which a living host answers at length without taking data
// Every answer makes `since_ack` small and sets the probes to 0. With a shut window answers to retransmissions move nothing, so
// their count goes on; only probes tell something then.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tcpx {

struct HostSigns {
  std::chrono::milliseconds since_ack{0};   ///< last acknowledgement, also of a probe
  std::chrono::milliseconds since_data{0};  ///< last data
  uint32_t probes = 0;                      ///< sent since the last answer
  uint32_t retransmits = 0;                 ///< of the oldest data under way, since some was acknowledged
  bool window_shut = false;                 ///< the peer's window is what data waits for
};

/// @return nullopt: the kernel does not tell (no TCP socket)
std::optional<HostSigns> host_signs(int fd);

/// True when nothing came for `silence` although the kernel has asked. Never true where it has not asked: silence alone proves
/// nothing. It must have asked again when two seconds of silence were over, so that an outage of so long is survived, however the
/// pauses fall: the third probe of an idle connection comes after 3 s, the fourth question with growing pauses after 15 times the
/// first pause, which is 0.2 s at least.
/// @param silence longer than 3 s, so that the answer to that question has had time to come
bool is_silent(const HostSigns& signs, Duration silence);

}  // namespace tcpx
