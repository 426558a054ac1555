// ChannelSet: the channels of one pipeline, the amounts they have carried, and the memory registered with all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transfer/channel.h"
#include "transfer/registrations.h"
#include "transfer/transfer_ring.h"

namespace tcpx {

/// The parts from which a pipeline makes one channel.
struct ChannelParts {
  /// An accepted comm needs it as long as it lives; may be null.
  std::unique_ptr<DeviceHandleStorage> device_handle = {};
  Comm comm;
  ReceiveParts receive;  ///< ignored for sends
  /// Network interface, for error messages, counters and `PipelineMeans::link_is_down`; may be empty.
  std::string nic = {};
};

/// The amounts that one channel has carried so far.
struct ChannelCounters {
  std::string nic;
  uint64_t bytes = 0;   ///< of chunks sent or received successfully
  uint64_t chunks = 0;  ///< sent or received successfully
  bool open = true;     ///< false: failed or closed
};

/// One thread at a time.
class ChannelSet {
 public:
  /// @param parts 1 ... kMaxChannels, all of one direction
  ChannelSet(std::vector<ChannelParts> parts, const Clock& clock, const ChannelLimits& limits);

  size_t size() const { return members_.size(); }
  Direction direction() const { return members_.front()->channel.direction(); }
  Channel& operator[](size_t index) { return members_[index]->channel; }
  const Channel& operator[](size_t index) const { return members_[index]->channel; }
  const std::string& nic(size_t index) const { return members_[index]->nic; }
  Registrations& memory() { return memory_; }
  bool takes_lists() const { return members_.front()->channel.comm().plugin().takes_lists(); }

  /// Posts a chunk of `transfer` and counts it as outstanding. @return false: not now (Channel::try_post)
  bool try_post(size_t index, Transfer& transfer, uint64_t chunk);
  /// Calls Channel::progress and adds the finished chunks to the counters.
  Channel::Progress progress(size_t index);

  /// Bit i: channel i has room.
  uint32_t room() const;
  /// Number of channels that have not failed.
  size_t open() const;
  uint64_t in_flight() const;
  void tell_changes(const std::function<void()>& told);
  /// True when Channel::is_told holds for every channel.
  bool is_told() const;
  /// True when Channel::is_behind holds for every channel.
  bool is_behind() const;
  bool all_closed() const;
  bool any_abandoned() const;
  void fail(const Status& reason);
  /// Closes the channels that have not failed; they must have nothing in flight. @return the first error
  Status close();

  std::vector<ChannelCounters> counters() const;
  /// "channel 2 (eth1)"
  std::string label(size_t index) const;
  /// `reason` with the channel's name added; `reason` unchanged for a pipeline of one channel without a NIC name.
  Status labelled(size_t index, const Status& reason) const;

 private:
  struct NamedChannel {
    NamedChannel(ChannelParts parts, const Clock& clock, const ChannelLimits& limits);
    std::string nic;
    std::unique_ptr<DeviceHandleStorage> device_handle;  // outlives the channel's comm
    Channel channel;
    uint64_t bytes = 0, chunks = 0;  // sent or received successfully
  };
  using Members = std::vector<std::unique_ptr<NamedChannel>>;
  static Members make_members(std::vector<ChannelParts> parts, const Clock& clock, const ChannelLimits& limits);
  std::vector<Channel*> channels() const;

  const Members members_;
  Registrations memory_;
};

}  // namespace tcpx
