// A network namespace for one thread, whose network a test can switch off.
#pragma once

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/unique_fd.h"

namespace tcpx::testing {

/// Runs `command` in a shell, in the network namespace of this thread. @return whether it succeeded
inline bool run(const std::string& command) {
  return std::system(command.c_str()) == 0;
}

/// Turns the loopback device of this thread's network namespace on or off. @return errno
inline int set_loopback(bool up) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = static_cast<short>(up ? IFF_UP : 0);
  return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0 ? 0 : errno;
}

/// Removes or restores the address of the loopback device: nothing arrives meanwhile, and the device stays up. @return errno
inline int set_loopback_address(bool there) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(there ? INADDR_LOOPBACK : 0x0a010101);  // 10.1.1.1
  std::memcpy(&request.ifr_addr, &address, sizeof address);
  return ::ioctl(fd.get(), SIOCSIFADDR, &request) == 0 ? 0 : errno;
}

/// Leaves this thread's network namespace that many ports for connects.
inline void leave_ports(int count) {
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << 40000 << " " << 40000 + count - 1;
}

/// Runs `body` in a thread that has a network namespace of its own, with the loopback device on. Sockets, and the threads that it
/// starts, belong there too. @return the reason when there is no such namespace, and `body` has not run; else empty
template <class Body>
std::string in_own_network(Body body) {
  std::string missing;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      missing = std::string("no network namespace: ") + std::strerror(errno);
      return;
    }
    ASSERT_EQ(set_loopback(true), 0);
    body();
  }).join();
  return missing;
}

}  // namespace tcpx::testing
