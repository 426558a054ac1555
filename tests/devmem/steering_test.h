// What tests of steering have: a played NIC, for whose interface that of loopback stands, and a directory of records.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "net/devmem/netdev.h"
#include "net/devmem/steering.h"
#include "tests/devmem/fake_nic.h"
#include "tests/support/temporary_directory.h"

namespace tcpx::testing {

class SteeringTest : public ::testing::Test {
 protected:
  devmem::Steering open() { return *devmem::Steering::open(nic, "lo", directory.path()); }
  /// A record as a process leaves it that dies.
  void leave(devmem::SteeringRecord record) {
    const devmem::SteeringRecords records = *devmem::SteeringRecords::open(directory.path(), *devmem::interface_index("lo"));
    const auto file = records.add(std::move(record));
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  }
  size_t records() const { return directory.entry_count() - 1; }  // beside the lock

  TemporaryDirectory directory;
  FakeNic nic;
};

}  // namespace tcpx::testing
