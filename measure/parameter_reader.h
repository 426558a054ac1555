// Fields out of parameters (wire/set_up_messages.h) that a peer sent. Nothing is trusted.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/text.h"
#include "base/words.h"
#include "tcpx/status.h"
#include "wire/set_up_messages.h"

namespace tcpx {

/// The first field that is missing, malformed or out of range sticks as `status()`, kProtocol naming it; a value read from then on
/// is empty and must not be used.
class ParameterReader {
 public:
  /// @param operation of the status; both must outlive the reader
  ParameterReader(const Parameters& parameters, std::string_view operation) : parameters_(parameters), operation_(operation) {}

  bool has(const std::string& name) const { return parameters_.contains(name); }
  /// With everything replaced that is not printable, because it may end in a log.
  std::string text(const std::string& name) {
    const auto found = parameters_.find(name);
    if (found == parameters_.end()) return fail<std::string>(name, "is missing");
    return printable(std::as_bytes(std::span(found->second)), kMaxParameterBytes);
  }
  /// @return a finite number, `least` ... `most`
  template <class Number>
  Number number(const std::string& name, Number least = 0, Number most = std::numeric_limits<Number>::max()) {
    const std::string digits = text(name);
    if (!status_.is_ok()) return Number{};
    const auto value = number_of<Number>(digits);
    if (value && *value >= least && *value <= most) return *value;
    return fail<Number>(name, concat("is '", digits, "', no number in range"));
  }
  bool flag(const std::string& name) { return number<int>(name, 0, 1) == 1; }

  template <class Value>
  Value fail(const std::string& name, std::string_view what) {
    if (status_.is_ok()) status_ = Status(Code::kProtocol, std::string(operation_), concat('\'', name, "' ", what));
    return Value{};
  }
  const Status& status() const { return status_; }

 private:
  const Parameters& parameters_;
  const std::string_view operation_;
  Status status_;
};

}  // namespace tcpx
