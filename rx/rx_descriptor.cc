#include "rx/rx_descriptor.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "base/text.h"
#include "rx/tiling.h"
#include "tcpx/help.h"

namespace tcpx {
namespace {

Status refused(std::string detail) {
  return {Code::kProtocol, "check scatter list", std::move(detail)};
}

Status check_target(const UnpackTarget& target) {
  const auto bad = [](std::string detail) { return Status(Code::kInvalidArgument, "check unpack target", std::move(detail)); };
  if (target.pool == nullptr) return bad("no bounce pool");
  if (target.pool_bytes == 0 || target.pool_bytes > kMaxPoolBytes) {
    return bad(concat("bounce pool of ", target.pool_bytes, " bytes; 1 to ", kMaxPoolBytes, " can be addressed"));
  }
  if (target.destination == nullptr && target.destination_bytes > 0) {
    return bad(concat("no destination for ", target.destination_bytes, " bytes"));
  }
  return Status::ok();
}

constexpr bool fits(uint64_t off, uint64_t len, uint64_t cap) {
  return off <= cap && len <= cap - off;
}

Status check_ranges(std::span<const Fragment> list, uint64_t message_bytes, uint64_t pool_bytes) {
  for (size_t i = 0; i < list.size(); ++i) {
    const Fragment& f = list[i];
    if (f.len == 0) return refused(concat("fragment ", i, " has no bytes (src_off ", f.src_off, ", dst_off ", f.dst_off, ")"));
    if (!fits(f.src_off, f.len, pool_bytes)) {
      return refused(concat("fragment ", i, ": src_off ", f.src_off, " + len ", f.len, " is beyond the bounce pool of ",
                            pool_bytes, " bytes"));
    }
    if (!fits(f.dst_off, f.len, message_bytes)) {
      return refused(concat("fragment ", i, ": dst_off ", f.dst_off, " + len ", f.len, " is beyond the message of ",
                            message_bytes, " bytes"));
    }
  }
  return Status::ok();
}

// In ascending order every fragment must begin where the one before it ended.
Status check_tiling(std::span<const Fragment> list, uint64_t message_bytes) {
  std::array<uint16_t, kMaxFragments> places;
  const std::span<uint16_t> order(places.data(), list.size());
  std::iota(order.begin(), order.end(), uint16_t{0});
  std::sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) { return list[a].dst_off < list[b].dst_off; });

  uint64_t covered_bytes = 0;  // [0, covered_bytes) is tiled
  for (const uint16_t i : order) {
    const Fragment& f = list[i];
    if (f.dst_off > covered_bytes) {
      return refused(
          concat("fragment ", i, " begins at dst_off ", f.dst_off, ", but nothing covers the message from ", covered_bytes));
    }
    if (f.dst_off < covered_bytes) {
      return refused(concat("fragment ", i, " begins at dst_off ", f.dst_off, ", but the message is covered up to ",
                            covered_bytes, " already"));
    }
    covered_bytes += f.len;
  }
  if (covered_bytes != message_bytes) {
    const std::string hint = list.empty() ? name_in_detail(Hint::kNoControlMessage) : "";
    return refused(concat(list.size(), " fragments cover ", covered_bytes, " bytes of a message of ", message_bytes, hint));
  }
  return Status::ok();
}

}  // namespace

Status DescriptorBlock::build(std::span<const Fragment> list, uint64_t message_bytes, const UnpackTarget& target) {
  clear();
  TCPX_RETURN_IF_ERROR(check_target(target));
  if (message_bytes > kMaxMessageBytes) {
    return refused(concat("message of ", message_bytes, " bytes, at most ", kMaxMessageBytes, " are allowed"));
  }
  if (message_bytes > target.destination_bytes) {
    return refused(concat("message of ", message_bytes, " bytes for a destination of ", target.destination_bytes));
  }
  if (list.size() > kMaxFragments) return refused(concat(list.size(), " fragments, at most ", kMaxFragments, " are allowed"));

  // This copy is both checked and used: the plugin may change its list meanwhile.
  fragments_.reserve(kMaxFragments);
  fragments_.assign(list.begin(), list.end());
  message_bytes_ = message_bytes;
  target_ = target;
  if (scan()) return Status::ok();
  // The slow path: it names the offender and has the final say.
  Status status = check_ranges(fragments_, message_bytes, target.pool_bytes);
  if (status.is_ok()) status = check_tiling(fragments_, message_bytes);
  if (!status.is_ok()) clear();
  return status;
}

void DescriptorBlock::clear() {
  fragments_.clear();
  target_ = {};
  message_bytes_ = 0;
  longest_bytes_ = 0;
  joined_distance_ = 0;
  contiguous_source_ = nullptr;
}

// True when the list is beyond doubt. Also gathers the properties of the whole list that unpackers ask for.
bool DescriptorBlock::scan() {
  const uint64_t between_bases = reinterpret_cast<uintptr_t>(target_.pool) - reinterpret_cast<uintptr_t>(target_.destination);
  const uint64_t pool_bytes = target_.pool_bytes;
  uint64_t end = 0, jumps = 0, sum = 0, joined_distance = 0, common_distance = ~uint64_t{0};
  uint32_t longest_bytes = 0;
  for (const Fragment& f : fragments_) {
    if (f.len == 0 || !fits(f.src_off, f.len, pool_bytes)) return false;
    jumps |= f.dst_off ^ end;
    end = f.dst_off + f.len;
    sum += f.len;
    longest_bytes = std::max(longest_bytes, f.len);
    const uint64_t distance = between_bases + f.src_off - f.dst_off;
    joined_distance |= distance;
    common_distance &= distance;
  }
  longest_bytes_ = longest_bytes;
  joined_distance_ = joined_distance;
  if (sum != message_bytes_) return false;
  // A single data socket delivers ascending lists. The secret is an address, which a peer cannot know.
  if (jumps != 0 && !proves_tiling(fragments_, message_bytes_, reinterpret_cast<uintptr_t>(fragments_.data()))) return false;
  // With one distance for all, the sources leave no more gaps than the destinations: none, and the first byte is in the pool.
  if (common_distance == joined_distance && !fragments_.empty()) {
    contiguous_source_ = target_.pool + (fragments_.front().src_off - fragments_.front().dst_off);
  }
  return true;
}

void cpu_unpack(const DescriptorBlock& block) {
  const UnpackTarget& target = block.target();
  for (const Fragment& f : block.fragments()) {
    const std::byte* from = target.pool + f.src_off;
    std::byte* to = target.destination + f.dst_off;
    for (uint32_t i = 0; i < f.len; ++i) to[i] = from[i];
  }
}

}  // namespace tcpx
