// Interface between a test and a fake plugin: the library's exported `fake_control`.
#pragma once

#include <cstddef>

#include "net/abi/nccl_net_common.h"

namespace tcpx::testing {

struct FakeControl {
  // Set by the test.
  int result = 0;           ///< answer of every call that has a comm or request; non-zero calls have no effect
  int null_comms = 0;       ///< number of connects and accepts that answer "not yet"
  int null_requests = 0;    ///< number of isends and irecvs that answer "not now"
  int written_size = -1;    ///< value that `test` writes into `sizes`; -1: none, as with GPUDirect-TCPX
  int peer_gone_tests = 0;  ///< number of tests that answer 2 and do nothing else
  /// A test ends the process by exit(1), as an assertion of the original would, in the call or in a thread of the plugin's own
  /// while the tests never complete.
  enum class Exit { kNever, kInTest, kInOwnThread } exits = Exit::kNever;

  // Seen by the plugin.
  int init_calls = 0;
  abi::NcclLogger logger = nullptr;
  int get_properties_calls = 0;
  void* connect_handle = nullptr;
  bool accept_room_given = false;
  int listens = 0;
  int tests = 0;
  int reg_mr_calls = 0;
  int open_registrations = 0;
  size_t reg_mr_bytes = 0;
  void* reg_mr_data = nullptr;
  int irecv_n = 0;
  int consumed_n = 0;
  int iflush_calls = 0;
};

inline constexpr char kFakeControlSymbol[] = "fake_control";

/// A receive of this fake lists two fragments of its pool (4096 and 904 bytes, in reverse order), for any post.
inline constexpr int kFakeMessageBytes = 5000;
inline constexpr int kFakeDevices = 2;
inline constexpr size_t kFakePoolBytes = 64 * 1024;

}  // namespace tcpx::testing
