// Secret: bytes that leave this process in no log and no core dump, and are wiped when they are let go.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/environment.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// Opens the file that the variable names, if this user or root owns it and neither group nor others may read it.
/// @return kNotFound and kSystem with the errno; kBadConfig naming the rule
Result<UniqueFd> open_private(Variable variable, const std::string& path);
/// Status for the errno of opening the file that the variable names.
Status cannot_open(Variable variable, const std::string& path);

/// Movable. A forked child has a copy of the memory.
class Secret {
 public:
  static constexpr size_t kFewestBytes = 32, kMostBytes = 4096;

  /// Reads the file that UCCL_TCPX_SECRET_FILE names. A newline at its end does not count.
  /// @return kNotFound and kSystem with the errno; kBadConfig naming the rule: a regular file of this user or of root that neither
  /// group nor others may read, with 32 ... 4095 bytes
  static Result<Secret> read_file(const std::string& path);
  /// Zeros for the caller to write over. @param size at most kMostBytes. @return kExhausted: no memory
  static Result<Secret> zeros(size_t size);

  std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }
  std::span<std::byte> room() { return {memory_.get(), size_}; }

 private:
  struct Wipe {
    void operator()(std::byte* memory) const;
  };
  Secret() = default;

  std::unique_ptr<std::byte, Wipe> memory_;  // a mapping of kMostBytes
  size_t size_ = 0;
};

}  // namespace tcpx
