// Lists of buffers and slots as the library takes them. The buffers of which there are thousands, plain arrays of numpy and tensors
// of torch, are looked at here; tcpx/buffers.py looks at all others, and says what is wrong with these.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tcpx/endpoint.h"

namespace tcpx::python {

/// Address and length of ranges; slots, and how far into them.
using LocalList = std::vector<std::pair<uintptr_t, size_t>>;
using RemoteList = std::vector<std::pair<nanobind::bytes, uint64_t>>;

/// Raises InvalidArgument for bytes of another length.
RemoteSlot slot_of(nanobind::handle bytes);

/// Needs the interpreter lock, also for its end.
struct Ranges {
  LocalList local;                  // of the buffers that are not empty
  std::vector<RemoteRange> remote;  // as many, or none
  nanobind::object parts;           // for each buffer: itself, or its tcpx.buffers.Extent; they keep the memory
  nanobind::dict streams;           // of GPU buffers, each with one buffer: what an Extent has
  bool readonly = false;            // one of the buffers is
};

Ranges ranges_of_pairs(LocalList local, const RemoteList& remote);
/// @param slots a sequence of as many, or None. @param extent_of tcpx.buffers.extent_of
Ranges ranges_of(nanobind::handle buffers, nanobind::handle slots, nanobind::handle extent_of);

}  // namespace tcpx::python
