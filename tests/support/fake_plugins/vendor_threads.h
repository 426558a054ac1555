// Interface between a test and the fake that connects as GPUDirect-TCPX does: the library's exported `fake_threads`.
#pragma once

#include <atomic>

namespace tcpx::testing {

struct FakeThreads {
  // Set by the test.
  std::atomic<int> step_us{1000};                  ///< before each socket; 100 ms in the original
  std::atomic<int> refused_retries{20000};         ///< 1 ms each, as in the original
  std::atomic<bool> close_recv_hangs{false};       ///< until it is false again
  std::atomic<bool> close_send_hangs{false};       ///< the same
  std::atomic<bool> has_no_rxdm{false};            ///< accepts fail, and warn why
  std::atomic<bool> failed_connects_close{false};  ///< their sockets; the original leaves them open

  // Seen by the plugin.
  std::atomic<int> accept_threads{0};   ///< running
  std::atomic<int> connect_threads{0};  ///< running
  std::atomic<int> open_listeners{0};
  std::atomic<int> open_comms{0};          ///< reported, not yet closed
  std::atomic<int> open_registrations{0};  ///< a descriptor each; the original has two
  // Misuse that the original does not survive.
  std::atomic<int> closed_while_accepting{0};
  std::atomic<int> accepts_after_end{0};
  std::atomic<int> connects_after_end{0};
  std::atomic<int> closed_without_peer{0};         ///< receiving comms whose data socket has no peer any more
  std::atomic<int> deregistered_while_closing{0};  ///< memory of a comm whose close had not returned
};

inline constexpr char kFakeThreadsSymbol[] = "fake_threads";

}  // namespace tcpx::testing
