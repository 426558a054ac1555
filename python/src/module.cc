// tcpx._core: what the Python files are made of. Nobody else imports it; python/tcpx/_core.pyi says what it has.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "python/src/core_endpoint.h"
#include "python/src/log_lines.h"
#include "python/src/raise.h"
#include "python/src/slot_parts.h"
#include "python/src/unlocked.h"
#include "tcpx/help.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tcpx::python {
namespace {

std::unique_ptr<CoreEndpoint> make_endpoint(int gpu, uint32_t num_cpus, const std::string& listen_address, uint16_t port,
                                            const std::string& public_address, const std::string& plugin,
                                            std::optional<double> timeout, std::optional<uint32_t> inline_bytes,
                                            uint32_t max_operations, std::optional<uint64_t> max_peer_bytes,
                                            std::optional<nb::object> question) {
  EndpointConfig config{.gpu_idx = gpu,
                        .num_cpus = num_cpus,
                        .listen_address = listen_address,
                        .port = port,
                        .public_address = public_address,
                        .plugin_path = plugin};
  if (timeout) config.operation_timeout = *timeout == 0 ? CoreEndpoint::Milliseconds(0) : milliseconds_of(*timeout);
  config.inline_bytes = inline_bytes;
  config.max_operations = max_operations;
  config.max_peer_bytes = max_peer_bytes;
  return std::make_unique<CoreEndpoint>(config, question ? std::make_shared<AcceptFilter>(*question) : nullptr);
}

bool done(CoreOperation& operation) {
  if (!operation.has_outcome()) return false;
  const Unlocked unlocked;
  return operation.ended();
}

Options options_of(std::optional<double> timeout, std::optional<uintptr_t> stream, std::optional<nb::bytes> notify, bool event) {
  return {timeout, stream, std::move(notify), event};
}

nb::list names_of_codes() {
  nb::list names;
  for (int i = 1; i <= static_cast<int>(kLastCode); ++i) {
    const std::string_view name = name_of(static_cast<Code>(i));
    names.append(nb::str(name.data(), name.size()));
  }
  return names;
}

// Address, length and whether it is read-only, of an object that exports its memory; the object must outlive the use of them.
nb::tuple extent_of(const nb::handle& object) {
  Py_buffer view;
  if (outlive_interpreter([&] { return PyObject_GetBuffer(object.ptr(), &view, PyBUF_C_CONTIGUOUS); }) != 0)
    throw nb::python_error();
  const nb::tuple extent =
      nb::make_tuple(reinterpret_cast<uintptr_t>(view.buf), static_cast<size_t>(view.len), view.readonly != 0);
  outlive_interpreter([&] { PyBuffer_Release(&view); });
  return extent;
}

}  // namespace
}  // namespace tcpx::python

NB_MODULE(_core, module) {
  using namespace tcpx::python;
  nb::set_leak_warnings(false);  // a daemon thread that outlives the interpreter is no leak of ours
  nb::class_<CoreOperation>(module, "Operation")
      .def("done", &done)
      .def("wait", &wait_for_end, "timeout"_a.none())
      .def("check",
           [](CoreOperation& self) {
             if (done(self)) check(self.status());
           })
      .def("error",
           [](CoreOperation& self) -> nb::object {
             if (!done(self) || self.status().is_ok()) return nb::none();
             return exception_of(self.status());
           })
      .def("cancel", [](CoreOperation& self) { check(self.cancel()); })
      .def("completion_event", [](CoreOperation& self) { return reinterpret_cast<uintptr_t>(check(self.completion_event())); });

  nb::class_<Ranges>(module, "Ranges")
      .def("__len__", [](const Ranges& self) { return self.local.size(); })
      .def_ro("parts", &Ranges::parts)
      .def_ro("streams", &Ranges::streams)
      .def_ro("readonly", &Ranges::readonly);
  module.def("ranges_of", &ranges_of, "buffers"_a, "slots"_a.none(), "extent_of"_a);
  module.def("ranges_of_pairs", &ranges_of_pairs);

  nb::class_<CoreEndpoint::Hold>(module, "Hold");
  nb::class_<CoreEndpoint::Plan>(module, "Plan");
  nb::class_<CoreEndpoint>(module, "Endpoint")
      .def(nb::new_(&make_endpoint), "gpu"_a, "num_cpus"_a, "listen_address"_a, "port"_a, "public_address"_a, "plugin"_a,
           "timeout"_a.none(), "inline_bytes"_a.none(), "max_operations"_a, "max_peer_bytes"_a.none(), "question"_a.none())
      .def("close", &CoreEndpoint::close)
      .def("closed", &CoreEndpoint::closed)
      .def("metadata", &CoreEndpoint::metadata)
      .def("connect", &CoreEndpoint::connect)
      .def("connect_metadata", &CoreEndpoint::connect_metadata)
      .def("accept", &CoreEndpoint::accept)
      .def("start_accepting", &CoreEndpoint::start_accepting)
      .def("remove", &CoreEndpoint::remove)
      .def("hold", &CoreEndpoint::hold)
      .def("add_region", &CoreEndpoint::add_region)
      .def("drop_region", &CoreEndpoint::drop_region)
      .def("advertise", &CoreEndpoint::advertise, "conn"_a.none(), "region"_a, "data"_a, "bytes"_a, "stream"_a.none(), "access"_a,
           "ends_after"_a.none(), "uses"_a)
      .def("is_advertised", &CoreEndpoint::is_advertised)
      .def("withdraw", &CoreEndpoint::withdraw)
      .def(
          "start",
          [](const CoreEndpoint& self, int kind, uint64_t conn, uintptr_t data, size_t bytes, std::optional<nb::bytes> slot,
             uint64_t offset, std::optional<double> timeout, std::optional<uintptr_t> stream, std::optional<nb::bytes> notify,
             bool event) {
            return self.start(kind, conn, data, bytes, slot, offset, options_of(timeout, stream, std::move(notify), event));
          },
          "kind"_a, "conn"_a, "data"_a, "bytes"_a, "slot"_a.none(), "offset"_a, "timeout"_a.none(), "stream"_a.none(),
          "notify"_a.none(), "event"_a)
      .def(
          "start_many",
          [](const CoreEndpoint& self, int kind, uint64_t conn, const Ranges& ranges, std::optional<double> timeout,
             std::optional<uintptr_t> stream, std::optional<nb::bytes> notify,
             bool event) { return self.start_many(kind, conn, ranges, options_of(timeout, stream, std::move(notify), event)); },
          "kind"_a, "conn"_a, "ranges"_a, "timeout"_a.none(), "stream"_a.none(), "notify"_a.none(), "event"_a)
      .def("prepare", &CoreEndpoint::prepare)
      .def(
          "start_plan",
          [](const CoreEndpoint& self, int kind, uint64_t conn, const CoreEndpoint::Plan& plan, std::optional<BlockIds> numbers,
             std::optional<double> timeout, std::optional<uintptr_t> stream, std::optional<nb::bytes> notify, bool event) {
            return self.start_plan(kind, conn, plan, numbers, options_of(timeout, stream, std::move(notify), event));
          },
          "kind"_a, "conn"_a, "plan"_a, "numbers"_a.none(), "timeout"_a.none(), "stream"_a.none(), "notify"_a.none(), "event"_a)
      .def(
          "start_blocks",
          [](const CoreEndpoint& self, int kind, uint64_t conn, uintptr_t data, size_t bytes, uint64_t count,
             const BlockIds& local, const nb::bytes& slot, uint64_t offset, uint64_t remote_count, const BlockIds& remote,
             std::optional<double> timeout, std::optional<uintptr_t> stream, std::optional<nb::bytes> notify, bool event) {
            return self.start_blocks(kind, conn, data, bytes, count, local, slot, offset, remote_count, remote,
                                     options_of(timeout, stream, std::move(notify), event));
          },
          "kind"_a, "conn"_a, "data"_a, "bytes"_a, "count"_a, "local"_a, "slot"_a, "offset"_a, "remote_count"_a, "remote"_a,
          "timeout"_a.none(), "stream"_a.none(), "notify"_a.none(), "event"_a)
      .def("notify", &CoreEndpoint::notify)
      .def("notifications", &CoreEndpoint::notifications)
      .def("event_fd", &CoreEndpoint::event_fd)
      .def("stats", &CoreEndpoint::stats)
      .def("flight_record", &CoreEndpoint::flight_record)
      .def("metrics", &CoreEndpoint::metrics);

  module.attr("SlotParts") = make_slot_class();
  module.def("extent_of", &extent_of);
  module.def("names_of_codes", &names_of_codes);
  module.def("make_errors_with", &make_errors_with);
  module.def("keep_log_lines", &keep_log_lines);
  module.def("release_log_lines", &release_log_lines);
  module.def(
      "take_log_lines",
      [](double seconds) { return take_log_lines(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000))); },
      nb::call_guard<Unlocked>());
  module.attr("version") = TCPX_VERSION;
}
