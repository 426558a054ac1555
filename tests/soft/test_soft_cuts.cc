// Connections of the software plugin that lose a single socket, or their peer.
#include <cstdio>
#include <vector>

#include "base/text.h"
#include "net/soft/page_pool.h"
#include "net/soft/recv_comm.h"
#include "net/soft/send_comm.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/process_state.h"
#include "tests/support/soft_faults.h"
#include "tests/support/units.h"

namespace tcpx::testing {
namespace {


using SoftCuts = SoftFaults;

TEST_F(SoftCuts, Trap14_ACutDataSocketIsAnErrorThoughTheOthersLive) {
  RawSender raw(table_);
  void* request = raw.post(2 * kMiB);
  raw.send_chunk(0, {.sequence = 0, .total = 1048576, .offset = 0, .bytes = RawSender::kCut, .cut = RawSender::kCut});
  raw.sockets.data[1].reset();
  EXPECT_EQ(raw.finish(request), abi::kNcclSystemError);
}

// Below, every way to lose one socket of three, in every state of a comm, all at the same time.

constexpr const char* kSockets[] = {"first data socket", "second data socket", "control socket"};
constexpr const char* kWays[] = {"ended", "reset"};
// It takes half a second at most. The test fails on a hang, not on a busy machine.
constexpr std::chrono::seconds kMostToError{kIsChecked ? 20 : 5};

/// A connection of two data sockets whose other end is controlled by the test and loses one.
struct Cut {
  Cut(const char* lost_socket, const char* lost_how, const char* comm_state, int buffer_bytes)
      : socket(lost_socket), how(lost_how), state(comm_state), wire(kPageBytes, buffer_bytes) {}
  virtual ~Cut() = default;

  /// Uses the comm once more. @return its error.
  virtual Status use() = 0;
  bool is_control() const { return socket == kSockets[2]; }
  void cut() {
    UniqueFd& fd = is_control() ? wire.theirs.control : wire.theirs.data[socket == kSockets[0] ? 0 : 1];
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (how == kWays[1]) {
      EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    }
    fd.reset();
    cut_at = Clock::steady().now();
  }
  std::string name() const { return concat(state, ", ", socket, " ", how); }

  const char *socket, *how, *state;
  Wire wire;
  TimePoint cut_at{}, told_at{};
};

class SoftCutsEverywhere : public ::testing::Test {
 protected:
  void SetUp() override { allow_log("tcpx-soft"); }

  void cut_all() {
    for (const auto& cut : cuts_) cut->cut();
  }
  /// Every comm reports the error.
  void expect_errors() {
    size_t missing = 0;
    wait_until([&] {
      missing = 0;
      for (const auto& cut : cuts_) {
        if (cut->told_at != TimePoint{}) continue;
        const Status status = cut->use();
        if (status.is_ok()) {
          ++missing;
        } else {
          EXPECT_TRUE(status.code() == Code::kPeerGone || status.code() == Code::kSystem)
              << cut->name() << ": " << status.to_string();
          cut->told_at = Clock::steady().now();
        }
      }
      return missing == 0;
    });
    Duration worst{};
    for (const auto& cut : cuts_) {
      EXPECT_NE(cut->told_at, TimePoint{}) << cut->name() << ": a hang";
      worst = std::max(worst, cut->told_at - cut->cut_at);
    }
    EXPECT_LT(worst, kMostToError);
    std::printf("%zu connections cut, error %.1f ms later at worst\n", cuts_.size(), 1e-6 * static_cast<double>(worst.count()));
  }

  std::shared_ptr<soft::IoPool> io_ = *soft::IoPool::create(2);
  std::vector<std::unique_ptr<Cut>> cuts_;
};

struct SenderCut final : Cut {
  static constexpr const char* kStates[] = {"idle", "full", "copying", "in line for a slot"};
  static constexpr size_t kMost = 8 << 20;  // more than the sockets take

  SenderCut(const std::shared_ptr<soft::IoPool>& io, const char* lost_socket, const char* lost_how, const char* comm_state)
      : Cut(lost_socket, lost_how, comm_state, 64 * 1024) {
    comm = std::move(*soft::SoftSendComm::create(memory, 0, io, staging, std::move(wire.ours)));
    region = *comm->register_region(source.device(), kMost, MemoryType::kCuda);
    if (state == kStates[0]) return;
    if (state == kStates[2]) memory.hold_copies();
    while (state == kStates[3] && (slots.empty() || slots.back())) slots.push_back(staging->try_take());
    post(state == kStates[1] ? kMost : 2 * kPageBytes);
    EXPECT_TRUE(wait_until([&] {
      if (state == kStates[1]) return staging->free_count() < soft::StagingPool::kSlots;
      return state == kStates[2] ? memory.held_copies() > 0 : staging->is_contended();
    }));
  }
  ~SenderCut() override { memory.release_copies(); }
  void post(size_t bytes) { request = must(comm->isend(source.device(), static_cast<int>(bytes), 0, region)); }
  Status use() override {
    if (request == nullptr) {
      TCPX_ASSIGN_OR_RETURN(const auto posted, comm->isend(source.device(), 1, 0, region));
      request = posted;
    }
    const auto answer = comm->test(request);
    if (answer.is_ok() && answer->done) request = nullptr;
    return answer.status();
  }

  HiddenMemoryOps memory;
  std::shared_ptr<soft::StagingPool> staging = std::make_shared<soft::StagingPool>(memory, 0);
  MemoryBuffer source = *memory.allocate_device(0, kMost);
  std::vector<soft::StagingPool::Slot> slots;
  std::unique_ptr<soft::SoftSendComm> comm;
  soft::SoftRegion* region = nullptr;
  abi::TcpxRequest* request = nullptr;
};

TEST_F(SoftCutsEverywhere, ASenderIsTold) {
  for (const char* state : SenderCut::kStates) {
    for (const char* socket : kSockets) {
      for (const char* how : kWays) cuts_.push_back(std::make_unique<SenderCut>(io_, socket, how, state));
    }
  }
  cut_all();
  // An error is reported once the copies in flight have ended; their slots need not have been returned.
  for (const auto& cut : cuts_) static_cast<SenderCut&>(*cut).memory.release_copies();
  expect_errors();
  for (auto& cut : cuts_) {
    auto& sender = static_cast<SenderCut&>(*cut);
    sender.comm.reset();
    sender.slots.clear();
    EXPECT_EQ(sender.staging->free_count(), soft::StagingPool::kSlots) << sender.name();
  }
}

struct ReceiverCut final : Cut {
  static constexpr const char* kStates[] = {"nothing posted", "nothing sent",         "in the middle of a message",
                                            "socket parked",  "one message complete", "in the middle of a header"};
  static constexpr uint32_t kPage = kPageBytes;

  ReceiverCut(const std::shared_ptr<soft::IoPool>& io, std::shared_ptr<soft::PagePool> pages, const char* lost_socket,
              const char* lost_how, const char* comm_state)
      : Cut(lost_socket, lost_how, comm_state, 0) {
    comm = std::move(*soft::SoftRecvComm::create(*memory, 0, io, std::move(pages), std::move(wire.ours)));
    region = *comm->register_region(target.device(), target.size(), MemoryType::kCuda);
    if (state == kStates[0]) return;
    post();
    if (state == kStates[2]) send({.sequence = 0, .total = 2 * kPage, .offset = 0, .bytes = kPage, .cut = kPage}, kPage / 2);
    if (state == kStates[3]) send({.sequence = 1, .total = kPage, .offset = 0, .bytes = kPage, .cut = kPage}, kPage);
    if (state == kStates[4]) send({.sequence = 0, .total = kPage, .offset = 0, .bytes = kPage, .cut = kPage}, kPage);
    if (state == kStates[5]) send_bytes(wire.theirs.data[0], std::vector<std::byte>(soft::kChunkHeaderBytes / 2));
  }
  void post() { request = must(comm->irecv(target.device(), static_cast<int>(target.size()), 0, region)); }
  void send(const soft::ChunkHeader& header, size_t payload_bytes) {
    send_chunk(wire.theirs.data[0], header, pattern_bytes(payload_bytes, 1));
  }
  Status use() override {
    if (request == nullptr) {
      TCPX_ASSIGN_OR_RETURN(const auto posted, comm->irecv(target.device(), static_cast<int>(target.size()), 0, region));
      request = posted;
    }
    const auto answer = comm->test(request);
    if (!answer.is_ok() || !answer->done) return answer.status();
    ++complete;
    EXPECT_TRUE(comm->consumed(request).is_ok());
    request = nullptr;
    return Status::ok();
  }

  std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  MemoryBuffer target = *memory->allocate_device(0, 4 * kPage);
  std::unique_ptr<soft::SoftRecvComm> comm;
  soft::SoftRegion* region = nullptr;
  const abi::TcpxRequest* request = nullptr;
  int complete = 0;
};

TEST_F(SoftCutsEverywhere, AReceiverIsToldAfterWhatIsComplete) {
  const auto memory = make_host_memory_ops();
  const auto pool = *soft::PagePool::create(*memory, 0, 4 << 20);
  for (const char* state : ReceiverCut::kStates) {
    for (const char* socket : kSockets) {
      for (const char* how : kWays) cuts_.push_back(std::make_unique<ReceiverCut>(io_, pool, socket, how, state));
    }
  }
  cut_all();
  expect_errors();
  for (auto& cut : cuts_) {
    auto& receiver = static_cast<ReceiverCut&>(*cut);
    EXPECT_EQ(receiver.complete, receiver.state == ReceiverCut::kStates[4] ? 1 : 0) << receiver.name();
    receiver.comm.reset();
  }
  EXPECT_EQ(pool->free_count(), pool->page_count());
}

}  // namespace
}  // namespace tcpx::testing
