// ChannelSet: the channels of one pipeline, the amounts they have carried, and the memory registered with all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transfer/channel.h"
#include "transfer/registrations.h"
#include "transfer/transfer_ring.h"

namespace tcpx {

/// One channel of a pipeline to be.
struct ChannelParts {
  /// Of an accepted comm, which needs it as long as it lives; may be null.
  std::unique_ptr<DeviceHandleStorage> device_handle = {};
  Comm comm;
  ReceiveParts receive;  ///< ignored for sends
  /// Network interface, for error messages, counters and `PipelineLinks::link_is_down`; may be empty.
  std::string nic = {};
};

/// The work of one channel so far.
struct ChannelCounters {
  std::string nic;
  uint64_t bytes = 0;   ///< of chunks that reached their good end
  uint64_t chunks = 0;  ///< that reached their good end
  bool open = true;     ///< false: failed, or closed
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

  /// Posts a chunk of `transfer` and counts it as outstanding. @return false: not now (Channel::try_post)
  bool try_post(size_t index, Transfer& transfer, uint64_t chunk);
  /// Channel::progress, counted.
  Channel::Progress progress(size_t index);

  /// Bit i: channel i has room.
  uint32_t room() const;
  /// Channels that have not failed.
  size_t open() const;
  uint64_t in_flight() const;
  /// Channel::is_behind of all of them.
  bool is_behind() const;
  bool all_closed() const;
  bool any_abandoned() const;
  void fail(const Status& reason);
  /// Closes those that have not failed, with nothing in flight. @return the first error
  Status close();

  std::vector<ChannelCounters> counters() const;
  /// "channel 2 (eth1)"
  std::string label(size_t index) const;
  /// `reason` with the channel named; as it is where one channel without a name is the pipeline itself.
  Status labelled(size_t index, const Status& reason) const;

 private:
  struct NamedChannel {
    NamedChannel(ChannelParts parts, const Clock& clock, const ChannelLimits& limits);
    std::string nic;
    std::unique_ptr<DeviceHandleStorage> device_handle;  // outlives the channel's comm
    Channel channel;
    uint64_t bytes = 0, chunks = 0;  // that reached their good end
  };
  using Members = std::vector<std::unique_ptr<NamedChannel>>;
  static Members make_members(std::vector<ChannelParts> parts, const Clock& clock, const ChannelLimits& limits);
  std::vector<Channel*> channels() const;

  const Members members_;
  Registrations memory_;
};

}  // namespace tcpx
