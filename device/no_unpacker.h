// Leaves every byte in the bounce pool, to measure a receive without the unpack. For measurements only, because the destination
// stays unchanged.
#pragma once

#include <memory>

#include "rx/unpacker.h"

namespace tcpx {

/// Tickets are done at once; kExhausted never happens.
std::unique_ptr<Unpacker> make_no_unpacker();

}  // namespace tcpx
