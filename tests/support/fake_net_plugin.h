// FakeNetPlugin: a scripted network inside one process, with the habits of GPUDirect-TCPX at their strictest.
//
// A listener, a connect and an accept make a wire; both of its ends live in the same object. Habits (numbers are those of the
// traps): connect and accept may answer "not yet" and leave scratch data in the handle (1, 2); one accept per listener (3);
// `test` is the only engine, for sends too (8); testing any but the oldest transmitting request is refused (9) and a completion
// is reported once (10); 16 requests, receives hold theirs until consumed (11); the end of the stream shows up as "peer gone"
// with the last message (12) and hides finished messages if one receive too many is posted (13); sizes are not reported (15) nor
// compared (16); tags mean nothing (17); pages come from a small pool (18); consuming out of order or twice is refused (19),
// and pages are overwritten as soon as they are consumed, so that consuming early corrupts (20). Device memory must be whole
// pages of 4096 (24, 25).
//
// Answers are those of the vendor's plugin. Mistakes of a caller are also recorded in `misuse()`.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "net/net_plugin.h"
#include "transfer/chunk_state.h"

namespace tcpx::testing {

enum class Call {
  kListen,
  kConnect,
  kAccept,
  kRegister,
  kDeregister,
  kSend,
  kRecv,
  kTestSend,
  kTestRecv,
  kReceived,
  kConsumed,
  kBouncePool,
  kClose,
};
inline constexpr size_t kCallCount = 13;

Status plugin_refused(const char* operation, const char* why);
Status plugin_peer_gone(const char* operation);

class FakeNetPlugin : public NetPlugin {
 public:
  struct Options {
    uint32_t page_bytes = kPageBytes;  ///< longest fragment
    uint32_t page_count = 64;
    bool shuffle_fragments = false;  ///< list them in random order
    bool ragged_fragments = false;   ///< short fragments at odd offsets in their pages
    uint32_t max_delay_tests = 0;    ///< a message or completion is held back for 0 ... n tests
    uint64_t seed = 1;
    std::optional<MessageCut> cut = {};  ///< its answer to message_cut
    bool steers = false;                 ///< its answer to steers_flows
    uint32_t queue_depth = kQueueDepth;  ///< its answer to queue_depth
    bool tells = false;                  ///< its answer to tell_changes, though it never does
    bool lists = false;                  ///< its answer to takes_lists
    int devices = 1;                     ///< "fake0", "fake1", ...
  };
  FakeNetPlugin() : FakeNetPlugin(Options{}) {}
  explicit FakeNetPlugin(const Options& options);
  FakeNetPlugin(const FakeNetPlugin&) = delete;
  FakeNetPlugin& operator=(const FakeNetPlugin&) = delete;

  // The script.
  /// The next `times` calls answer "not yet" (connect, accept, send, recv).
  void answer_not_yet(Call call, uint32_t times) { script(call).not_yet = times; }
  /// `times` calls fail, starting with the n-th from now; by default every later one.
  void fail_call(Call call, uint64_t n, Status status, uint64_t times = ~uint64_t{0});
  /// The next `times` tests of a receive answer "peer gone" and do nothing else.
  void say_peer_gone(uint32_t times) { false_peer_gone_ = times; }
  /// Whether a connect from a device reaches a listener at another: an error is its answer, and to false it is "not yet" for ever.
  std::function<Result<bool>(int from, int to)> way;
  /// Changes the answer of `received` for message number `message` (0, 1, ... per plugin).
  std::function<void(uint64_t message, ReceivedMessage& received, std::vector<Fragment>& list)> rewrite;
  /// Closes the other end of `comm`, as the death of its process would.
  void kill_peer_of(SendComm comm);
  void kill_peer_of(RecvComm comm);

  // The record.
  const std::vector<std::string>& misuse() const { return misuse_; }
  uint64_t calls(Call call) const { return scripts_[static_cast<size_t>(call)].calls; }
  size_t open_comms() const;
  size_t free_pages() const { return free_pages_.size(); }
  size_t registrations() const { return registrations_.size(); }
  const std::vector<int>& tags() const { return tags_; }
  uint64_t lists() const { return lists_; }  ///< ever registered

  /// Listens, connects and accepts until both ends exist.
  std::pair<SendComm, RecvComm> make_wire();
  BouncePool pool() const { return {pool_.data(), pool_.size()}; }

  const std::string& name() const override { return name_; }
  int abi_version() const override { return 7; }
  std::optional<MessageCut> message_cut() const override { return options_.cut; }
  bool steers_flows() const override { return options_.steers; }
  uint32_t queue_depth() const override { return options_.queue_depth; }
  bool tell_changes(SendComm, std::function<void()>) override { return options_.tells; }
  bool tell_changes(RecvComm, std::function<void()>) override { return options_.tells; }
  bool takes_lists() const override { return options_.lists; }
  Result<MemoryHandle> register_list(SendComm comm, std::shared_ptr<const RangeList> list) override;
  Result<MemoryHandle> register_list(RecvComm comm, std::shared_ptr<const RangeList> list) override;
  Result<int> device_count() override { return options_.devices; }
  Result<DeviceProperties> properties(int dev) override;
  Result<ListenComm> listen(int dev, Handle& handle) override;
  Result<std::optional<SendComm>> try_connect(int dev, Handle& handle) override;
  Result<std::optional<RecvComm>> try_accept(ListenComm comm, DeviceHandleStorage& device_handle) override;
  Result<MemoryHandle> register_memory(SendComm comm, void* data, size_t bytes, MemoryType type) override;
  Result<MemoryHandle> register_memory(RecvComm comm, void* data, size_t bytes, MemoryType type) override;
  Status deregister_memory(SendComm comm, MemoryHandle handle) override;
  Status deregister_memory(RecvComm comm, MemoryHandle handle) override;
  Result<std::optional<Request>> try_send(SendComm comm, const void* data, size_t bytes, int tag, MemoryHandle handle) override;
  Result<std::optional<Request>> try_recv(RecvComm comm, void* data, size_t bytes, int tag, MemoryHandle handle) override;
  Result<Completion> test(Request request) override;
  Result<ReceivedMessage> received(Request request) override;
  Status consumed(RecvComm comm, Request request) override;
  Result<BouncePool> bounce_pool(const DeviceHandleStorage& device_handle, const MemoryOps& memory, CopyLane& lane) override;
  Status close(SendComm comm) override;
  Status close(RecvComm comm) override;
  Status close(ListenComm comm) override;

 private:
  struct CallScript {
    uint32_t not_yet = 0;
    uint64_t calls = 0;
    uint64_t fail_at = 0, fail_times = 0;
    Status failure;
  };
  enum class RequestState { kFree, kPosted, kActive, kTransmitting, kDone };
  struct FakeRequest {
    RequestState state = RequestState::kFree;
    std::byte* data = nullptr;
    size_t bytes = 0;
    MemoryType type = MemoryType::kHost;
    std::shared_ptr<const RangeList> memory_list = nullptr;  // `data` counts from its begin
    uint32_t delay = 0;
    uint64_t posts_when_done = 0;  // of its comm; `received` is answered until the next one
    ReceivedMessage received;
    std::vector<Fragment> list;
    std::vector<uint32_t> pages;
  };
  struct Wire {
    std::deque<std::vector<std::byte>> messages;
    bool sender_closed = false;
    bool receiver_closed = false;
    bool end_seen = false;  // the receiver has read the end of the stream
  };
  struct End {
    Direction direction{};
    size_t index = 0;  // in ends_
    size_t wire = 0;
    bool open = true;
    uint64_t begin = 0, end = 0;  // numbers of the requests alive
    std::vector<FakeRequest> requests;
    FakeRequest& at(uint64_t number) { return requests[number % requests.size()]; }
  };
  struct Listener {
    std::deque<size_t> wires;
    int dev = 0;
    bool open = true;
    bool accepted = false;
  };
  struct Registration {
    uintptr_t id;
    size_t end;
    std::byte* data;
    size_t bytes;
    MemoryType type;
    std::shared_ptr<const RangeList> list = nullptr;
  };

  CallScript& script(Call call) { return scripts_[static_cast<size_t>(call)]; }
  Status enter(Call call);
  bool not_yet(Call call);
  Status refuse(const char* operation, const char* why);
  End* end_of(uintptr_t comm, Direction direction);
  Result<MemoryHandle> add_registration(End* end, void* data, size_t bytes, MemoryType type,
                                        std::shared_ptr<const RangeList> list = nullptr);
  static std::vector<iovec> parts_of(const FakeRequest& request);
  Status drop_registration(End* end, MemoryHandle handle);
  Result<std::optional<Request>> post(Call call, End* end, std::byte* data, size_t bytes, int tag, MemoryHandle handle);
  uintptr_t add_end(Direction direction, size_t wire);
  Status run_engine(End& end);
  bool attach_message(End& end, FakeRequest& request);
  Status close_end(End* end);
  uint32_t random(uint32_t limit) { return limit == 0 ? 0 : static_cast<uint32_t>(rng_() % (uint64_t{limit} + 1)); }

  std::string name_ = "fake";
  Options options_;
  std::minstd_rand rng_;
  std::array<CallScript, kCallCount> scripts_;
  uint32_t false_peer_gone_ = 0;
  std::vector<std::string> misuse_;
  std::vector<int> tags_;
  std::vector<std::byte> pool_;
  std::vector<uint32_t> free_pages_;
  std::deque<Wire> wires_;
  std::deque<End> ends_;
  std::deque<Listener> listeners_;
  std::vector<uint64_t> connecting_;  // scratch values of connects in progress
  uint64_t next_scratch_ = 1;
  std::vector<Registration> registrations_;
  uint64_t lists_ = 0;
  uintptr_t next_registration_ = 1;
  uint64_t messages_ = 0;
};

}  // namespace tcpx::testing
