// What tcpx.Slot is made of, and how it is cut: 4096 slices of a slot are made before each of some transfers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace tcpx::python {

/// The class below tcpx.Slot, which gives it its attributes (python/tcpx/slot.py tells about them) and `[]`. Needs the interpreter
/// lock, as everything here.
nanobind::object make_slot_class();

/// What a transfer needs of a slot. `raw` is the slot's, and lives as long.
struct SlotPlace {
  nanobind::handle raw;
  uint64_t offset;
  uint64_t nbytes;
};
bool is_slot(nanobind::handle object);
/// Raises TypeError for what is no slot.
SlotPlace place_of(nanobind::handle slot);

}  // namespace tcpx::python
