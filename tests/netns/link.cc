// netns_link: a network with distance between two hosts of the scenarios, in user space, for kernels without netem.
//
// It makes two tun devices and carries the packets of each to the other, over one Lane for each direction. Whoever moves the devices
// into the hosts (cluster.sh far) sees an ordinary network; the descriptors stay here.
#include <fcntl.h>
#include <linux/if_tun.h>
#define class class_  // a field of a header for C
#include <linux/virtio_net.h>
#undef class
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/timespec.h"
#include "base/unique_fd.h"
#include "programs/command_line.h"
#include "programs/interrupt.h"
#include "tests/netns/lane.h"

namespace tcpx::netns {
namespace {

constexpr size_t kLongestFrame = 128 * 1024;  // a packet of 64 KiB, and what stands before it
constexpr int kBurst = 64;                    // packets of one direction before the other has its turn
constexpr int kSkipped = 77;

struct Side {
  UniqueFd device;
  Lane lane;  // of what this device's host sends
};

/// @param gso the kernel may hand over up to 64 KiB as one packet, and says into what it would be cut
Result<UniqueFd> make_device(const std::string& name, bool gso) {
  UniqueFd fd(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return system_error("open /dev/net/tun", errno);
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  // With IFF_NAPI what arrives waits at the device. Else it waits in the processor's queue (net.core.netdev_max_backlog, 1000
  // packets), which drops the rest.
  request.ifr_flags = static_cast<short>(IFF_TUN | IFF_NO_PI | IFF_NAPI | (gso ? IFF_VNET_HDR : 0));
  if (::ioctl(fd.get(), TUNSETIFF, &request) != 0) return system_error(concat("make device ", name), errno);
  if (gso && ::ioctl(fd.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
    return system_error(concat("switch on offloads of ", name), errno);
  }
  return fd;
}

/// Bytes of the longest packet that a network card would make of this frame.
uint64_t longest_packet(std::span<const std::byte> frame, bool gso) {
  if (!gso) return frame.size();
  virtio_net_hdr head;
  std::memcpy(&head, frame.data(), sizeof head);
  const uint64_t bytes = frame.size() - sizeof head;
  return head.gso_type == VIRTIO_NET_HDR_GSO_NONE ? bytes : std::min<uint64_t>(bytes, uint64_t{head.hdr_len} + head.gso_size);
}

/// @return whether any packet came
bool take_in(Side& from, bool gso, std::span<std::byte> buffer) {
  const size_t head_bytes = gso ? sizeof(virtio_net_hdr) : 0;
  for (int i = 0; i < kBurst; ++i) {
    const ssize_t n = ::read(from.device.get(), buffer.data(), buffer.size());
    if (n <= static_cast<ssize_t>(head_bytes)) return i > 0;  // EAGAIN
    const auto frame = buffer.first(static_cast<size_t>(n));
    from.lane.put(frame, frame.size() - head_bytes, longest_packet(frame, gso), Clock::steady().now());
  }
  return true;
}

/// @return whether any packet went
bool let_out(Side& from, const Side& to) {
  for (int i = 0; i < kBurst; ++i) {
    const std::vector<std::byte>* frame = from.lane.front(Clock::steady().now());
    if (frame == nullptr) return i > 0;
    // A device that is down, or not yet set up, refuses what comes: as a network does.
    if (::write(to.device.get(), frame->data(), frame->size()) < 0 && errno == EAGAIN) return i > 0;
    from.lane.pop();
  }
  return true;
}

void carry(std::array<Side, 2>& sides, bool gso, const std::atomic<bool>& stop) {
  std::vector<std::byte> buffer(kLongestFrame);
  while (!stop) {
    bool moved = false;
    for (size_t i = 0; i < 2; ++i) {
      moved |= take_in(sides[i], gso, buffer);
      moved |= let_out(sides[i], sides[1 - i]);
    }
    if (moved) continue;
    const TimePoint now = Clock::steady().now();
    Duration wait = kLookAtStop;
    for (const Side& side : sides) {
      if (const auto next = side.lane.next())
        wait = std::min(wait, std::max(*next - now, Duration(std::chrono::microseconds(1))));
    }
    std::array<pollfd, 2> fds{{{sides[0].device.get(), POLLIN, 0}, {sides[1].device.get(), POLLIN, 0}}};
    const timespec timeout = to_timespec(wait);
    (void)::ppoll(fds.data(), fds.size(), &timeout, nullptr);
  }
}

void print_counts(const char* name, const Lane::Counts& counts) {
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%s: packets=%llu bytes=%llu lost=%llu dropped=%llu cut=%llu vanished=%llu late=%llu twice=%llu "
      "rerouted=%llu\n",
      name, number(counts.packets), number(counts.bytes), number(counts.lost), number(counts.dropped), number(counts.cut),
      number(counts.vanished), number(counts.late), number(counts.twice), number(counts.rerouted));
}

int run(const std::array<std::string, 2>& names, const LaneOptions& options, bool gso) {
  // Nobody else has a use for it when the scenario that has started it is gone.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // the delay is met to some us
  const std::atomic<bool>& stop = stop_on_interrupt();
  std::array<UniqueFd, 2> devices;
  for (size_t i = 0; i < 2; ++i) {
    Result<UniqueFd> device = make_device(names[i], gso);
    if (!device.is_ok()) {
      std::fprintf(stderr, "netns_link: %s\n", device.status().to_string().c_str());
      return kSkipped;
    }
    devices[i] = std::move(device).value();
  }
  const TimePoint began = Clock::steady().now();
  std::array<Side, 2> sides{{{std::move(devices[0]), Lane(options, began, options.seed)},
                             {std::move(devices[1]), Lane(options, began, options.seed + 1)}}};
  std::puts("ready");
  std::fflush(stdout);
  carry(sides, gso, stop);
  for (size_t i = 0; i < 2; ++i) print_counts(concat("from ", names[i]).c_str(), sides[i].lane.counts());
  return 0;
}

}  // namespace
}  // namespace tcpx::netns

int main(int argc, char** argv) {
  tcpx::netns::LaneOptions options;
  std::array<std::string, 2> names;
  bool gso = false;
  CLI::App app(
      "A network with distance between two tun devices, which it makes: tests/netns/cluster.sh far moves them into the hosts.\n"
      "Prints \"ready\" when both are there and, when it is ended, what became of the packets of each.\n"
      "Exit code: 0 ended by Ctrl-C or SIGTERM, 2 usage, 77 there can be no such devices.");
  const CLI::Validator fits(
      [](std::string& name) { return name.size() < IFNAMSIZ ? "" : std::string("a name of a device has at most 15 characters"); },
      "");
  app.add_option("LEFT", names[0], "first device")->required()->check(fits);
  app.add_option("RIGHT", names[1], "second device")->required()->check(fits);
  const CLI::Range chance(0.0, 1.0), ten_seconds(0.0, 1e7);
  app.add_option("--delay-us", options.delay_us, "of each direction: half a round trip")->check(ten_seconds);
  app.add_option("--jitter-us", options.jitter_us, "up to so much more for each packet, in order")->check(ten_seconds);
  app.add_option("--mbit", options.mbit, "rate of each direction (default: as fast as packets come)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--loss", options.loss, "chance of a packet to be lost, 0 to 1")->check(chance);
  app.add_option("--reorder", options.reorder, "chance of a packet to be overtaken")->check(chance);
  app.add_option("--duplicate", options.duplicate, "chance of a packet to arrive twice")->check(chance);
  app.add_option("--queue-bytes", options.queue_bytes, "that may wait for their turn (default: two delays of the rate)");
  app.add_option("--mtu-hole", options.mtu_hole, "packets of more bytes vanish without a word");
  app.add_option("--cut-after-ms", options.cut_after_ms, "when nothing passes any more")->check(ten_seconds);
  app.add_option("--cut-ms", options.cut_ms, "and for how long")->check(ten_seconds);
  app.add_option("--reroute-after-ms", options.reroute_after_ms, "when packets begin to take another way")->check(ten_seconds);
  app.add_option("--reroute-delay-us", options.reroute_delay_us, "the delay of that way")->check(ten_seconds);
  app.add_option("--seed", options.seed, "of the dice");
  app.add_flag("--gso", gso, "packets of up to 64 KiB as the kernel hands them over: fast, and each has one fate");
  int exit_code = 0;
  if (!tcpx::parse_command_line(app, argc, argv, exit_code)) return exit_code;
  return tcpx::netns::run(names, options, gso);
}
