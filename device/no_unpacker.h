// Leaves every byte in the bounce pool: what a receive costs without the unpack. For measurements only, because the destination
// stays as it was.
#pragma once

#include <memory>

#include "rx/unpacker.h"

namespace tcpx {

/// Tickets are done at once; kExhausted never happens.
std::unique_ptr<Unpacker> make_no_unpacker();

}  // namespace tcpx
