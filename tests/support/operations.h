// Operations of a table, as its tests begin, end and watch them.
#pragma once

#include <gtest/gtest.h>

#include "endpoint/operation.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

inline Deadline far() {
  return Deadline::after(kTestDeadline);
}

inline Status failure() {
  return Status(Code::kPeerGone, "test", "the peer is gone");
}

inline Operation& acquired(OperationTable& table) {
  Result<Operation*> operation = table.acquire();
  EXPECT_TRUE(operation.is_ok()) << operation.status().to_string();
  return **operation;
}

inline OperationState state_of(OperationTable& table, OperationId id) {
  return table.poll(id).state;
}

/// History of a FakeSignal, which outlives it.
struct SignalLife {
  int fired = 0;
  bool alive = false;
};

class FakeSignal final : public GpuSignal {
 public:
  FakeSignal(SignalLife& life, void* event) : life_(life), event_(event) { life_.alive = true; }
  ~FakeSignal() override { life_.alive = false; }
  void* event() const override { return event_; }
  void fire() override { ++life_.fired; }

 private:
  SignalLife& life_;
  void* event_;
};

}  // namespace tcpx::testing
