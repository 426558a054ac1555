#include "endpoint/peer_memory.h"

#include <algorithm>
#include <string_view>

#include "base/environment.h"
#include "base/text.h"
#include "base/usable_memory.h"

namespace tcpx {
namespace {

constexpr uint64_t kUsualPart = 8;  // 1/8 of the memory that the process may use

}  // namespace

uint64_t PeerMemory::usual_bytes() {
  return std::max(usable_memory() / kUsualPart, kLeastBytes);
}

Result<uint64_t> PeerMemory::configured(const EndpointConfig& config) {
  const auto refuse = [](Code code, std::string_view name, auto bytes) {
    return Status(code, "create endpoint", concat(name, " ", bytes, ", at least ", kLeastBytes));
  };
  if (config.max_peer_bytes) {
    const uint64_t bytes = *config.max_peer_bytes;
    return bytes < kLeastBytes ? Result<uint64_t>(refuse(Code::kInvalidArgument, "max_peer_bytes", bytes)) : bytes;
  }
  TCPX_ASSIGN_OR_RETURN(const auto bytes, environment_integer(Variable::kMaxPeerBytes));
  if (bytes == 0) return usual_bytes();
  if (static_cast<uint64_t>(bytes) >= kLeastBytes) return static_cast<uint64_t>(bytes);
  return refuse(Code::kBadConfig, environment_info(Variable::kMaxPeerBytes).name, bytes);
}

void PeerMemory::add(Place& place, uint64_t bytes) {
  held_ += bytes;
  place.of_->second.bytes += bytes;
  place.bytes_ += bytes;
}

Result<PeerMemory::Place> PeerMemory::admit(const std::string& address, bool invited) {
  const auto refuse = [this](std::string why) {
    return Status(
        Code::kExhausted, "take a connection",
        concat(why, " of the ", most_, " bytes that all peers may make this end hold: set EndpointConfig::max_peer_bytes",
               " or UCCL_TCPX_MAX_PEER_BYTES there"));
  };
  const MutexLock lock(mutex_);
  if (kFloorBytes > most_ - held_) return refuse(concat("no room for one more: connections have ", held_));
  const auto known = addresses_.find(address);
  const uint64_t has = known == addresses_.end() ? 0 : known->second.bytes;
  // Later connections of an address must leave room for the first one of another.
  if (!invited && has > 0 && has + kFloorBytes > most_ - held_ - kFloorBytes)
    return refuse(concat("no room for one more of ", address, ": its connections have ", has, ", all together ", held_));
  Place place;
  place.all_ = this;
  place.of_ = addresses_.try_emplace(address).first;
  ++place.of_->second.places;
  add(place, kFloorBytes);
  return place;
}

PeerMemory::Place::~Place() {
  if (all_ == nullptr) return;
  const MutexLock lock(all_->mutex_);
  all_->held_ -= bytes_;
  of_->second.bytes -= bytes_;
  if (--of_->second.places == 0) all_->addresses_.erase(of_);
}

bool PeerMemory::Place::grow(uint64_t bytes, uint64_t part) {
  if (all_ == nullptr) return true;
  const MutexLock lock(all_->mutex_);
  if (bytes > all_->most_ - all_->held_ || all_->held_ + bytes > all_->most_ / part) return false;
  if (of_->second.bytes + bytes > all_->most_ - all_->held_ - bytes) return false;
  all_->add(*this, bytes);
  return true;
}

void PeerMemory::Place::shrink(uint64_t bytes) {
  if (all_ == nullptr) return;
  const MutexLock lock(all_->mutex_);
  all_->held_ -= bytes;
  of_->second.bytes -= bytes;
  bytes_ -= bytes;
}

bool PeerMemory::Place::is_crowded() const {
  if (all_ == nullptr) return false;
  const MutexLock lock(all_->mutex_);
  return all_->held_ > all_->most_ / 2;
}

}  // namespace tcpx
