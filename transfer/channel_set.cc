#include "transfer/channel_set.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace tcpx {
ChannelSet::NamedChannel::NamedChannel(ChannelParts parts, const Clock& clock, const ChannelLimits& limits)
    : nic(std::move(parts.nic)),
      device_handle(std::move(parts.device_handle)),
      channel(std::move(parts.comm), parts.receive, clock, limits) {}

ChannelSet::Members ChannelSet::make_members(std::vector<ChannelParts> parts, const Clock& clock, const ChannelLimits& limits) {
  ChannelLimits each = limits;
  const Comm& comm = parts.front().comm;
  if (each.window == 0) each.window = default_window(comm.plugin(), comm.direction(), parts.size());
  Members members;
  for (ChannelParts& channel : parts) members.push_back(std::make_unique<NamedChannel>(std::move(channel), clock, each));
  return members;
}

ChannelSet::ChannelSet(std::vector<ChannelParts> parts, const Clock& clock, const ChannelLimits& limits)
    : members_(make_members(std::move(parts), clock, limits)), memory_(channels()) {}

std::vector<Channel*> ChannelSet::channels() const {
  std::vector<Channel*> all;
  for (const auto& member : members_) all.push_back(&member->channel);
  return all;
}

bool ChannelSet::try_post(size_t index, Transfer& transfer, uint64_t chunk) {
  ChunkWork work = transfer.work(chunk);
  work.memory = memory_.handle(index, transfer.spec.memory, transfer.place_of(work.chunk));
  if (!members_[index]->channel.try_post(work)) return false;
  ++transfer.outstanding;
  return true;
}

Channel::Progress ChannelSet::progress(size_t index) {
  NamedChannel& member = *members_[index];
  const Channel::Progress step = member.channel.progress();
  member.chunks += step.finished.size();
  for (const ChunkEnd& end : step.finished) member.bytes += end.bytes;
  return step;
}

uint32_t ChannelSet::room() const {
  uint32_t room = 0;
  for (size_t i = 0; i < members_.size(); ++i) room |= members_[i]->channel.has_room() ? 1u << i : 0;
  return room;
}

size_t ChannelSet::open() const {
  return static_cast<size_t>(
      std::count_if(members_.begin(), members_.end(), [](const auto& member) { return member->channel.status().is_ok(); }));
}

uint64_t ChannelSet::in_flight() const {
  uint64_t sum = 0;
  for (const auto& member : members_) sum += member->channel.in_flight();
  return sum;
}

void ChannelSet::tell_changes(const std::function<void()>& told) {
  for (const auto& member : members_) member->channel.tell_changes(told);
}

bool ChannelSet::is_told() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& member) { return member->channel.is_told(); });
}

bool ChannelSet::is_behind() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& member) { return member->channel.is_behind(); });
}

bool ChannelSet::all_closed() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& member) { return member->channel.closed(); });
}

bool ChannelSet::any_abandoned() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member->channel.abandoned(); });
}

void ChannelSet::fail(const Status& reason) {
  for (const auto& member : members_) member->channel.fail(reason);
}

Status ChannelSet::close() {
  Status first;
  for (const auto& member : members_) {
    if (!member->channel.status().is_ok()) continue;  // failed earlier, and the failure was reported then
    Status status = member->channel.close();
    if (first.is_ok()) first = std::move(status);
  }
  return first;
}

std::vector<ChannelCounters> ChannelSet::counters() const {
  std::vector<ChannelCounters> all;
  for (const auto& member : members_) {
    all.push_back({.nic = member->nic,
                   .bytes = member->bytes,
                   .chunks = member->chunks,
                   .open = member->channel.status().is_ok() && !member->channel.closed()});
  }
  return all;
}

std::string ChannelSet::label(size_t index) const {
  const std::string& nic = members_[index]->nic;
  return concat("channel ", index, nic.empty() ? "" : concat(" (", nic, ")"));
}

Status ChannelSet::labelled(size_t index, const Status& reason) const {
  if (members_.size() == 1 && members_.front()->nic.empty()) return reason;
  return Status(reason.code(), reason.operation(), concat(label(index), ": ", reason.detail()), reason.domain(), reason.native());
}

}  // namespace tcpx
