// The meeting of two endpoints that are on one host, during the set-up of their connection. They authenticate each other over a Unix
// socket, and from then on share memory (HostPeer).
//
//   acceptor                                                  connector
//   listens at a random name; sends name and key      ->
//                                                     <-  connects; sends key and probe
//   lets in who knows the key; sends shared memory,
//   a socket for descriptors, and a probe             ->
//                                                     <-  maps the memory
//
// Ends of one network namespace meet at an abstract name. Ends of two, such as containers with networks of their own, meet at a file
// in a directory that both have mounted. Whoever else can write there can keep them apart, but not come between them: each end asks
// the kernel for the other's user.
//
// After each step both ends tell whether their own steps worked, and whether they can read the other's memory. If a step fails, both
// stay on TCP and tell why in one sentence. A probe is random bytes and their address: an end that finds the bytes at that address
// can read the other's memory.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "lanes/host_area.h"
#include "tcpx/status.h"
#include "wire/bootstrap_channel.h"

namespace tcpx {

/// Unique to this host since it was started. "": the kernel does not tell
std::string boot_id();

/// How GPU memory travels over that link, for people.
const char* describe_way(GpuLink link);

struct HostMeeting {
  std::unique_ptr<HostPeer> peer;  ///< null: the connection stays on TCP
  std::string local;               ///< for people: how bytes travel, or why on TCP
};

struct MeetingTerms {
  bool connector = false;
  bool reads = true;      ///< read the peer's memory if the kernel lets this end
  bool apart = false;     ///< the network namespaces are known to differ
  std::string directory;  ///< to meet in if they do; made if it is missing, its parents are not
};

/// Both ends call it if they have the same boot id and both want to share memory.
/// @return errors of the channel, and shortages; other failures of the meeting leave the connection on TCP
Result<HostMeeting> meet_on_host(BootstrapChannel& channel, const MeetingTerms& terms, Deadline deadline);

}  // namespace tcpx
