// NetPlugin: our one interface to "a network". One adapter per ABI version (plugin_adapters.h) implements it over a foreign
// function table; no code above it sees a table, a foreign struct or a foreign result code.
//
// Model of a network. `listen` makes a handle, which travels out of band. `try_connect` with that handle makes a comm that
// only sends; `try_accept` makes the comm at the other end, which only receives. Memory is registered with the comm that uses it.
// `try_send` and `try_recv` post requests, paired in post order: the n-th send meets the n-th receive, tags are not matched.
// `test` drives the comm and tells when a request is done. A receive of CUDA memory has not touched its buffer when it is done:
// the bytes lie in the bounce pool, `received` lists the fragments, the caller gathers them and calls `consumed` only when that
// has finished, which returns the pages.
//
// Rules for callers, which every known plugin needs (the numbers are those of the traps in the tests):
//  - set the device's GPU current before listen, try_connect, try_accept and register_memory (27);
//  - test only the oldest request of a comm that is not done, and each one only until it is done (9, 10);
//  - at most queue_depth() requests per comm, a receive holds its place until consumed, and no more than kQueueDepth while one of
//    them is a receive of CUDA memory (11);
//  - test sends too: with some plugins nothing moves otherwise (8);
//  - consume every receive exactly once, in order, including zero-size ones (18, 19, 20);
//  - close only after the peer has acknowledged out of band, and with no request outstanding (13, 36).
// One thread at a time per comm; different threads may use different comms concurrently.
//
// Errors. kPeerGone: the plugin's "system error", that is a closed or dead peer or a failed socket; from `test` of a vendor
// plugin it can be transient (12). kExhausted: the same where its words tell that this process or machine is out of something.
// kPlugin: anything else it refused, see the native code. kCuda, kInvalidArgument as named. All are logged here, but those of
// try_send, try_recv and test at debug level only: callers may ask again, and a caller that gives up warns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/memory_ops.h"
#include "base/range_list.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx {

/// Opaque to us, distinct types so that they cannot be mixed up. Never dereferenced outside the adapter.
enum class ListenComm : uintptr_t {};
enum class SendComm : uintptr_t {};
enum class RecvComm : uintptr_t {};
enum class MemoryHandle : uintptr_t {};
enum class Request : uintptr_t {};

/// Way in which received bytes reach the destination.
enum class NetDeviceType { kHost, kUnpack, kUnknown };

struct DeviceProperties {
  std::string name;                     ///< interface name
  std::optional<std::string> pci_path;  ///< nullopt when the plugin knows none
  uint64_t guid = 0;
  bool host_memory = false;
  bool cuda_memory = false;
  bool dma_buf = false;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int max_comms = 0;
  int max_recvs = 0;
  NetDeviceType net_device_type = NetDeviceType::kUnknown;
  int net_device_version = 0;
};

/// Answer of `test`.
struct Completion {
  bool done = false;
  int32_t reported_bytes = -1;  ///< written by the plugin into `sizes`; -1 when it wrote nothing, as GPUDirect-TCPX does (15)
};

/// Room for the device handle that accept fills; larger than any known one because plugins write without a check (4, 5).
struct alignas(16) DeviceHandleStorage {
  std::byte bytes[512] = {};
};

/// The scatter list of a finished receive.
struct ReceivedMessage {
  uint64_t bytes = 0;                   ///< as many as the sender sent
  const Fragment* fragments = nullptr;  ///< host memory of the plugin, valid until consumed
  uint64_t fragment_count = 0;          ///< as reported by the plugin, unchecked
  bool in_place = false;                ///< host memory, or a plugin of type HOST: the bytes are in the buffer, the list is empty
  uint32_t queue_index = 0;
};

/// The memory that `src_off` counts from.
struct BouncePool {
  const std::byte* base = nullptr;  ///< device address
  uint64_t bytes = 0;               ///< never more than kMaxPoolBytes
};

/// A plugin's distribution of a message over the data sockets of a comm.
struct MessageCut {
  uint32_t piece_bytes = 0;  ///< largest piece on one socket; the sender's, must be the same at both ends
  uint32_t sockets = 0;      ///< chosen by the accepting end
};

/// Work that a plugin has not ended although it was abandoned.
struct LeftBehind {
  size_t set_ups = 0;          ///< connects and accepts that were given up
  size_t closing_threads = 0;  ///< threads in a close that does not return
};

/// The sockets of a plugin that leaves them to those who make progress, instead of to threads of its own: they need not wake those then.
/// Any thread. Of several that have borrowed the same loop, the first watches it: if all did, each event would wake them all. When it gives
/// the loop back, a thread of the plugin watches it again. The others make turns, too.
class IoLoop {
 public:
  virtual ~IoLoop() = default;
  /// Readable when a turn would find something, unless somebody attends. It stays the loop's. -1: somebody else watches it.
  virtual int fd() const = 0;
  /// The caller will make turns, so requests need not make `fd` readable until it leaves.
  virtual void attend() = 0;
  /// Moves bytes of the sockets that are ready, some of each, and does not wait. Costs no system call when there is nothing to do.
  /// @param readable `fd` was, or may be @return true when it found something to do
  virtual bool turn(bool readable) = 0;
  virtual void leave() = 0;
};

class NetPlugin {
 public:
  virtual ~NetPlugin() = default;

  virtual const std::string& name() const = 0;
  /// 7 or 8.
  virtual int abi_version() const = 0;

  /// nullopt: no limit. Else no message may be longer than piece_bytes x sockets: of several pieces on one socket
  /// GPUDirect-TCPX returns only the pages of the last one, and the pool runs dry (18).
  virtual std::optional<MessageCut> message_cut() const { return std::nullopt; }

  /// True: data sent to a comm is steered into the pool of the GPU that was current when it was accepted, as RxDM does for
  /// GPUDirect-TCPX. It must then come over the NIC that RxDM has for that GPU, the nearest one, and nothing can be received
  /// into host memory.
  virtual bool steers_flows() const { return false; }

  /// True: what a comm sends can be read by its two ends alone, and not be changed unnoticed.
  virtual bool encrypts() const { return false; }

  /// Requests that a comm takes at once, at least kQueueDepth.
  virtual uint32_t queue_depth() const { return kQueueDepth; }

  virtual Result<int> device_count() = 0;
  virtual Result<DeviceProperties> properties(int dev) = 0;

  virtual Result<ListenComm> listen(int dev, Handle& handle) = 0;
  /// nullopt: not yet, call again with the same `handle`. The plugin may write into `handle` while connecting, and the handle
  /// must not be used for another connection afterwards: keep a pristine copy (1, 2).
  virtual Result<std::optional<SendComm>> try_connect(int dev, Handle& handle) = 0;
  /// nullopt: no peer yet. On success `device_handle` is filled; keep it until the comm is closed.
  virtual Result<std::optional<RecvComm>> try_accept(ListenComm comm, DeviceHandleStorage& device_handle) = 0;

  /// Abandons a connect that has answered "not yet": the plugin may still be working on it, with its state in `handle`. An
  /// accept is abandoned by closing its listener. @return why it has come to nothing so far; ok when nothing is known to be wrong
  virtual Status give_up_connect([[maybe_unused]] int dev, [[maybe_unused]] std::unique_ptr<Handle> handle) {
    return Status::ok();
  }

  /// The network interface that the bytes of a comm leave or come in by, which need not be that of its device; "" when the plugin
  /// does not tell.
  virtual std::string nic_of([[maybe_unused]] SendComm comm) { return {}; }
  virtual std::string nic_of([[maybe_unused]] RecvComm comm) { return {}; }

  /// CUDA memory must be whole pages of kPageBytes (24, 25; base/memory_ops.h: whole_pages). `bytes` is at most INT_MAX with
  /// version 7.
  virtual Result<MemoryHandle> register_memory(SendComm comm, void* data, size_t bytes, MemoryType type) = 0;
  virtual Result<MemoryHandle> register_memory(RecvComm comm, void* data, size_t bytes, MemoryType type) = 0;
  virtual Status deregister_memory(SendComm comm, MemoryHandle handle) = 0;
  virtual Status deregister_memory(RecvComm comm, MemoryHandle handle) = 0;

  /// True: `register_list` makes one registration of host memory in several places.
  virtual bool takes_lists() const { return false; }
  /// Call if `takes_lists`. Requests name addresses that count from RangeList::begin. Ends as any other registration.
  virtual Result<MemoryHandle> register_list(SendComm /*comm*/, std::shared_ptr<const RangeList> /*list*/) { return no_lists(); }
  virtual Result<MemoryHandle> register_list(RecvComm /*comm*/, std::shared_ptr<const RangeList> /*list*/) { return no_lists(); }

  /// nullopt: not now, try again. `data` must stay unchanged until the request is done.
  virtual Result<std::optional<Request>> try_send(SendComm comm, const void* data, size_t bytes, int tag,
                                                  MemoryHandle handle) = 0;
  /// nullopt: not now, try again. At most `bytes` bytes may arrive.
  virtual Result<std::optional<Request>> try_recv(RecvComm comm, void* data, size_t bytes, int tag, MemoryHandle handle) = 0;
  /// `done` is true once, when the request has just finished.
  virtual Result<Completion> test(Request request) = 0;

  /// Asks the plugin to call `told`, on a thread of its own, whenever the answer of `test` for the oldest request of a comm may have
  /// changed, failures included. `told` must not wait, and may be called until the comm is closed. Call once, before the first post.
  /// @return false: it does not tell, so ask `test` again and again
  virtual bool tell_changes([[maybe_unused]] SendComm comm, [[maybe_unused]] std::function<void()> told) { return false; }
  virtual bool tell_changes([[maybe_unused]] RecvComm comm, [[maybe_unused]] std::function<void()> told) { return false; }

  /// Takes over the plugin's sockets, for a caller that always attends when they are ready: its own comms' and those of others.
  /// @return null: threads of the plugin serve them, which is better where there are cores for several
  virtual std::unique_ptr<IoLoop> borrow_io() { return nullptr; }

  /// Only after `test` returned true for this receive, before `consumed` and before the comm's next post. kProtocol when the
  /// plugin's private request layout is not a known one, or when a plugin of type HOST reported no size.
  virtual Result<ReceivedMessage> received(Request request) = 0;
  virtual Status consumed(RecvComm comm, Request request) = 0;

  /// Reads the bounce pool's base out of the device handle. Once per connection; copies from device memory. A plugin of type HOST
  /// has no pool: base nullptr, 0 bytes.
  virtual Result<BouncePool> bounce_pool(const DeviceHandleStorage& device_handle, const MemoryOps& memory, CopyLane& lane) = 0;

  /// The comm is gone, whatever the answer. Deregister its memory before, unless requests are outstanding: a plugin may need the
  /// comm for that. With GPUDirect-TCPX what is left is deregistered here, as soon as the plugin has returned (39).
  /// kTimeout: it has not, and its call is left behind on a thread.
  virtual Status close(SendComm comm) = 0;
  virtual Status close(RecvComm comm) = 0;
  virtual Status close(ListenComm comm) = 0;
  virtual LeftBehind left_behind() const { return {}; }

 private:
  static Status no_lists() { return Status(Code::kUnsupported, "register list", "the plugin takes memory in one place only"); }
};

}  // namespace tcpx
