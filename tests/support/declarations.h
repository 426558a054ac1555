// What a public header declares, by name.
//
// Reads the C++ of our own headers, not C++: no macros that hide declarations, no constructors whose initialisers have braces.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace tcpx::testing {

/// Names without `tcpx::`, qualified by the types they belong to:
///  - functions with the names of their parameters: "Endpoint::wait(id, timeout)"; deleted ones and friends are left out
///  - types, also aliases: "Endpoint::Accepted"; declared ones without a body are left out
///  - enumerators, data members and constants: "Code::kOk", "LocalRange::bytes", "kPageBytes"
///  - macros, those with parameters like functions: "TCPX_OK"
/// What is private, protected, or in a namespace called `detail` is left out.
std::set<std::string> declarations(std::string_view header);

}  // namespace tcpx::testing
