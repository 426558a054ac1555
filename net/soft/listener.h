// The accepting end before there is a comm: takes connections in the background, authenticates them, and keeps complete ones
// ready.
//
// All handshake work happens on an I/O thread, so a connector finishes without a call of accept here. A client that sends
// anything but a valid hello with this listener's cookie, or nothing for too long, is dropped and logged; others go on. With a secret the
// hello has a proof instead of the cookie, and one that comes again later is refused.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/crowd_log.h"
#include "net/soft/comm.h"
#include "net/soft/hello_proofs.h"
#include "net/soft/wire.h"

namespace tcpx::soft {

/// Limits on connections of which some sockets have sent a valid hello and others are missing.
struct ListenerLimits {
  Duration group_timeout = std::chrono::seconds(30);  ///< all sockets of a connection come from one connect call
  size_t groups = 1024;
  Duration shortage = std::chrono::seconds(1);  ///< shorter ones are nobody's business
  size_t remembered = 65536;                    ///< connections of a listener with a secret, from first to last
};

class SoftListener final : public Object, private IoHandler {
 public:
  /// Listens on a free port of each address of `info`; where none is free, it waits for `ListenerLimits::shortage`. One of two
  /// addresses may be gone. The handle holds the rest of `info`, completed with ports, cookie and whether there is a secret. Set `encrypts`
  /// only with one, and not with `headers_apart`.
  /// @param secret null: there is none; not needed later
  static Result<std::unique_ptr<SoftListener>> create(HandleInfo info, std::shared_ptr<IoPool> io,
                                                      const ListenerLimits& limits = {}, const Prover* secret = nullptr);
  ~SoftListener() override;

  Handle handle() const { return encode_handle(info_); }
  /// The sockets that listen for data sockets. They stay the listener's.
  std::vector<int> data_listeners() const;
  /// Device sockets of later connections receive into `pool`, where a NIC puts what comes to data_listeners(). Their hellos come there,
  /// too, and a page each, which shows that it works. Call before the handle is given away, and only with HandleInfo::host_addresses.
  void receive_into(std::shared_ptr<const DevicePool> pool) TCPX_EXCLUDES(mutex_);
  /// The pool of the connection that try_accept returns next. Null: there is no connection, or it receives into host memory.
  std::shared_ptr<const DevicePool> device_pool() TCPX_EXCLUDES(mutex_);
  const std::shared_ptr<IoPool>& io() const { return io_; }
  /// True when try_accept has a connection for its next caller.
  bool has_peer() TCPX_EXCLUDES(mutex_);
  /// Ok, or kExhausted: connections have waited for `ListenerLimits::shortage` because this process or machine is out of something
  /// that they need. They are taken as soon as there is some.
  Status shortage() TCPX_EXCLUDES(mutex_);
  /// A complete connection, oldest first; nullopt when there is none yet. Any number of peers, one after the other.
  std::optional<ConnectedSockets> try_accept() TCPX_EXCLUDES(mutex_);

 private:
  struct Port {
    UniqueFd fd;
    IoRegistration registration;
    bool is_led = false;  // what comes there lies in device memory, if there is a pool
  };
  struct Stranger {  // accepted, has not finished its hello
    UniqueFd fd;
    std::string peer;
    TimePoint give_up_at;
    const DevicePool* pool = nullptr;  // what it says comes there
    std::array<std::byte, kHelloBytes> hello;
    size_t read = 0;
    std::optional<Hello> said;
    std::vector<std::byte> page;  // the proof of a device socket
    size_t page_read = 0, page_in_pool = 0;
    IoRegistration registration;
  };
  struct Group {  // sockets of one connection, some still missing
    uint64_t connection = 0;
    TimePoint give_up_at;
    size_t present = 0;
    ConnectedSockets sockets;
  };

  SoftListener(const HandleInfo& info, HelloProofs proofs, std::shared_ptr<IoPool> io, const ListenerLimits& limits,
               UniqueFd timer);
  static Status listen_at(std::vector<SocketAddress>& addresses, std::list<Port>& ports, Duration patience);
  Next on_ready() override;
  void on_out_of_memory() noexcept override;
  enum class Backlog { kEmpty, kMore, kStuck };
  void log_dropped(const std::string& peer, const std::string& why) TCPX_REQUIRES(mutex_);
  /// Takes some of the connections pending at `fd`. kStuck: they cannot be taken now.
  Backlog take_strangers(const Port& port) TCPX_REQUIRES(mutex_);
  /// As recv(2) without waiting. @param in_pool grows by the bytes that came in the pool
  static ssize_t read(const Stranger& stranger, std::span<std::byte> into, size_t& in_pool);
  /// Reads until `into` is full. False: not yet; an error: nothing more comes.
  static Result<bool> fill(const Stranger& stranger, std::span<std::byte> into, size_t& read, size_t& in_pool);
  /// True when the stranger is finished: admitted or dropped.
  bool advance(Stranger& stranger) TCPX_REQUIRES(mutex_);
  Status admit(Stranger& stranger, const Hello& hello) TCPX_REQUIRES(mutex_);
  Status check_hello(const Stranger& stranger, const Hello& hello) const;
  Status answer(const Stranger& stranger, const HelloAnswer& answer, std::span<std::byte, kHelloAnswerBytes> record) const;
  Status remember(uint64_t connection) TCPX_REQUIRES(mutex_);
  void drop_overdue(TimePoint now) TCPX_REQUIRES(mutex_);
  void arm_timer(bool ticks) const noexcept;

  HandleInfo info_;
  const HelloProofs proofs_;
  const std::shared_ptr<IoPool> io_;  // shared: the last comm or listener ends the threads
  IoThread& thread_;
  const ListenerLimits limits_;
  std::list<Port> ports_;  // at least one; any socket of a connection may come to any
  UniqueFd timer_;
  Mutex mutex_;
  CrowdLog crowd_log_ TCPX_GUARDED_BY(mutex_);
  std::list<Stranger> strangers_ TCPX_GUARDED_BY(mutex_);
  std::list<Group> groups_ TCPX_GUARDED_BY(mutex_);
  std::unordered_set<uint64_t> remembered_ TCPX_GUARDED_BY(mutex_);  // connections, with a secret
  std::deque<uint64_t> unproven_ TCPX_GUARDED_BY(mutex_);  // connections whose proof failed: their other sockets are refused
  std::deque<ConnectedSockets> ready_ TCPX_GUARDED_BY(mutex_);
  std::shared_ptr<const DevicePool> device_pool_ TCPX_GUARDED_BY(mutex_);  // null: what comes lies in host memory
  bool closing_ TCPX_GUARDED_BY(mutex_) = false;  // no new strangers
  Status stuck_ TCPX_GUARDED_BY(mutex_);          // why the backlog has to wait; ok: it need not
  TimePoint stuck_since_ TCPX_GUARDED_BY(mutex_);
  IoRegistration ticking_;
};

}  // namespace tcpx::soft
