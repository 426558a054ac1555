// The two ends of a stream in shared memory, and the rings between them for a test to look at.
#pragma once

#include <memory>

#include "base/shared_stream.h"
#include "base/unix_socket.h"

namespace tcpx::testing {

struct SharedPair {
  std::unique_ptr<SharedRing> forth = std::make_unique<SharedRing>(), back = std::make_unique<SharedRing>();
  UnixPair sockets = make_unix_pair().value();

  std::unique_ptr<SharedStream> a() { return std::make_unique<SharedStream>(*forth, *back, sockets.a); }
  std::unique_ptr<SharedStream> b() { return std::make_unique<SharedStream>(*back, *forth, sockets.b); }
};

}  // namespace tcpx::testing
