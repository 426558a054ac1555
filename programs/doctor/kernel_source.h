// What the kernel answers when it is asked, other than through its files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace tcpx::doctor {

/// Whether io_uring can hand over packets where the NIC has put them (zcrx).
enum class RingReceive : uint8_t {
  kPresent,
  kAbsent,   ///< there is io_uring, built without it or older than it
  kRefused,  ///< io_uring is missing, switched off, or forbidden to this process
};

/// None of these calls changes anything but objects of its own, which it closes again. None needs a privilege.
class KernelSource {
 public:
  virtual ~KernelSource() = default;

  /// What setsockopt(SOL_SOCKET, option) with four zero bytes answers on a TCP connection over loopback: 0 or an errno. Of a
  /// kernel that does not know the option that is ENOPROTOOPT. One that knows it as SO_DEVMEM_DONTNEED answers something else,
  /// for instance EINVAL: its argument is a list of tokens of eight bytes, and half a token gives no page back. Fewer than four
  /// bytes are refused before the option is looked at (Linux: net/core/sock.c, sk_setsockopt and sock_devmem_dontneed, 6.12).
  /// @return nullopt when there is no such connection
  virtual std::optional<int> set_option_error(int option) const = 0;

  virtual RingReceive ring_receive() const = 0;

  /// Descriptors that this process may have open; nullopt when it is not told.
  virtual std::optional<uint64_t> open_files() const = 0;
};

std::unique_ptr<KernelSource> make_kernel_source();

}  // namespace tcpx::doctor
