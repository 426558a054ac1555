#include "rx/rx_descriptor.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/text.h"

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

  // Checked and used is this copy: what the plugin does to its list meanwhile changes nothing.
  fragments_.reserve(kMaxFragments);
  fragments_.assign(list.begin(), list.end());
  message_bytes_ = message_bytes;
  target_ = target;
  Status status = check_ranges();
  if (status.is_ok()) status = check_tiling();
  if (!status.is_ok()) clear();
  return status;
}

void DescriptorBlock::clear() {
  fragments_.clear();
  message_bytes_ = 0;
  target_ = {};
}

Status DescriptorBlock::check_ranges() const {
  for (size_t i = 0; i < fragments_.size(); ++i) {
    const Fragment& f = fragments_[i];
    if (f.len == 0) return refused(concat("fragment ", i, " has no bytes (src_off ", f.src_off, ", dst_off ", f.dst_off, ")"));
    if (!fits(f.src_off, f.len, target_.pool_bytes)) {
      return refused(concat("fragment ", i, ": src_off ", f.src_off, " + len ", f.len, " is beyond the bounce pool of ",
                            target_.pool_bytes, " bytes"));
    }
    if (!fits(f.dst_off, f.len, message_bytes_)) {
      return refused(concat("fragment ", i, ": dst_off ", f.dst_off, " + len ", f.len, " is beyond the message of ",
                            message_bytes_, " bytes"));
    }
  }
  return Status::ok();
}

// In ascending order every fragment must begin where the one before it ended. One data socket delivers ascending lists, so
// looking comes before sorting.
Status DescriptorBlock::check_tiling() const {
  const auto by_dst_off = [](const Fragment& a, const Fragment& b) { return a.dst_off < b.dst_off; };
  std::array<uint16_t, kMaxFragments> places;
  const std::span<uint16_t> order(places.data(), fragments_.size());
  std::iota(order.begin(), order.end(), uint16_t{0});
  if (!std::is_sorted(fragments_.begin(), fragments_.end(), by_dst_off)) {
    std::sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) { return by_dst_off(fragments_[a], fragments_[b]); });
  }

  uint64_t covered_bytes = 0;  // [0, covered_bytes) is tiled
  for (const uint16_t i : order) {
    const Fragment& f = fragments_[i];
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
  if (covered_bytes != message_bytes_) {
    return refused(concat(fragments_.size(), " fragments cover ", covered_bytes, " bytes of a message of ", message_bytes_));
  }
  return Status::ok();
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
