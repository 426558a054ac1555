// Python's own C interface, because an object of nanobind costs more than all of this.
#include "python/src/slot_parts.h"

#include <structmember.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>

#include "base/text.h"
#include "python/src/raise.h"
#include "python/src/unlocked.h"

namespace tcpx::python {
namespace {

namespace nb = nanobind;

struct SlotParts {
  PyObject_HEAD PyObject* raw;
  PyObject* offset;
  PyObject* shape;
  PyObject* itemsize;
  PyObject* nbytes;
  PyObject* origin;
  PyObject* weak_references;
};

PyTypeObject* slot_class = nullptr;  // kept for good, as the module is

SlotParts& parts_of(PyObject* self) {
  return *reinterpret_cast<SlotParts*>(self);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  SlotParts& parts = parts_of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(parts.raw);
  Py_VISIT(parts.offset);
  Py_VISIT(parts.shape);
  Py_VISIT(parts.itemsize);
  Py_VISIT(parts.nbytes);
  Py_VISIT(parts.origin);
  return 0;
}

int clear(PyObject* self) {
  SlotParts& parts = parts_of(self);
  Py_CLEAR(parts.raw);
  Py_CLEAR(parts.offset);
  Py_CLEAR(parts.shape);
  Py_CLEAR(parts.itemsize);
  Py_CLEAR(parts.nbytes);
  Py_CLEAR(parts.origin);
  return 0;
}

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (parts_of(self).weak_references != nullptr) PyObject_ClearWeakRefs(self);
  clear(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

[[noreturn]] void fail(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

uint64_t number_of(PyObject* number) {
  if (number == nullptr) fail(PyExc_AttributeError, "a slot that was not made");
  const uint64_t value = PyLong_AsUnsignedLongLong(number);
  if (value == UINT64_MAX && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

nb::object object_of(uint64_t number) {
  return checked(PyLong_FromUnsignedLongLong(number));
}

/// The shape of `count` rows; that of a row for nullopt.
nb::object shape_of(PyObject* shape, std::optional<Py_ssize_t> count) {
  const Py_ssize_t dimensions = PyTuple_Size(shape);
  if (!count) return checked(PyTuple_GetSlice(shape, 1, dimensions));
  nb::object rows = checked(PyTuple_New(dimensions));
  PyTuple_SetItem(rows.ptr(), 0, object_of(static_cast<uint64_t>(*count)).release().ptr());
  for (Py_ssize_t i = 1; i < dimensions; ++i) {
    PyObject* const length = PyTuple_GetItem(shape, i);
    Py_INCREF(length);
    PyTuple_SetItem(rows.ptr(), i, length);
  }
  return rows;
}

/// A part of the class of `whole`, `first` bytes into it.
PyObject* part_of(PyObject* whole, uint64_t first, nb::object shape, uint64_t nbytes) {
  const SlotParts& parts = parts_of(whole);
  nb::object offset = object_of(number_of(parts.offset) + first), size = object_of(nbytes);
  PyObject* const made = PyType_GenericAlloc(Py_TYPE(whole), 0);
  if (made == nullptr) throw nb::python_error();
  SlotParts& part = parts_of(made);
  Py_XINCREF(part.raw = parts.raw);
  part.offset = offset.release().ptr();
  part.shape = shape.release().ptr();
  Py_XINCREF(part.itemsize = parts.itemsize);
  part.nbytes = size.release().ptr();
  Py_XINCREF(part.origin = parts.origin);
  return made;
}

PyObject* cut(PyObject* self, PyObject* index) {
  const SlotParts& parts = parts_of(self);
  const uint64_t nbytes = number_of(parts.nbytes);
  if (parts.shape == nullptr || PyTuple_Check(parts.shape) == 0) fail(PyExc_AttributeError, "a slot that was not made");
  if (PyTuple_Size(parts.shape) == 0) fail(PyExc_IndexError, "a slot of one element has no rows");
  const Py_ssize_t rows = PyLong_AsSsize_t(PyTuple_GetItem(parts.shape, 0));
  if (rows == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  const uint64_t row = rows > 0 ? nbytes / static_cast<uint64_t>(rows) : 0;
  if (PySlice_Check(index)) {
    Py_ssize_t first = 0, last = 0, step = 0;
    if (outlive_interpreter([&] { return PySlice_Unpack(index, &first, &last, &step); }) != 0) throw nb::python_error();
    if (step != 1) {
      raise(Status(Code::kInvalidArgument, "cut a slot", concat("step ", step, "; rows of a slot are neighbours")));
    }
    const Py_ssize_t count = PySlice_AdjustIndices(rows, &first, &last, step);
    return part_of(self, static_cast<uint64_t>(first) * row, shape_of(parts.shape, count), static_cast<uint64_t>(count) * row);
  }
  const Py_ssize_t number = outlive_interpreter([&] { return PyNumber_AsSsize_t(index, PyExc_IndexError); });
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (number < -rows || number >= rows) fail(PyExc_IndexError, concat("row ", number, " of ", rows));
  return part_of(self, static_cast<uint64_t>(number < 0 ? number + rows : number) * row, shape_of(parts.shape, std::nullopt),
                 row);
}

PyObject* subscript(PyObject* self, PyObject* index) noexcept {
  try {
    return cut(self, index);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyMemberDef members[] = {
    {"raw", T_OBJECT_EX, offsetof(SlotParts, raw), 0, nullptr},
    {"offset", T_OBJECT_EX, offsetof(SlotParts, offset), 0, nullptr},
    {"shape", T_OBJECT_EX, offsetof(SlotParts, shape), 0, nullptr},
    {"itemsize", T_OBJECT_EX, offsetof(SlotParts, itemsize), 0, nullptr},
    {"nbytes", T_OBJECT_EX, offsetof(SlotParts, nbytes), 0, nullptr},
    {"_origin", T_OBJECT_EX, offsetof(SlotParts, origin), 0, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(SlotParts, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {Py_mp_subscript, reinterpret_cast<void*>(&subscript)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"tcpx._core.SlotParts", sizeof(SlotParts), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                    slots};

}  // namespace

nb::object make_slot_class() {
  slot_class = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (slot_class == nullptr) throw nb::python_error();
  return nb::borrow(reinterpret_cast<PyObject*>(slot_class));
}

bool is_slot(nb::handle object) {
  return PyObject_TypeCheck(object.ptr(), slot_class) != 0;
}

SlotPlace place_of(nb::handle slot) {
  if (!is_slot(slot)) {
    PyErr_Format(PyExc_TypeError, "a buffer goes to a slot, not to %R", slot.type().ptr());
    throw nb::python_error();
  }
  const SlotParts& parts = parts_of(slot.ptr());
  if (parts.raw == nullptr) fail(PyExc_AttributeError, "a slot that was not made");
  return {parts.raw, number_of(parts.offset), number_of(parts.nbytes)};
}

}  // namespace tcpx::python
