// Status and Result: failures as values.
//
// A Status names what happened (`code`), what was being done (`operation`), what exactly went wrong (`detail`) and, for an
// error of a foreign system, that system's own number with its domain. The code that first turns a foreign code into a Status
// logs it; callers pass it on. Bugs are assertions, not Statuses.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tcpx {

/// Closed set; the C API returns the negated value (`TCPX_E_...` in tcpx_interface.h mirrors it, checked by a test).
enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 1,  ///< the caller passed something no call of this kind accepts
  kNotFound = 2,         ///< a named thing (file, device, id) does not exist
  kUnsupported = 3,      ///< this machine, build or plugin cannot do it
  kBadConfig = 4,        ///< an environment variable is present but malformed or out of range
  kTimeout = 5,          ///< a deadline passed
  kPeerGone = 6,         ///< the other end closed, died or cannot be reached
  kProtocol = 7,         ///< the other end, a kernel record or a plugin structure broke the agreed format
  kPlugin = 8,           ///< the net plugin refused; see the native code
  kCuda = 9,             ///< a CUDA call failed; native code is a cudaError_t
  kSystem = 10,          ///< a system call failed; native code is an errno
  kExhausted = 11,       ///< a queue, pool or window is full, or this machine is out of descriptors, memory or ports
  kMismatch = 12,        ///< two things differ that must be equal: sizes, settings
  kInternal = 13,        ///< an exception reached a boundary: a defect of ours
  kCancelled = 14,       ///< given up by the caller, here or at the other end
  kCorrupt = 15,         ///< bytes arrived other than they were sent, as their checksum says
};
inline constexpr Code kLastCode = Code::kCorrupt;

/// Owner of a native code.
enum class Domain : int32_t { kNone, kErrno, kNccl, kCuda };

constexpr std::string_view name_of(Code code) {
  switch (code) {
    case Code::kOk:
      return "TCPX_OK";
    case Code::kInvalidArgument:
      return "TCPX_E_INVALID_ARGUMENT";
    case Code::kNotFound:
      return "TCPX_E_NOT_FOUND";
    case Code::kUnsupported:
      return "TCPX_E_UNSUPPORTED";
    case Code::kBadConfig:
      return "TCPX_E_BAD_CONFIG";
    case Code::kTimeout:
      return "TCPX_E_TIMEOUT";
    case Code::kPeerGone:
      return "TCPX_E_PEER_GONE";
    case Code::kProtocol:
      return "TCPX_E_PROTOCOL";
    case Code::kPlugin:
      return "TCPX_E_PLUGIN";
    case Code::kCuda:
      return "TCPX_E_CUDA";
    case Code::kSystem:
      return "TCPX_E_SYSTEM";
    case Code::kExhausted:
      return "TCPX_E_EXHAUSTED";
    case Code::kMismatch:
      return "TCPX_E_MISMATCH";
    case Code::kInternal:
      return "TCPX_E_INTERNAL";
    case Code::kCancelled:
      return "TCPX_E_CANCELLED";
    case Code::kCorrupt:
      return "TCPX_E_CORRUPT";
  }
  return "TCPX_E_UNKNOWN";
}

/// Cheap to hand on: an ok one is empty, copies of an error share what it says.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Without memory for the words it becomes kExhausted, which needs none. @param code kOk: the words are dropped
  Status(Code code, std::string operation, std::string detail, Domain domain = Domain::kNone, int32_t native = 0) {
    if (code == Code::kOk) return;
    try {
      failure_ = std::make_shared<const Failure>(Failure{code, domain, native, std::move(operation), std::move(detail)});
    } catch (const std::bad_alloc&) {
      failure_ = std::shared_ptr<const Failure>(std::shared_ptr<const Failure>(), &without_memory());
    }
  }

  static Status ok() { return {}; }
  bool is_ok() const { return failure_ == nullptr; }
  Code code() const { return is_ok() ? Code::kOk : failure_->code; }
  Domain domain() const { return is_ok() ? Domain::kNone : failure_->domain; }
  /// The foreign number, meaningful only with `domain()`.
  int32_t native() const { return is_ok() ? 0 : failure_->native; }
  const std::string& operation() const { return is_ok() ? nothing() : failure_->operation; }
  const std::string& detail() const { return is_ok() ? nothing() : failure_->detail; }

  /// "TCPX_E_PEER_GONE: connect: connection refused (errno 111)"
  std::string to_string() const {
    std::string text(name_of(code()));
    if (is_ok()) return text;
    text.append(": ").append(operation()).append(": ").append(detail());
    switch (domain()) {
      case Domain::kNone:
        break;
      case Domain::kErrno:
        text.append(" (errno ").append(std::to_string(native())).append(")");
        break;
      case Domain::kNccl:
        text.append(" (plugin rc ").append(std::to_string(native())).append(")");
        break;
      case Domain::kCuda:
        text.append(" (cudaError ").append(std::to_string(native())).append(")");
        break;
    }
    return text;
  }

 private:
  struct Failure {
    Code code;
    Domain domain;
    int32_t native;
    std::string operation, detail;
  };
  // Needs no memory. Never destroyed: threads may still look while the process exits.
  static const Failure& without_memory() {
    alignas(Failure) static std::byte place[sizeof(Failure)];
    static const Failure& failure = *new (place) Failure{Code::kExhausted, Domain::kNone, 0, "allocate", "out of memory"};
    return failure;
  }
  static const std::string& nothing() {
    static const std::string& empty = *new std::string;
    return empty;
  }

  std::shared_ptr<const Failure> failure_;  // nullptr: ok
};

/// A value or the Status that says why there is none. Never both, never an ok Status without a value.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.is_ok() && "a Result without a value needs an error"); }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    assert(is_ok());
    return *value_;
  }
  const T& value() const& {
    assert(is_ok());
    return *value_;
  }
  T&& value() && {
    assert(is_ok());
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tcpx

/// Returns the Status of `expression` from the enclosing function when it is not ok.
#define TCPX_RETURN_IF_ERROR(expression)                                                           \
  do {                                                                                             \
    if (::tcpx::Status failed_status = (expression); !failed_status.is_ok()) return failed_status; \
  } while (false)

/// `declaration` of a variable becomes the value of a Result; the enclosing function returns its Status when there is none. A
/// statement of its own in a block.
#define TCPX_ASSIGN_OR_RETURN(declaration, ...) \
  TCPX_ASSIGN_OR_RETURN_OF(TCPX_NAME_OF_LINE(tcpx_result_, __LINE__), declaration, __VA_ARGS__)
#define TCPX_ASSIGN_OR_RETURN_OF(result, declaration, ...) \
  auto result = (__VA_ARGS__);                             \
  if (!result.is_ok()) return result.status();             \
  declaration = std::move(result).value()
#define TCPX_NAME_OF_LINE(name, line) TCPX_NAME_OF_LINE_2(name, line)
#define TCPX_NAME_OF_LINE_2(name, line) name##line
