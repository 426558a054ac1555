#include "base/host_copier.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/guarded_copy.h"
#include "base/own_thread.h"
#include "base/read_process.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Segments of one system call, whose lists lie on the stack.
constexpr size_t kSegmentsOfCall = 64;

// @return errno, 0: all has been copied
int read_memory(pid_t process, std::span<const CopySegment> segments) {
  if (process == HostCopier::kThisProcess) return guarded_copy(segments);
  std::array<iovec, kSegmentsOfCall> to, from;
  size_t bytes = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    to[i] = {segments[i].to, segments[i].bytes};
    from[i] = {const_cast<std::byte*>(segments[i].from), segments[i].bytes};
    bytes += segments[i].bytes;
  }
  const ssize_t copied = read_process(process, std::span(to).first(segments.size()), std::span(from).first(segments.size()));
  if (copied < 0) return errno;
  // Less comes only when a page of the rest cannot be read.
  return static_cast<size_t>(copied) == bytes ? 0 : EFAULT;
}

}  // namespace

HostCopy::HostCopy(pid_t process, std::span<const CopySegment> segments) : process_(process) {
  size_t bytes = HostCopier::kSliceBytes;  // of the last slice: it is full
  for (const CopySegment& segment : segments) {
    for (size_t at = 0; at < segment.bytes;) {
      if (bytes >= HostCopier::kSliceBytes || pieces_.size() - slices_.back() >= kSegmentsOfCall) {
        slices_.push_back(pieces_.size());
        bytes = 0;
      }
      const size_t part = std::min(segment.bytes - at, HostCopier::kSliceBytes - bytes);
      pieces_.push_back({segment.to + at, segment.from + at, part});
      at += part;
      bytes += part;
    }
  }
  slices_left_ = slices_.size();
  slices_.push_back(pieces_.size());
}

Status HostCopy::status() const {
  const int error = error_.load(std::memory_order_relaxed);
  if (error == ESRCH) return Status(Code::kPeerGone, "copy from the peer's memory", "its process has ended");
  if (error == ECANCELED) return Status(Code::kCancelled, "copy from the peer's memory", "given up");
  if (error == 0) return Status::ok();
  if (process_ == HostCopier::kThisProcess) return system_error("copy through shared memory", error);
  return Status(Code::kSystem, "copy from the peer's memory", "process_vm_readv", Domain::kErrno, error);
}

// Rights may change while a process runs: it takes another user's, gives up being dumpable, or gets a seccomp filter. ESRCH, which
// mostly means that it has ended, is also the answer for a process whose first thread has ended before the others.
bool HostCopy::denied() const {
  const int error = error_.load(std::memory_order_relaxed);
  return error == EPERM || error == EACCES || error == ENOSYS || error == ESRCH;
}

// @return false: every slice has been taken
bool HostCopy::copy_next() {
  const size_t slice = next_slice_.fetch_add(1, std::memory_order_relaxed);
  if (slice + 1 >= slices_.size()) return false;
  int error = ECANCELED;
  if (!stop_.load(std::memory_order_relaxed))
    error = read_memory(process_, std::span(pieces_).subspan(slices_[slice], slices_[slice + 1] - slices_[slice]));
  if (int none = 0; error != 0) {
    (void)error_.compare_exchange_strong(none, error, std::memory_order_relaxed);
    stop();  // the rest is of no use
  }
  slices_left_.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

HostCopier::~HostCopier() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<HostCopy> HostCopier::start(pid_t process, std::span<const CopySegment> segments) {
  const std::shared_ptr<HostCopy> copy(new HostCopy(process, segments));
  size_t bytes = 0;
  for (const CopySegment& segment : segments) bytes += segment.bytes;
  bool has_threads = false;
  if (bytes > kAtOnceBytes) {
    const MutexLock lock(mutex_);
    if (threads_.empty()) start_threads();
    has_threads = !threads_.empty();
    if (has_threads) copies_.push_back(copy);
  }
  if (has_threads) {
    changed_.notify_all();
  } else {
    while (copy->copy_next()) {
    }
  }
  return copy;
}

// As many as there can be. None: `start` copies by itself.
void HostCopier::start_threads() {
  threads_.reserve(wanted_threads_);
  while (threads_.size() < wanted_threads_) {
    auto thread = start_thread("tcpx-pull", [this] { run(); });
    if (!thread.is_ok()) return;
    threads_.push_back(std::move(*thread));
  }
}

void HostCopier::run() {
  while (true) {
    std::shared_ptr<HostCopy> copy;
    {
      const MutexLock lock(mutex_);
      while (!ending_ && copies_.empty()) changed_.wait(mutex_);
      if (copies_.empty()) return;
      // The next thread takes a slice of another one: a long copy holds up no short one.
      copy = copies_.front();
      copies_.pop_front();
      copies_.push_back(copy);
    }
    if (copy->copy_next()) continue;
    const MutexLock lock(mutex_);
    const auto taken = std::find(copies_.begin(), copies_.end(), copy);
    if (taken != copies_.end()) copies_.erase(taken);
  }
}

bool can_be_read(const void* data, size_t bytes) {
  if (bytes == 0) return true;
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(data));
  std::array<std::byte, 2> room{};
  const std::array<CopySegment, 2> ends{CopySegment{room.data(), begin, 1}, CopySegment{room.data() + 1, begin + bytes - 1, 1}};
  return read_memory(getpid(), ends) == 0;
}

}  // namespace tcpx
