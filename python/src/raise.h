// Statuses as Python exceptions: of the class that tcpx/errors.py has for the code.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "tcpx/status.h"

namespace tcpx::python {

/// Calls that, tcpx.errors.error_of, with what a Status says, for the exceptions below. Needs the interpreter lock.
void make_errors_with(const nanobind::object& maker);
/// The exception for a Status that is not ok. Needs the interpreter lock.
nanobind::object exception_of(const Status& status);
/// Throws that exception. Needs the interpreter lock.
[[noreturn]] void raise(const Status& status);

inline void check(const Status& status) {
  if (!status.is_ok()) raise(status);
}
template <class T>
T check(Result<T> result) {
  if (!result.is_ok()) raise(result.status());
  return std::move(result).value();
}

/// An object that a call of Python's C interface has made, for its caller to own; throws Python's error where there is none.
inline nanobind::object checked(PyObject* made) {
  if (made == nullptr) throw nanobind::python_error();
  return nanobind::steal(made);
}

}  // namespace tcpx::python
