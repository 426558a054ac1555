// Leads the flows of our connections to bound receive queues, and other packets away from them.
//
// Programs whose packets come by a bound queue cannot read them (EFAULT), so a queue is taken out of the RSS table before it is
// bound, and put back after that. What an administrator has prepared is used and left alone. What we change is undone on
// destruction; what a dead process has left is undone by the next one that steers the same interface
// (net/devmem/steering_record.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/socket_address.h"
#include "net/devmem/flow_table.h"
#include "net/devmem/steering_record.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

/// A change of a NIC's steering, which destruction undoes; not in a forked child. Uses its EthtoolCalls until then. One thread at
/// a time.
class SteeringChange {
 public:
  /// False: it was as wanted already, and is not ours to undo.
  bool is_ours() const { return held_ != nullptr; }

 private:
  friend class Steering;
  struct Held {
    ~Held();

    FlowTable table;
    SteeringRecords records;
    SteeringRecordFile file;
    pid_t process;
  };
  SteeringChange() = default;
  explicit SteeringChange(std::unique_ptr<Held> held) : held_(std::move(held)) {}

  std::unique_ptr<Held> held_;
};

/// Steers one interface. Changing it takes CAP_NET_ADMIN over the network namespace. One thread at a time.
class Steering {
 public:
  /// Undoes what dead processes have left. A change that cannot be undone stays, with a warning.
  /// @param directory of the records; processes that steer an interface use the same one
  /// @return kNotFound: no such interface; kSystem: no records can be kept there; kTimeout: another process is at it for 5 s; and the
  /// errors of SteeringRecords::read
  static Result<Steering> open(EthtoolCalls& calls, const std::string& interface,
                               const std::string& directory = SteeringRecords::default_directory());

  /// Undoes all that dead processes have left, rules with a listener, too: it may be of a process that still lives, and gets its
  /// packets in host memory then.
  Status undo_all_left();

  /// Leads TCP packets for a local address and port to a receive queue, in all connections that are accepted there. Call before
  /// the peer sends, best before listening.
  /// @param local may be a wildcard, whose rule is by port alone; that of IPv6 leads no IPv4
  /// @return kMismatch: a rule that is not ours leads these packets to another queue; and the errors of FlowTable and `open`
  Result<SteeringChange> lead(const SocketAddress& local, uint32_t queue);

  /// Takes a queue out of the RSS table, so that only rules lead there. Contexts that an administrator has made are left alone.
  /// @return kUnsupported: the NIC has no such table, or none but this queue in it
  Result<SteeringChange> take_out_of_rss(uint32_t queue);

 private:
  Steering(FlowTable table, SteeringRecords records) : table_(std::move(table)), records_(std::move(records)) {}

  /// @param goes whether a left rule goes even if its port is in use
  template <class Goes>
  Status undo_left(const Goes& goes);
  /// Records a change and makes it. @param change gets the record's file
  template <class Change>
  Result<SteeringChange> make(SteeringRecord record, const Change& change);

  FlowTable table_;
  SteeringRecords records_;
};

}  // namespace tcpx::devmem
