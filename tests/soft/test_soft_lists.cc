// Registrations of memory in several places: what is sent from them, and received into them.
#include <optional>
#include <random>

#include "net/soft/soft_table.h"
#include "tests/support/soft_faults.h"
#include "tests/support/units.h"

namespace tcpx::testing {
namespace {

/// Memory of which a list names some parts.
struct Listed {
  Listed(size_t bytes, size_t longest, std::mt19937& random) {
    for (size_t at = 0; at < bytes;) {
      const size_t part = std::min(bytes - at, 1 + random() % longest);
      order.emplace_back(memory.size(), part);
      memory.resize(memory.size() + part + random() % 3);  // some are neighbours
      at += part;
    }
    std::shuffle(order.begin(), order.end(), random);
    list = std::make_shared<RangeList>();
    for (const auto& [offset, part] : order) list->add(memory.data() + offset, part);
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes;
    for (const auto& [offset, part] : order)
      bytes.insert(bytes.end(), memory.begin() + static_cast<ptrdiff_t>(offset),
                   memory.begin() + static_cast<ptrdiff_t>(offset + part));
    return bytes;
  }
  void write(const std::vector<std::byte>& bytes) {
    auto from = bytes.begin();
    for (const auto& [offset, part] : order) {
      std::copy_n(from, part, memory.begin() + static_cast<ptrdiff_t>(offset));
      from += static_cast<ptrdiff_t>(part);
    }
  }
  std::vector<std::byte> memory;
  std::vector<std::pair<size_t, size_t>> order;
  std::shared_ptr<RangeList> list;
};

class SoftLists : public SoftFaults {
 protected:
  void SetUp() override {
    SoftFaults::SetUp();
    made_.emplace(table_);
  }
  void* send(const Listed& from, void* mhandle, size_t offset, size_t bytes) {
    void* request = nullptr;
    EXPECT_EQ(pair().table.isend(pair().sender, from.list->begin() + offset, static_cast<int>(bytes), 0, mhandle, &request), 0);
    return request;
  }
  void* receive(const Listed& into, void* mhandle, size_t offset, size_t bytes) {
    void *data = into.list->begin() + offset, *request = nullptr;
    int size = static_cast<int>(bytes), tag = 0;
    EXPECT_EQ(pair().table.irecv(pair().receiver, 1, &data, &size, &tag, &mhandle, &request), 0);
    return request;
  }
  void* add(void* comm, const Listed& listed) {
    const auto added = soft::register_list(comm, listed.list);
    EXPECT_TRUE(added.is_ok());
    return added.is_ok() ? *added : nullptr;
  }
  TablePair& pair() { return *made_; }
  std::optional<TablePair> made_;
  std::mt19937 random_{5};
};

TEST_F(SoftLists, BytesGoFromPlaceToPlaceAndNowhereElse) {
  // Ranges of one byte are more than a system call takes; longer ones are fewer.
  for (const size_t longest : {size_t{1}, size_t{50}, size_t{5'000}, size_t{70'000}, size_t{4 * kMiB}}) {
    for (const size_t bytes : {size_t{1}, size_t{4'097}, size_t{40'000}, longest > 1 ? 3 * kMiB + 5 : size_t{300'000}}) {
      Listed from(bytes, longest, random_), into(bytes, longest, random_);
      from.write(pattern_bytes(bytes, bytes));
      Listed expected = into;
      expected.write(pattern_bytes(bytes, bytes));
      void *const sent_from = add(pair().sender, from), *const received_into = add(pair().receiver, into);
      // In two messages.
      const size_t first = random_() % bytes;
      void* const in[] = {receive(into, received_into, 0, first), receive(into, received_into, first, bytes - first)};
      void* const out[] = {send(from, sent_from, 0, first), send(from, sent_from, first, bytes - first)};
      EXPECT_EQ(pair().finish(in[0]), static_cast<int>(first));
      pair().consume(in[0]);
      EXPECT_EQ(pair().finish(in[1]), static_cast<int>(bytes - first));
      pair().consume(in[1]);
      for (void* request : out) pair().finish(request);
      ASSERT_TRUE(into.memory == expected.memory) << bytes << " bytes in ranges of at most " << longest;
      EXPECT_EQ(pair().deregister(pair().sender, sent_from), 0);
      EXPECT_EQ(pair().deregister(pair().receiver, received_into), 0);
    }
  }
}

TEST_F(SoftLists, WhatIsNotInTheListIsRefused) {
  Listed from(10'000, 100, random_);
  void* const mhandle = add(pair().sender, from);
  void* request = nullptr;
  EXPECT_NE(pair().table.isend(pair().sender, from.list->begin() + 1, 10'000, 0, mhandle, &request), 0);
  EXPECT_NE(pair().table.isend(pair().sender, from.list->begin() - 1, 1, 0, mhandle, &request), 0);
  EXPECT_EQ(pair().deregister(pair().sender, mhandle), 0);
  EXPECT_NE(pair().table.isend(pair().sender, from.list->begin(), 1, 0, mhandle, &request), 0);
  EXPECT_FALSE(soft::register_list(pair().listener, from.list).is_ok());
  EXPECT_FALSE(soft::register_list(nullptr, from.list).is_ok());
}

}  // namespace
}  // namespace tcpx::testing
