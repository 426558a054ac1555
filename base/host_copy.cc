#include "base/host_copy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "base/guarded_copy.h"
#include "base/read_process.h"
#include "base/socket_io.h"

namespace tcpx {
namespace {

// Most segments of one system call; their lists are on the stack.
constexpr size_t kSegmentsOfCall = 64;

// Also where an application has given address 0, which has no other bytes for C++.
template <class Byte>
Byte* byte_at(Byte* first, size_t offset) {
  return reinterpret_cast<Byte*>(reinterpret_cast<uintptr_t>(first) + offset);
}

// By way of a buffer of so many bytes, 1 MiB that aliases takes 170 us instead of 650 (of 128 KiB: 150, of 16 KiB: 270); else 125. What is
// shorter than this waits for the system call.
constexpr size_t kNearBytes = 64 * 1024, kLeastByWayOfNear = 8 * 1024;

using Copy = decltype(read_process);

// Copies memory of a process into this one, or out of it. @param copy read_process or write_process
// @param segments of one call @return errno; 0: everything has been copied
int copy_in_one_call(Copy& copy, pid_t process, std::span<const CopySegment> segments) {
  std::array<iovec, kSegmentsOfCall> to, from;
  size_t bytes = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    to[i] = {segments[i].to, segments[i].bytes};
    from[i] = {const_cast<std::byte*>(segments[i].from), segments[i].bytes};
    bytes += segments[i].bytes;
  }
  const ssize_t copied = copy(process, std::span(to).first(segments.size()), std::span(from).first(segments.size()));
  if (copied < 0) return errno;
  // The kernel copies less only when it cannot access a page of the rest.
  return static_cast<size_t>(copied) == bytes ? 0 : EFAULT;
}

int copy_by_way_of_near(Copy& copy, pid_t process, const CopySegment& segment) {
  const WithoutTracingRight once;
  const bool reads = &copy == &read_process;
  std::array<std::byte, kNearBytes + kAliasBytes + 1> room;  // uninitialised
  std::byte* near = room.data();
  if (reads ? aliases(near, segment.from) : aliases(segment.to, near)) near += kAliasBytes + 1;
  int error = 0;
  for (size_t at = 0, bytes; error == 0 && at < segment.bytes; at += bytes) {
    bytes = std::min(kNearBytes, segment.bytes - at);
    const CopySegment in{near, byte_at(segment.from, at), bytes}, out{byte_at(segment.to, at), near, bytes};
    error = reads ? copy_in_one_call(copy, process, {&in, 1}) : guarded_copy({&in, 1});
    if (error == 0) error = reads ? guarded_copy({&out, 1}) : copy_in_one_call(copy, process, {&out, 1});
  }
  return error;
}

// As copy_in_one_call, as fast where they alias.
int copy_memory(Copy& copy, pid_t process, std::span<const CopySegment> segments) {
  const auto is_slow = [](const CopySegment& one) { return one.bytes >= kLeastByWayOfNear && aliases(one.to, one.from); };
  for (auto at = segments.begin(); at != segments.end();) {
    const auto slow = std::find_if(at, segments.end(), is_slow);
    const int error = slow == at ? copy_by_way_of_near(copy, process, *at++) : copy_in_one_call(copy, process, {at, slow});
    if (error != 0) return error;
    at = std::max(at, slow);
  }
  return 0;
}

int read_memory(pid_t process, std::span<const CopySegment> segments) {
  return process == HostCopy::kThisProcess ? guarded_copy(segments) : copy_memory(read_process, process, segments);
}

}  // namespace

HostCopy::HostCopy(Work work, std::span<const CopySegment> segments, size_t slice_bytes) : work_(std::move(work)) {
  size_t left = 0;  // that the last slice has room for
  for (const CopySegment& segment : segments) {
    const bool by_tables = work_.process != kThisProcess && segment.bytes > kSliceBytes && slice_bytes != kOneSlice;
    for (size_t at = 0; at < segment.bytes;) {
      const std::byte* const there = byte_at<const std::byte>(work_.kind == Kind::kWrite ? segment.to : segment.from, at);
      if (left == 0 || pieces_.size() - slices_.back() >= kSegmentsOfCall) {
        slices_.push_back(pieces_.size());
        if (work_.kind == Kind::kSum) places_.push_back(bytes_);
        left = by_tables ? kTableBytes - reinterpret_cast<uintptr_t>(there) % kTableBytes : slice_bytes;
      }
      const size_t part = std::min({segment.bytes - at, left, kSliceBytes});
      pieces_.push_back({work_.kind == Kind::kSum ? nullptr : byte_at(segment.to, at), byte_at(segment.from, at), part});
      at += part;
      left -= part;
      bytes_ += part;
    }
  }
  slices_left_ = slices_.size();
  slices_.push_back(pieces_.size());
}

Status HostCopy::status() const {
  if (is_whole()) return Status::ok();
  const int error = error_.load(std::memory_order_relaxed);
  if (error == ESRCH) return Status(Code::kPeerGone, "copy from the peer's memory", "its process has ended");
  if (error == 0 || error == ECANCELED) return Status(Code::kCancelled, "copy from the peer's memory", "given up");
  if (work_.kind == Kind::kSum) return system_error("add up memory", error);
  if (work_.process == kThisProcess) return system_error("copy through shared memory", error);
  return Status(Code::kSystem, "copy from the peer's memory",
                work_.kind == Kind::kWrite ? "process_vm_writev" : "process_vm_readv", Domain::kErrno, error);
}

// The right to read a process may change while it runs: it may change its user, stop being dumpable, or get a seccomp filter.
// ESRCH usually means that the process has ended, but is also the answer for a process whose first thread has ended before the
// others.
bool HostCopy::denied() const {
  const int error = error_.load(std::memory_order_relaxed);
  return error == EPERM || error == EACCES || error == ENOSYS || error == ESRCH;
}

// Does the next slice that nobody has taken. @param apart a buffer of the calling thread, which may hang; null: it may not hang
// @return false: every slice has been taken
bool HostCopy::do_next(std::vector<std::byte>* apart) {
  const size_t slice = next_slice_.fetch_add(1, std::memory_order_relaxed);
  if (slice + 1 >= slices_.size()) return false;
  const int error = stopped() ? ECANCELED : do_slice(slice, apart);
  if (int none = 0; error != 0) {
    (void)error_.compare_exchange_strong(none, error, std::memory_order_relaxed);
    stop();  // the rest is useless
  }
  slices_left_.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

// @return errno; 0: the whole slice has been done
int HostCopy::do_slice(size_t slice, std::vector<std::byte>* apart) {
  const auto segments = std::span<const CopySegment>(pieces_).subspan(slices_[slice], slices_[slice + 1] - slices_[slice]);
  switch (work_.kind) {
    case Kind::kRead:
      return read(segments, apart);
    case Kind::kWrite:
      return write(segments);
    case Kind::kSum:
      return add_up(segments, places_[slice]);
    case Kind::kReadEnds:
      return read_ends(segments);
  }
  return EINVAL;
}

// Calls `access`, unless the copy has been stopped before. The copy is not done until that call has returned. @return errno
template <class Access>
int HostCopy::unless_stopped(Access access) {
  uint32_t writers = writers_.load(std::memory_order_relaxed);
  do {
    if ((writers & kStopped) != 0) return ECANCELED;
  } while (!writers_.compare_exchange_weak(writers, writers + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
  const int error = access();
  writers_.fetch_sub(1, std::memory_order_acq_rel);
  return error;
}

int HostCopy::read(std::span<const CopySegment> segments, std::vector<std::byte>* apart) {
  if (apart != nullptr && !sources_answer(segments)) return read_by_way_of(*apart, segments);
  return unless_stopped([&] { return read_memory(work_.process, segments); });
}

int HostCopy::read_by_way_of(std::vector<std::byte>& apart, std::span<const CopySegment> segments) {
  try {
    apart.resize(kSliceBytes + kSegmentsOfCall * (kAliasBytes + 1));  // each segment has at most a slice
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  for (std::array<CopySegment, kSegmentsOfCall> in, out; !segments.empty();) {
    std::byte* at = apart.data();
    size_t count = 0, left = kSliceBytes;
    for (; count < segments.size() && segments[count].bytes <= left; ++count) {
      const auto& [to, from, bytes] = segments[count];
      if (aliases(at, from)) at += kAliasBytes + 1;
      in[count] = {at, from, bytes};
      out[count] = {to, at, bytes};
      at += bytes;
      left -= bytes;
    }
    if (const int error = read_memory(work_.process, std::span(in).first(count)); error != 0) return error;
    const auto write_here = [&] { return guarded_copy(std::span(out).first(count)); };
    if (const int error = unless_stopped(write_here); error != 0) return error;
    segments = segments.subspan(count);
  }
  return 0;
}

int HostCopy::write(std::span<const CopySegment> segments) {
  if (!was_there_ && !is_there(segments)) return EFAULT;
  return unless_stopped([&] { return copy_memory(write_process, work_.process, segments); });
}

int HostCopy::add_up(std::span<const CopySegment> segments, uint64_t place) {
  ByteSumPart part(*work_.key, place);
  const auto add = [](void* context, std::span<const std::byte> memory) { static_cast<ByteSumPart*>(context)->add(memory); };
  return unless_stopped([&] {
    int error = 0;
    for (size_t i = 0; error == 0 && i < segments.size(); ++i)
      error = guarded_read({segments[i].from, segments[i].bytes}, add, &part);
    const uint64_t value = part.value(bytes_);
    uint64_t sum = sum_.load(std::memory_order_relaxed);
    while (!sum_.compare_exchange_weak(sum, ByteSumKey::add(sum, value), std::memory_order_relaxed)) {
    }
    return error;
  });
}

// By way of the kernel: the application may write those bytes at the same time.
int HostCopy::read_ends(std::span<const CopySegment> ends) {
  std::array<std::byte, kSegmentsOfCall> room;
  std::array<CopySegment, kSegmentsOfCall> in;
  for (size_t i = 0; i < ends.size(); ++i) in[i] = {&room[i], ends[i].from, 1};
  return unless_stopped([&] { return copy_memory(read_process, work_.process, std::span(in).first(ends.size())); });
}

// True when a read, or a checksum, waits for no page of its sources.
bool HostCopy::sources_answer(std::span<const CopySegment> segments) const {
  return work_.may_hang == MayHang::kTargets || (work_.pages != nullptr && work_.pages->has_sources(segments));
}

// True when a write waits for no page, here or in the other process.
bool HostCopy::is_there(std::span<const CopySegment> segments) const {
  return work_.own_pages->has_sources(segments) && work_.pages->has_targets(segments);
}

}  // namespace tcpx
