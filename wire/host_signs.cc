#include "wire/host_signs.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace tcpx {

// Source: torvalds/linux: net/ipv4/tcp.c (tcp_get_info), tcp_timer.c (tcp_keepalive_timer, tcp_probe_timer,
// tcp_retransmit_timer), tcp_input.c (tcp_ack: rcv_tstamp, icsk_probes_out). Keep-alive and window probes share tcpi_probes.
std::optional<HostSigns> host_signs(int fd) {
  tcp_info info{};
  info.tcpi_snd_wnd = 1;  // older kernels do not fill it
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  if (length < offsetof(tcp_info, tcpi_notsent_bytes) + sizeof info.tcpi_notsent_bytes) return std::nullopt;
  return HostSigns{.since_ack = std::chrono::milliseconds(info.tcpi_last_ack_recv),
                   .since_data = std::chrono::milliseconds(info.tcpi_last_data_recv),
                   .probes = info.tcpi_probes,
                   .retransmits = info.tcpi_retransmits,
                   .window_shut = info.tcpi_snd_wnd == 0 || (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes > 0)};
}

bool is_silent(const HostSigns& signs, Duration silence) {
  if (signs.since_ack <= silence || signs.since_data <= silence) return false;
  if (signs.window_shut) return signs.probes >= 4;
  return signs.probes >= 3 || signs.probes + signs.retransmits >= 4;
}

}  // namespace tcpx
