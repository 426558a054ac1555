// Jobs on parts of a piece of registered memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "lanes/lane.h"

namespace tcpx::testing {

/// Parts of memory: offset and length.
using Parts = std::vector<std::pair<size_t, size_t>>;

/// Parts that do not overlap, in no order, so many bytes together.
inline Parts random_parts(size_t bytes, size_t longest, std::mt19937_64& random) {
  Parts parts;
  for (size_t at = 0; at < bytes;) {
    const size_t part = std::min(bytes - at, 1 + random() % longest);
    parts.emplace_back(at, part);
    at += part;
  }
  std::shuffle(parts.begin(), parts.end(), random);
  return parts;
}

/// These parts of the memory at `data`, all of which is that region.
inline std::vector<HeldRange> hold(MemoryRegistry& registry, MemoryId region, std::byte* data, const Parts& parts) {
  std::vector<HeldRange> held;
  for (const auto& [offset, bytes] : parts)
    held.emplace_back(registry.use(region, data + offset, bytes).value(), data + offset, bytes);
  return held;
}

/// A job that keeps its ranges.
inline std::unique_ptr<Job> job_on(std::vector<HeldRange> ranges, uint64_t number, bool of_peer = false) {
  struct Holding final : Job {
    std::vector<HeldRange> held;
  };
  auto job = std::make_unique<Holding>();
  for (const HeldRange& range : ranges) job->bytes += range.bytes;
  job->held = std::move(ranges);
  job->ranges = job->held;
  job->number = number;
  job->of_peer = of_peer;
  return job;
}

}  // namespace tcpx::testing
