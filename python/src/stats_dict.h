// Counters of an endpoint as Python's dictionaries.
#pragma once

#include <nanobind/nanobind.h>

#include "tcpx/endpoint.h"

namespace tcpx::python {

/// Names are those of the structures; times are in microseconds. Needs the interpreter lock.
nanobind::dict dict_of(const EndpointStats& stats);

}  // namespace tcpx::python
