// TraceRange: a named span of time for profilers such as Nsight Systems, over NVTX, in the domain "tcpx". In a build without NVTX
// it does nothing; when no profiler listens it costs a few nanoseconds.
#pragma once

#include <cstdint>
#include <utility>

namespace tcpx {

/// May begin on one thread and end on another. One thread at a time.
class TraceRange {
 public:
  TraceRange() = default;
  /// Begins the range now. @param name must stay valid until the call returns
  /// @param bytes size that the profiler shows with the name
  TraceRange(const char* name, uint64_t bytes);
  ~TraceRange() { end(); }
  TraceRange(TraceRange&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  TraceRange& operator=(TraceRange&& other) noexcept {
    end();
    id_ = std::exchange(other.id_, 0);
    return *this;
  }

  /// Ends the range now; has no effect when it has ended already.
  void end();
  /// True when a profiler is listening to this range.
  bool is_seen() const { return id_ != 0; }
  /// True when this build has NVTX.
  static bool is_built_in();

 private:
  uint64_t id_ = 0;  // 0: none
};

}  // namespace tcpx
