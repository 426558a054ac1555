// Dynamic symbols of a shared library, as listed by nm(1).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace tcpx::testing {

/// @param nm path of the program nm
/// @param which "--defined-only": its exports; "--undefined-only": its imports, as NAME@VERSION for versioned ones
inline std::set<std::string> dynamic_symbols(const std::string& nm, const std::string& which, const std::string& library) {
  const std::string command = nm + " -D --format=posix " + which + " " + library;
  const std::unique_ptr<FILE, int (*)(FILE*)> output(::popen(command.c_str(), "r"), ::pclose);
  EXPECT_NE(output, nullptr);
  std::set<std::string> symbols;
  std::array<char, 1024> line;
  while (output != nullptr && std::fgets(line.data(), line.size(), output.get()) != nullptr) {
    std::string name;
    std::istringstream(line.data()) >> name;
    symbols.insert(name);
  }
  return symbols;
}

}  // namespace tcpx::testing
