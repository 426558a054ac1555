#include "python/src/raise.h"

#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "python/src/unlocked.h"
#include "tcpx/help.h"

namespace tcpx::python {

namespace nb = nanobind;

namespace {
PyObject* error_of = nullptr;  // kept for good: while the interpreter ends nothing can be imported any more, and calls still fail
}  // namespace

void make_errors_with(const nb::object& maker) {
  Py_XDECREF(std::exchange(error_of, maker.inc_ref().ptr()));
}

nb::object exception_of(const Status& status) {
  const nb::tuple arguments = nb::make_tuple(std::string(name_of(status.code())), status.to_string(), help_lines(status),
                                             status.operation(), status.detail(), status.native());
  if (error_of == nullptr) throw std::runtime_error(status.to_string());  // somebody has imported tcpx._core alone
  PyObject* const error = outlive_interpreter([&] { return PyObject_Call(error_of, arguments.ptr(), nullptr); });
  if (error == nullptr) throw nb::python_error();
  return nb::steal(error);
}

void raise(const Status& status) {
  const nb::object error = exception_of(status);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace tcpx::python
