// /sys and /proc as the checks read them: of this machine, or of a directory that a test has filled.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx::doctor {

/// Paths are absolute, as on the machine: "/sys/class/net/eth0/mtu". Nothing is ever written.
class FileTree {
 public:
  /// @param root what stands for "/"; "" is this machine. No slash at its end.
  explicit FileTree(std::string root = {}) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  bool exists(std::string_view path) const;
  /// The first `most_bytes`, without white space at the end. nullopt: no such file, or it cannot be read, as some of /sys cannot;
  /// what is not a file, such as a pipe, is never opened.
  std::optional<std::string> read(std::string_view path, size_t most_bytes = 64 * 1024) const;
  /// Names in a directory, sorted; none when there is no such directory.
  std::vector<std::string> list(std::string_view path) const;
  /// Where a symbolic link leads, with all links on the way followed, as a path of the machine. nullopt: nowhere.
  std::optional<std::string> resolve(std::string_view path) const;

 private:
  std::string at(std::string_view path) const;

  std::string root_;
};

}  // namespace tcpx::doctor
