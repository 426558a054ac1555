// Want of memory on an event loop, at each place where a handler asks for some: the connection may end, and what was asked of it does;
// other connections go on.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "net/soft/recv_comm.h"
#include "net/soft/send_comm.h"
#include "tests/support/count_allocations.h"
#include "tests/support/expect_log.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/io_blocker.h"
#include "tests/support/resource_counts.h"
#include "tests/support/soft_wire.h"

namespace tcpx::testing {
namespace {

using namespace soft;

[[maybe_unused]] const bool kCommsFreeTheirs = allow_left_always("registrations with the software plugin");

constexpr uint32_t kChunkBytes = 2 * Chunking::kLeastChunkBytes;
constexpr size_t kMessageBytes = 3 * kChunkBytes / 2;

/// Takes the memory of the thread that runs it, and gives it back.
class Thief final : public FrugalHandler {
 public:
  explicit Thief(IoThread& thread) { EXPECT_OK(thread.add(fd_.get(), *this, registration_)); }
  void steal(uint64_t left) {
    left_ = left;
    order(Order::kSteal);
  }
  /// @return an allocation was refused meanwhile
  bool give_back() {
    order(Order::kGiveBack);
    return refused_;
  }
  Next on_ready() override {
    if (order_ == Order::kSteal) none_.emplace(left_);
    if (order_ == Order::kGiveBack) {
      refused_ = NoMemory::refused();
      none_.reset();
    }
    order_ = Order::kNone;
    return Next::kWait;
  }

 private:
  enum class Order { kNone, kSteal, kGiveBack };
  void order(Order order) {
    order_ = order;
    registration_.kick();
    EXPECT_TRUE(wait_until([this] { return order_ == Order::kNone; }));
  }
  std::atomic<Order> order_ = Order::kNone;
  uint64_t left_ = 0;
  bool refused_ = false;
  std::optional<NoMemory> none_;
  const UniqueFd fd_ = quiet_fd();
  IoRegistration registration_;
};

enum class Loop { kOwn, kLent };

class SoftMemory : public ::testing::TestWithParam<Loop> {
 protected:
  void SetUp() override {
    allow_log("tcpx-soft");
    if (GetParam() == Loop::kLent) {
      loop_ = IoPool::borrow(io_);
    } else {
      thief_.emplace(io_->any());
    }
  }
  /// Runs the handlers, of a lent loop, until the condition is true.
  template <class Condition>
  bool run_until(Condition condition) {
    return wait_until([&] {
      turn();
      return condition();
    });
  }
  void turn() {
    if (loop_ == nullptr) return;
    loop_->attend();
    (void)loop_->turn(true);
    loop_->leave();
  }
  /// Begins something, and runs the handlers with only so much memory, until the condition is true or they were refused some, for a
  /// short time. @return they were refused some
  template <class Begin, class Condition>
  bool run_short_of_memory(uint64_t left, Begin begin, Condition condition) {
    const auto until = Deadline::after(std::chrono::milliseconds(200));
    bool refused = false;
    if (thief_) {
      thief_->steal(left);
      begin();
      while (!until.expired() && !condition()) ::sched_yield();
      return thief_->give_back();
    }
    begin();
    while (!refused && !until.expired() && !condition()) {
      const uint64_t before = allocation_count();
      const NoMemory none(left);
      turn();
      left -= std::min(left, allocation_count() - before);
      refused = NoMemory::refused();
    }
    return refused;
  }

  struct Pair {
    std::unique_ptr<SoftRecvComm> receiver;
    std::unique_ptr<SoftSendComm> sender;
    MemoryBuffer source, target;
    SoftRegion *from = nullptr, *to = nullptr;
    abi::TcpxRequest *send = nullptr, *receive = nullptr;
    std::optional<Status> sent, received;  // how they have ended
  };
  struct Kind {
    const char* name;
    MemoryType from = MemoryType::kHost, to = MemoryType::kHost;
    bool headers_apart = false;
    bool spare_copies = false;
  };
  Pair connect(const Kind& kind) {
    Wire wire(kChunkBytes);
    wire.ours.headers_apart = wire.theirs.headers_apart = kind.headers_apart;
    wire.ours.spare_copies = kind.spare_copies;
    const auto allocate = [this](MemoryType type) {
      return *(type == MemoryType::kCuda ? memory_.allocate_device(0, kMessageBytes) : memory_.allocate_mapped(0, kMessageBytes));
    };
    Pair pair;
    pair.receiver = must(SoftRecvComm::create(memory_, 0, io_, pool_, std::move(wire.theirs)));
    pair.sender = must(SoftSendComm::create(memory_, 0, io_, staging_, std::move(wire.ours)));
    pair.source = allocate(kind.from);
    pair.target = allocate(kind.to);
    for (size_t i = 0; i < kMessageBytes; ++i) memory_.open(pair.source.device())[i] = static_cast<std::byte>(i * 7 + i / 251);
    pair.from = must(pair.sender->register_region(pair.source.device(), kMessageBytes, kind.from));
    pair.to = must(pair.receiver->register_region(pair.target.device(), kMessageBytes, kind.to));
    return pair;
  }
  static void post(Pair& pair) {
    pair.sent = pair.received = std::nullopt;
    pair.receive = must(pair.receiver->irecv(pair.target.device(), kMessageBytes, 0, pair.to));
    pair.send = must(pair.sender->isend(pair.source.device(), kMessageBytes, 0, pair.from));
  }
  /// The end of a request, whose failed comm is closed.
  template <class Comm>
  static bool ends(std::unique_ptr<Comm>& comm, const abi::TcpxRequest* request, std::optional<Status>& end) {
    if (end) return true;
    const auto answer = comm->test(request);
    if (answer.is_ok() && !answer->done) return false;
    end = answer.status();
    if (!end->is_ok()) comm.reset();
    return true;
  }
  static bool both_end(Pair& pair) {
    const bool sent = ends(pair.sender, pair.send, pair.sent);
    return ends(pair.receiver, pair.receive, pair.received) && sent;
  }
  static void expect_ordinary(const Status& end) {
    EXPECT_TRUE(end.is_ok() || end.code() == Code::kSystem || end.code() == Code::kPeerGone) << end.to_string();
  }
  void expect_same(Pair& pair) {
    const std::byte* const source = memory_.open(pair.source.device());
    if (pair.receive->mem_type == static_cast<int32_t>(MemoryType::kHost)) {
      EXPECT_EQ(std::memcmp(source, pair.target.host(), kMessageBytes), 0);
    } else {
      size_t bytes = 0;
      for (const Fragment& one :
           std::span(static_cast<const Fragment*>(pair.receive->unpack_slot.mem), *pair.receive->unpack_slot.cnt)) {
        EXPECT_EQ(std::memcmp(source + one.dst_off, pool_->host_base() + one.src_off, one.len), 0);
        bytes += one.len;
      }
      EXPECT_EQ(bytes, kMessageBytes);
    }
    EXPECT_OK(pair.receiver->consumed(pair.receive));
  }
  /// @return both ended well
  bool expect_ends(Pair& pair) {
    EXPECT_TRUE(run_until([&] { return both_end(pair); })) << "a hang";
    if (!pair.sent || !pair.received) return false;
    expect_ordinary(*pair.sent);
    expect_ordinary(*pair.received);
    if (pair.received->is_ok()) expect_same(pair);
    return pair.sent->is_ok() && pair.received->is_ok();
  }
  void expect_moves(Pair& pair) {
    std::memset(memory_.open(pair.target.device()), 0, kMessageBytes);
    post(pair);
    EXPECT_TRUE(expect_ends(pair)) << "the other connection";
  }
  /// `round` is told how many allocations are granted, until none is refused. @return refusals
  void at_every_allocation(const std::function<bool(uint64_t)>& round) {
    uint64_t left = 0;
    for (; !HasFailure() && round(left); ++left) ASSERT_LT(left, 300u);
    std::printf("%d places\n", static_cast<int>(left));
    EXPECT_GT(left, 0u) << "nothing was tried";
  }

  HiddenMemoryOps memory_;
  const std::shared_ptr<IoPool> io_ = *IoPool::create(1);
  const std::shared_ptr<PagePool> pool_ = *PagePool::create(memory_, 0, 1 << 20);
  const std::shared_ptr<StagingPool> staging_ = std::make_shared<StagingPool>(memory_, 0);
  std::unique_ptr<IoLoop> loop_;
  std::optional<Thief> thief_;
};
INSTANTIATE_TEST_SUITE_P(, SoftMemory, ::testing::Values(Loop::kOwn, Loop::kLent),
                         [](const auto& loop) { return loop.param == Loop::kOwn ? "own" : "lent"; });

TEST_P(SoftMemory, AMessageArrivesOrItsConnectionEnds) {
  constexpr MemoryType kHost = MemoryType::kHost, kCuda = MemoryType::kCuda;
  for (const Kind& kind : {Kind{"host"}, Kind{"staged", kCuda}, Kind{"paged", kHost, kCuda}, Kind{"apart", kHost, kHost, true},
                           Kind{"without a copy", kCuda, kHost, false, true}}) {
    SCOPED_TRACE(kind.name);
    Pair other = connect(kind);
    at_every_allocation([&](uint64_t left) {
      Pair pair = connect(kind);
      turn();
      const bool refused = run_short_of_memory(
          left, [&] { post(pair); }, [&] { return both_end(pair); });
      const bool well = expect_ends(pair);
      EXPECT_TRUE(refused || well);
      expect_moves(other);
      return refused;
    });
  }
}

TEST_P(SoftMemory, TheEndOfAPeerIsSeen) {
  Pair other = connect({""});
  for (const bool sends : {false, true}) {
    SCOPED_TRACE(sends ? "at the sender" : "at the receiver");
    at_every_allocation([&](uint64_t left) {
      Pair pair = connect({""});
      turn();
      if (!sends) pair.receive = must(pair.receiver->irecv(pair.target.device(), kMessageBytes, 0, pair.to));
      const auto end_peer = [&] {
        if (sends) pair.receiver.reset();
        if (!sends) pair.sender.reset();
      };
      const auto is_seen = [&] {
        if (!sends) return ends(pair.receiver, pair.receive, pair.received);
        if (pair.sent && !pair.sent->is_ok()) return true;
        if (pair.send == nullptr) {
          const auto posted = pair.sender->isend(pair.source.device(), 1, 0, pair.from);
          if (!posted.is_ok()) return (pair.sent = posted.status()), true;
          pair.send = *posted;
        }
        pair.sent.reset();
        if (ends(pair.sender, pair.send, pair.sent)) pair.send = nullptr;
        return pair.sent && !pair.sent->is_ok();
      };
      const bool refused = run_short_of_memory(left, end_peer, is_seen);
      EXPECT_TRUE(run_until(is_seen)) << "a hang";
      expect_ordinary(*(sends ? pair.sent : pair.received));
      expect_moves(other);
      return refused;
    });
  }
}

TEST_P(SoftMemory, AHandshakeIsDoneOrDropped) {
  const auto listener = listen_softly(io_, kChunkBytes);
  at_every_allocation([&](uint64_t left) {
    bool refused = false;
    for (const bool is_short : {true, false}) {
      std::unique_ptr<Connector> connector;
      const auto begin = [&] {
        connector = must(Connector::start(must(decode_handle(listener->handle())), {SocketAddress::loopback(0)}, soon()));
      };
      std::optional<ConnectedSockets> accepted, connected;
      Status failed;
      const auto is_over = [&] {
        if (!accepted) accepted = listener->try_accept();
        if (connected || !failed.is_ok()) return !failed.is_ok() || accepted.has_value();
        auto answer = connector->advance(Duration::zero());
        if (!answer.is_ok()) failed = answer.status();
        if (answer.is_ok()) connected = *std::move(answer);
        return false;
      };
      if (is_short) {
        refused = run_short_of_memory(left, begin, is_over);
        EXPECT_TRUE(refused || run_until(is_over)) << "a hang";
      } else {
        begin();
        EXPECT_TRUE(run_until(is_over)) << "a hang";
      }
      EXPECT_TRUE((is_short && refused) || (connected && accepted)) << failed.to_string();
    }
    return refused;
  });
}

}  // namespace
}  // namespace tcpx::testing
