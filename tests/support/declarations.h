// Names declared by a public header.
//
// Reads only the C++ subset of our own headers: no macros that hide declarations, no constructors whose initialisers have braces.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace tcpx::testing {

/// Names without `tcpx::`, qualified by the types they belong to:
///  - functions with the names of their parameters: "Endpoint::wait(id, timeout)"; deleted ones and friends are omitted
///  - types, also aliases: "Endpoint::Accepted"; forward declarations are omitted
///  - enumerators, data members and constants: "Code::kOk", "LocalRange::bytes", "kPageBytes"
///  - macros, those with parameters like functions: "TCPX_OK"
/// Names that are private, protected, or in a namespace called `detail` are omitted.
std::set<std::string> declarations(std::string_view header);

}  // namespace tcpx::testing
