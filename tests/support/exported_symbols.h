// What a shared library exports, as nm(1) sees it.
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
inline std::set<std::string> exported_symbols(const std::string& nm, const std::string& library) {
  const std::string command = nm + " -D --defined-only --format=posix " + library;
  const std::unique_ptr<FILE, int (*)(FILE*)> output(::popen(command.c_str(), "r"), ::pclose);
  EXPECT_NE(output, nullptr);
  std::set<std::string> exported;
  std::array<char, 1024> line;
  while (output != nullptr && std::fgets(line.data(), line.size(), output.get()) != nullptr) {
    std::string name;
    std::istringstream(line.data()) >> name;
    exported.insert(name);
  }
  return exported;
}

}  // namespace tcpx::testing
