// The common part of both directions of a connection: identity behind the ABI's void*, registered regions, the request ring.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "net/abi/tcpx_request.h"
#include "net/devmem/sender.h"
#include "net/soft/device_pool.h"
#include "net/soft/device_sources.h"
#include "net/soft/socket_handler.h"
#include "net/soft/socket_placement.h"
#include "net/soft/soft_table.h"
#include "net/soft/wire.h"
#include "secure/record_cipher.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx::soft {

/// First word of every object handed out as void*, so that a pointer of the wrong kind is refused, and a closed one too until
/// its memory is reused.
enum class ObjectKind : uint64_t {
  kSendComm = 0x444e455358435054,
  kRecvComm = 0x5643455258435054,
  kListener = 0x4e53494c58435054,
  kDead = 0x4441454458435054,
};

struct Object {
  explicit Object(ObjectKind object_kind) : kind(object_kind) {}
  ~Object() { kind = ObjectKind::kDead; }
  volatile ObjectKind kind;  // volatile, so that the store of kDead before the memory is freed is not elided
};

/// A registered memory region. Every request is checked against its bounds.
struct SoftRegion {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  bool host_readable = true;                  ///< false: sends go through a staging buffer, or from `source`
  std::shared_ptr<const BoundSource> source;  ///< not null: the NIC sends from the memory itself
  std::shared_ptr<const RangeList> list;      ///< not null: in several places: the addresses of requests are the list's

  bool contains(const void* begin, uint64_t length) const {
    const auto address = reinterpret_cast<uintptr_t>(begin), base = reinterpret_cast<uintptr_t>(data);
    return address >= base && address - base <= bytes && length <= bytes - (address - base);
  }
};

/// Registrations that are not taken back yet, of all comms of this process. A comm that is closed with requests outstanding takes
/// them back by itself; those of any other one have been forgotten, and count for ever. For tests.
int64_t held_registrations();

/// Result of the caller's test.
struct TestAnswer {
  bool done = false;
  int32_t bytes = 0;
};

/// A connection's sockets after the handshake: data sockets 0 ... n-1, then the control socket.
struct ConnectedSockets {
  std::vector<UniqueFd> data;
  std::vector<std::unique_ptr<RecordCipher>> ciphers;  ///< of the data sockets; none: they are in clear
  UniqueFd control;
  uint32_t chunk_bytes = 0;
  bool headers_apart = false;  ///< HandleInfo::headers_apart
  // Only with headers apart. Null: the payload goes through host memory.
  size_t device_sockets = 0;                      ///< Hello::device_sockets
  std::shared_ptr<const DevicePool> device_pool;  ///< of a receiving end: its device sockets are led to the pool's queue
  std::shared_ptr<DeviceSources> device_sources;  ///< of a sending end: its device sockets send from them
  std::vector<std::optional<devmem::DevmemSender>> senders;  ///< that device sockets have used
  std::string peer;           ///< for messages
  std::string nic;            ///< the bytes' way out of this host, or into it; "" when the kernel does not tell
  bool spare_copies = false;  ///< sends leave the staging slots without a copy, and the receiver is woken for much at once
  SocketPlacement placement;  ///< of the elements of `data`
};

/// The cipher of data socket number `i`; null: it is in clear.
inline std::unique_ptr<RecordCipher> take_cipher(ConnectedSockets& sockets, size_t i) {
  return i < sockets.ciphers.size() ? std::move(sockets.ciphers[i]) : nullptr;
}

/// Lets the kernel end them when the peer's host, or the way to it, gives no answer for longer than `silence`.
Status watch_host(const ConnectedSockets& sockets, Duration silence);

/// Refusal by the plugin: result code 3.
inline Status refused(std::string operation, std::string detail) {
  return Status(Code::kInvalidArgument, std::move(operation), std::move(detail));
}

/// Watches a control socket, on which nothing comes in unless it brings headers (net/soft/header_socket.h) or the receiver's choices: its
/// end tells that the peer closed or died.
class ControlSocket : public SocketHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_control_closed(const Status& why) = 0;
    virtual void fail_without_memory() noexcept = 0;
    /// There may be room to send again.
    virtual void on_control_ready() {}
    /// An error ends the connection.
    virtual Status on_control_bytes(std::span<const std::byte> bytes);
  };
  ControlSocket(UniqueFd fd, Owner& owner) : SocketHandler(std::move(fd)), owner_(owner) {}
  ~ControlSocket() override { stop(); }
  Next on_ready() override;
  void on_out_of_memory() noexcept override;

  /// @return how many bytes the kernel took. 0: none for now. Any thread, one at a time.
  Result<size_t> try_send(std::span<const std::byte> bytes) const;

 protected:
  /// @return bytes read. 0: there are none for now, or no more: see is_closed.
  size_t read(std::span<std::byte> into);
  bool is_closed() const { return closed_; }

 private:
  Owner& owner_;
  bool closed_ = false;
};

/// One direction of one connection. The caller's thread and the I/O threads meet under `mutex_`.
class SoftComm : public Object, public ControlSocket::Owner {
 public:
  /// @return the region as mhandle, owned by the comm. CUDA memory must begin at a multiple of 4096.
  Result<SoftRegion*> register_region(void* data, uint64_t bytes, MemoryType type) TCPX_EXCLUDES(mutex_);
  SoftRegion* register_list(std::shared_ptr<const RangeList> list) TCPX_EXCLUDES(mutex_);
  /// After it returns nothing touches the memory. A comm with an unfinished request on it fails with kSystem.
  Status deregister_region(SoftRegion* region) TCPX_EXCLUDES(mutex_);

  /// NetPlugin::tell_changes
  void tell_changes(std::function<void()> told) {
    kept_told_ = std::make_unique<const std::function<void()>>(std::move(told));
    told_.store(kept_told_.get(), std::memory_order_release);
  }

  /// ConnectedSockets::nic
  const std::string& nic() const { return nic_; }
  const std::string& peer() const { return peer_; }

  virtual Result<TestAnswer> test(const abi::TcpxRequest* request) = 0;

  /// A socket's handler had no memory and does no more. Needs none.
  void fail_without_memory() noexcept override TCPX_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    set_failure(no_memory_);
  }

  /// True when `request` points at a slot of this comm's ring.
  bool owns(const abi::TcpxRequest* request) const {
    return request >= requests_.data() && request < requests_.data() + requests_.size();
  }

 protected:
  SoftComm(ObjectKind object_kind, MemoryOps& memory, int device, std::shared_ptr<IoPool> io, ConnectedSockets& sockets);

  /// Finds a live region that covers the memory of a request.
  Result<const SoftRegion*> check_region(const SoftRegion* handle, const void* data, uint64_t bytes, const char* operation) const
      TCPX_REQUIRES(mutex_);
  virtual bool region_in_use(const SoftRegion* region) const TCPX_REQUIRES(mutex_) = 0;
  /// A request was posted that its user has not seen the end of.
  virtual bool has_requests() const TCPX_REQUIRES(mutex_) = 0;
  /// First check of test: only the oldest outstanding request can be tested.
  Status check_oldest(const abi::TcpxRequest* request) const TCPX_REQUIRES(mutex_);
  /// Allocates what a region of GPU memory needs before its first use, outside the data path.
  virtual Status prepare_region(SoftRegion&) { return Status::ok(); }

  /// Call when `test` may answer otherwise than before.
  void tell() const {
    if (const auto* const told = told_.load(std::memory_order_acquire); told != nullptr) (*told)();
  }
  bool failed() const TCPX_REQUIRES(mutex_) { return !failure_.is_ok(); }
  /// The same without the lock, possibly slightly stale.
  bool has_failed() const { return has_failed_.load(); }
  /// The first failure sticks; later ones are only consequences. A broken protocol becomes kPeerGone.
  void set_failure(const Status& why) noexcept TCPX_REQUIRES(mutex_);
  /// Result of a call on a failed comm. Logs it the first time. After this no I/O thread touches the caller's memory.
  Status report_failure() TCPX_EXCLUDES(mutex_);
  virtual void stop_data_sockets() = 0;
  void stop_sockets();
  /// Derived destructors must call this first.
  void end() TCPX_EXCLUDES(mutex_);

  size_t slot_of(const abi::TcpxRequest* request) const { return static_cast<size_t>(request - requests_.data()); }

  MemoryOps& memory_;
  const int device_;
  const std::shared_ptr<IoPool> io_;  // shared: the last comm or listener ends the threads
  const std::string peer_, nic_;
  mutable Mutex mutex_;
  /// Contiguous, as in GPUDirect-TCPX, which has 16: request k and k+128 share an address.
  std::array<abi::TcpxRequest, kRequests> requests_{};
  // Requests by number; one lies in slot number % kRequests.
  uint64_t posted_ TCPX_GUARDED_BY(mutex_) = 0;
  uint64_t reported_ TCPX_GUARDED_BY(mutex_) = 0;  // the oldest whose end test has not reported
  std::list<SoftRegion> regions_ TCPX_GUARDED_BY(mutex_);
  std::unique_ptr<ControlSocket> control_;  // made by the derived class

 private:
  SoftRegion* add_region(const SoftRegion& region) TCPX_EXCLUDES(mutex_);

  std::unique_ptr<const std::function<void()>> kept_told_;
  std::atomic<const std::function<void()>*> told_{nullptr};  // for the I/O threads
  const Status no_memory_;                                   // a failure that is there when nothing can be allocated
  Status failure_ TCPX_GUARDED_BY(mutex_);
  std::atomic<bool> has_failed_{false};
  bool failure_logged_ TCPX_GUARDED_BY(mutex_) = false;
};

}  // namespace tcpx::soft
