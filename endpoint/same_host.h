// The meeting of two endpoints of one host, while their connection is set up: they find out that they are on one, make sure of
// each other over a Unix socket, and share memory from then on (HostPeer).
//
//   acceptor                                                     connector
//   listens at a random name; name and key      ->
//                                               <-  connects; key, probe; has it worked
//   lets in who knows the key; shared memory,
//   a socket for descriptors, probe; has it worked, can it read there     ->
//                                               <-  maps it; has it worked, can it read there
//
// Whatever goes wrong with that leaves both on TCP, with one sentence why: each end tells the other after each of its steps, and
// goes on only when the other has done its own. A probe is some random bytes and their address: who finds the bytes there can
// read the other's memory.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "lanes/host_area.h"
#include "tcpx/status.h"
#include "transfer/bootstrap_channel.h"

namespace tcpx {

/// A number that no other host has, and this one only until it starts again. "": the kernel does not tell
std::string boot_id();

/// The words for GPU memory that goes that way.
const char* describe_way(GpuLink link);

struct HostMeeting {
  std::unique_ptr<HostPeer> peer;  ///< null: TCP it is
  std::string local;               ///< what came of it, for people
};

/// Both ends call it when both have the same boot id and wish it. @param reads out of the peer's memory, where the kernel lets it
/// @return the channel's errors; what goes wrong on this host is no error
Result<HostMeeting> meet_on_host(BootstrapChannel& channel, bool connector, bool reads, Deadline deadline);

}  // namespace tcpx
