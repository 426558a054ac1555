#include "python/src/raise.h"

#include <nanobind/stl/string.h>

#include <string>

#include "python/src/unlocked.h"
#include "tcpx/help.h"

namespace tcpx::python {

namespace nb = nanobind;

nb::object exception_of(const Status& status) {
  const nb::tuple arguments = nb::make_tuple(std::string(name_of(status.code())), status.to_string(), help_lines(status),
                                             status.operation(), status.detail(), status.native());
  PyObject* const error = outlive_interpreter([&]() -> PyObject* {
    PyObject* const errors = PyImport_ImportModule("tcpx.errors");
    PyObject* const error_of = errors == nullptr ? nullptr : PyObject_GetAttrString(errors, "error_of");
    PyObject* const made = error_of == nullptr ? nullptr : PyObject_Call(error_of, arguments.ptr(), nullptr);
    Py_XDECREF(error_of);
    Py_XDECREF(errors);
    return made;
  });
  if (error == nullptr) throw nb::python_error();
  return nb::steal(error);
}

void raise(const Status& status) {
  const nb::object error = exception_of(status);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace tcpx::python
