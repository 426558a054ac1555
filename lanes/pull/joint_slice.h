// The copying of a slice of a joint copy (base/joint_copy.h), at either end.
#pragma once

#include <memory>
#include <new>

#include "base/host_copier.h"
#include "lanes/host_area.h"

namespace tcpx {

/// Copies a slice between memory of this process and of the peer's, on this thread. @param into_peer else out of its memory
/// @return null: some of it is not there, or it would be waited for, or there is no memory for that. Otherwise one that is done
inline std::shared_ptr<HostCopy> copy_slice(HostCopier& copier, const HostPeer& peer, const CopySegment& slice, bool into_peer) {
  try {
    if (into_peer) return copier.start_write(peer.pid, {&slice, 1}, peer.pages(), true);
    return copier.start(peer.pid, {&slice, 1}, {.pages = peer.pages(), .alone = true, .only_at_once = true});
  } catch (const std::bad_alloc&) {  // the other end waits for the end of the slice
    return nullptr;
  }
}

}  // namespace tcpx
