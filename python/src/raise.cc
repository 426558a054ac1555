#include "python/src/raise.h"

#include <nanobind/stl/string.h>

#include <string>

#include "python/src/unlocked.h"
#include "tcpx/help.h"

namespace tcpx::python {

namespace nb = nanobind;

nb::object exception_of(const Status& status) {
  const std::string name(name_of(status.code()));
  return outlive_interpreter([&] {
    return nb::module_::import_("tcpx.errors")
        .attr("error_of")(name, status.to_string(), help_lines(status), status.operation(), status.detail(), status.native());
  });
}

void raise(const Status& status) {
  const nb::object error = exception_of(status);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace tcpx::python
