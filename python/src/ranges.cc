#include "python/src/ranges.h"

#include <cstring>
#include <optional>
#include <set>
#include <string>

#include "base/text.h"
#include "python/src/raise.h"
#include "python/src/slot_parts.h"
#include "python/src/unlocked.h"

namespace tcpx::python {
namespace {

namespace nb = nanobind;

/// Kept for good. Looked up as it is, a name costs as much as what it names.
struct Names {
  static PyObject* of(const char* name) { return PyUnicode_InternFromString(name); }

  PyObject* const data_ptr = of("data_ptr");
  PyObject* const dtype = of("dtype");
  PyObject* const element_size = of("element_size");
  PyObject* const get_device = of("get_device");
  PyObject* const hasobject = of("hasobject");
  PyObject* const is_complex = of("is_complex");
  PyObject* const is_contiguous = of("is_contiguous");
  PyObject* const is_cpu = of("is_cpu");
  PyObject* const is_cuda = of("is_cuda");
  PyObject* const is_neg = of("is_neg");
  PyObject* const is_nested = of("is_nested");
  PyObject* const is_quantized = of("is_quantized");
  PyObject* const layout = of("layout");
  PyObject* const numel = of("numel");
};

const Names& names() {
  static const Names all;
  return all;
}

nb::handle item_of(const nb::object& tuple, Py_ssize_t index) {
  PyObject* const item = PyTuple_GetItem(tuple.ptr(), index);  // fails beyond the end, where a sequence has lied about its length
  if (item == nullptr) throw nb::python_error();
  return item;
}

// None of the next four raises: whoever has no answer is looked at by Python, which says why.

nb::object answer(PyObject* made) {
  if (made == nullptr) PyErr_Clear();
  return nb::steal(made);
}

nb::object attribute(nb::handle object, PyObject* name) {
  return answer(outlive_interpreter([&] { return PyObject_GetAttr(object.ptr(), name); }));
}

nb::object call(nb::handle object, PyObject* name) {
  PyObject* const arguments[] = {nullptr, object.ptr()};
  return answer(outlive_interpreter(
      [&] { return PyObject_VectorcallMethod(name, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr); }));
}

std::optional<uint64_t> number(const nb::object& object) {
  if (!object.is_valid() || !PyLong_Check(object.ptr())) return std::nullopt;
  const uint64_t value = PyLong_AsUnsignedLongLong(object.ptr());
  if (value != UINT64_MAX || PyErr_Occurred() == nullptr) return value;
  PyErr_Clear();
  return std::nullopt;
}

/// What a module that is loaded has; nothing where it is not.
nb::object of_module(const char* module, const char* name) {
  const nb::object found = nb::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), module));
  return found.is_valid() ? answer(outlive_interpreter([&] { return PyObject_GetAttrString(found.ptr(), name); })) : found;
}

struct Memory {
  uintptr_t address = 0;
  size_t bytes = 0;
  bool readonly = false;
};

/// Buffers of one list: what was found for one is not asked of the next.
class Look {
 public:
  Look(Ranges& ranges, nb::handle extent_of) : ranges_(ranges), extent_of_(extent_of) {}

  /// @param index of the buffer in the list
  Memory at(PyObject* buffer, Py_ssize_t index) {
    const PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(buffer));
    const auto plain = type == array_.ptr() ? of_numpy(buffer) : type == tensor_.ptr() ? of_torch(buffer) : std::nullopt;
    return plain ? *plain : of_any(buffer, index);
  }

 private:
  std::optional<Memory> of_numpy(PyObject* array) {
    nb::object type = attribute(array, names().dtype);
    if (type.ptr() != type_.ptr()) {
      if (!type.is_valid() || attribute(type, names().hasobject).ptr() != Py_False) return std::nullopt;
      type_ = std::move(type);
    }
    Py_buffer view;
    if (outlive_interpreter([&] { return PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS); }) != 0) {
      PyErr_Clear();
      return std::nullopt;
    }
    const Memory memory{reinterpret_cast<uintptr_t>(view.buf), static_cast<size_t>(view.len), view.readonly != 0};
    outlive_interpreter([&] { PyBuffer_Release(&view); });
    return memory;
  }

  /// See `_no_plain_memory` in tcpx/buffers.py. What only some types of elements can be is asked once for each.
  std::optional<Memory> of_torch(PyObject* tensor) {
    nb::object type = attribute(tensor, names().dtype);
    if (type.ptr() != type_.ptr()) {
      const auto itemsize = number(call(tensor, names().element_size));
      if (!type.is_valid() || !itemsize || attribute(tensor, names().is_quantized).ptr() != Py_False ||
          attribute(type, names().is_complex).ptr() != Py_False) {
        return std::nullopt;
      }
      type_ = std::move(type);
      itemsize_ = *itemsize;
    }
    if (attribute(tensor, names().is_nested).ptr() != Py_False || attribute(tensor, names().layout).ptr() != strided_.ptr() ||
        call(tensor, names().is_neg).ptr() != Py_False || call(tensor, names().is_contiguous).ptr() != Py_True) {
      return std::nullopt;
    }
    if (attribute(tensor, names().is_cpu).ptr() != Py_True) {
      const auto gpu = number(call(tensor, names().get_device));
      if (!gpu || !gpus_.contains(*gpu) || attribute(tensor, names().is_cuda).ptr() != Py_True) return std::nullopt;
    }
    const auto address = number(call(tensor, names().data_ptr)), elements = number(call(tensor, names().numel));
    if (!address || *address == 0 || !elements) return std::nullopt;
    return Memory{*address, *elements * itemsize_, false};
  }

  Memory of_any(PyObject* buffer, Py_ssize_t index) {
    nb::object extent =
        checked(outlive_interpreter([&] { return PyObject_CallFunctionObjArgs(extent_of_.ptr(), buffer, nullptr); }));
    const auto field = [&](Py_ssize_t number) { return checked(PySequence_GetItem(extent.ptr(), number)); };
    const Memory memory{nb::cast<uintptr_t>(field(0)), nb::cast<size_t>(field(1)), nb::cast<bool>(field(6))};
    const nb::object stream = field(3);
    if (!stream.is_none()) {
      ranges_.streams[stream] = nb::borrow(buffer);
      // The framework's current stream does not change while this looks.
      const auto gpu =
          reinterpret_cast<PyObject*>(Py_TYPE(buffer)) == tensor_.ptr() ? number(call(buffer, names().get_device)) : std::nullopt;
      if (gpu) gpus_.insert(*gpu);
    }
    if (!PyList_Check(ranges_.parts.ptr())) ranges_.parts = checked(PySequence_List(ranges_.parts.ptr()));
    if (PyList_SetItem(ranges_.parts.ptr(), index, extent.release().ptr()) != 0) throw nb::python_error();
    return memory;
  }

  Ranges& ranges_;
  const nb::handle extent_of_;
  const nb::object array_ = of_module("numpy", "ndarray");
  const nb::object tensor_ = of_module("torch", "Tensor"), strided_ = of_module("torch", "strided");
  nb::object type_;  // of the elements of the buffer before, which were plain
  size_t itemsize_ = 0;
  std::set<uint64_t> gpus_;  // of which torch's current stream is known
};

}  // namespace

RemoteSlot slot_of(nb::handle bytes) {
  RemoteSlot slot;
  char* data = nullptr;
  Py_ssize_t length = 0;
  if (PyBytes_AsStringAndSize(bytes.ptr(), &data, &length) != 0) throw nb::python_error();
  if (length != sizeof slot) raise(Status(Code::kInvalidArgument, "slot", concat(length, " bytes; a slot has ", sizeof slot)));
  std::memcpy(&slot, data, sizeof slot);
  return slot;
}

Ranges ranges_of_pairs(LocalList local, const RemoteList& remote) {
  Ranges ranges{.local = std::move(local)};
  ranges.remote.reserve(remote.size());
  for (const auto& [slot, offset] : remote) ranges.remote.push_back({slot_of(slot), offset});
  return ranges;
}

Ranges ranges_of(nb::handle buffers, nb::handle slots, nb::handle extent_of) {
  // Copies: looking at a buffer may run anybody's code, which may change the lists.
  const nb::object here = checked(PySequence_Tuple(buffers.ptr()));
  const Py_ssize_t count = PyTuple_Size(here.ptr());
  Ranges ranges{.parts = here};
  ranges.local.reserve(static_cast<size_t>(count));
  Look look(ranges, extent_of);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Memory memory = look.at(item_of(here, i).ptr(), i);
    ranges.local.emplace_back(memory.address, memory.bytes);
    ranges.readonly |= memory.readonly;
  }
  if (!slots.is_none()) {
    if (is_slot(slots) || PySequence_Size(slots.ptr()) != count) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      raise(Status(Code::kInvalidArgument, "write or read", concat(count, " buffers need as many slots")));
    }
    const nb::object there = checked(PySequence_Tuple(slots.ptr()));
    ranges.remote.reserve(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      const SlotPlace place = place_of(item_of(there, i));
      const size_t bytes = ranges.local[static_cast<size_t>(i)].second;
      if (bytes > place.nbytes) {
        raise(Status(Code::kMismatch, "write or read", concat(bytes, " bytes for a slot of ", place.nbytes)));
      }
      if (bytes != 0) ranges.remote.push_back({slot_of(place.raw), place.offset});
    }
  }
  std::erase_if(ranges.local, [](const auto& range) { return range.second == 0; });
  return ranges;
}

}  // namespace tcpx::python
