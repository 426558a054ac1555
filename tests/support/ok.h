// Statuses and results in tests: one line that fails with the reason where they are not well; and the deadline of what must be well.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "base/clock.h"
#include "tcpx/status.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

inline Deadline soon() {
  return Deadline::after(kTestDeadline);
}

inline std::string text_of(const Status& status) {
  return status.to_string();
}
template <class T>
std::string text_of(const Result<T>& result) {
  return result.status().to_string();
}

/// The value of a result that must be there; without one the case ends at once and fails with the status.
template <class T>
T must(Result<T> result) {
  if (!result.is_ok()) throw std::runtime_error(text_of(result));
  return std::move(result).value();
}

}  // namespace tcpx::testing

#define EXPECT_OK(status_or_result) EXPECT_EQ(::tcpx::testing::text_of(status_or_result), "TCPX_OK")
#define ASSERT_OK(status_or_result) ASSERT_EQ(::tcpx::testing::text_of(status_or_result), "TCPX_OK")
