// HostCopier: makes copies (base/host_copy.h), and checksums (base/byte_sum.h) of memory of this process, with threads that share the work.
//
// Access to memory may hang forever. So the caller of `start` copies only memory that is present (base/pagemap.h), and leaves the rest
// to threads. A thread that hangs is replaced, and may outlive the copier.
#pragma once

#include "base/clock.h"
#include "base/host_copy.h"

namespace tcpx {

/// Facts about a copy that its segments do not tell.
struct HostCopyOptions {
  /// The other process's page map; null: it is not known which of its pages are present.
  std::shared_ptr<const Pagemap> pages = nullptr;
  MayHang may_hang = MayHang::kBoth;
  bool alone = false;  ///< nothing else is waiting to be copied
  bool only_at_once = false;  ///< by the caller of `start`, or not at all
};

/// Any thread.
class HostCopier {
 public:
  /// `start` copies up to this many bytes itself if all of the memory is present, because waking a thread takes longer. Of a copy that
  /// is alone it copies more: several threads, which pin its pages at the same time, take longer than one (1 MiB: 54 us one thread,
  /// 84 two, 104 eight; 4 MiB: 410, 220 to 340, 210; 32 cores). So it does on few cores, which threads would need.
  static constexpr size_t kAtOnceBytes = 128 * 1024, kAtOnceAlone = 1024 * 1024;
  /// A thread that takes longer than this for a slice is replaced.
  static constexpr Duration kHangs = std::chrono::milliseconds(250);
  /// Most replaced threads that may hang at a time. When this many hang, further threads that hang are not replaced.
  static constexpr size_t kMostHanging = 64;

  /// @param threads at least 1; they are started with the first long copy
  explicit HostCopier(size_t threads);
  /// Waits for copies in flight, but leaves those that hang behind, with their threads.
  ~HostCopier();
  HostCopier(const HostCopier&) = delete;
  HostCopier& operator=(const HostCopier&) = delete;

  /// Starts a copy. `segments` may be reused at once; the memory that they name must stay valid until the copy is done. No two
  /// segments may overlap.
  /// @param process the process whose memory contains the sources, by its number in this pid namespace; may be this process. Or
  ///        HostCopy::kThisProcess. The targets are in this process.
  /// @return null: `only_at_once`, and it would be waited for, or is too much
  std::shared_ptr<HostCopy> start(pid_t process, std::span<const CopySegment> segments, HostCopyOptions options = {});
  /// True if the first and the last byte of memory of this process can be read without waiting for anybody.
  bool has_ends(const std::byte* data, size_t bytes);
  /// Has a thread read those two bytes, so that they are there afterwards. That may hang. Others may write them meanwhile.
  std::shared_ptr<HostCopy> read_ends(const std::byte* data, size_t bytes);
  /// Starts a copy into the memory of another process: `from` is memory of this one. Otherwise as `start`.
  /// @return null: what must not be waited for would be waited for, or is scattered so much that looking for it takes too long. If the
  /// copy fails with EFAULT, a page was not present; some may have been written
  std::shared_ptr<HostCopy> start_write(pid_t process, std::span<const CopySegment> segments,
                                        std::shared_ptr<const Pagemap> pages, bool alone);
  /// Starts the checksum of the `from` of all segments, one behind the other; `to` is not looked at. Otherwise as `start`.
  std::shared_ptr<HostCopy> start_sum(std::shared_ptr<const ByteSumKey> key, std::span<const CopySegment> segments);
  /// True on few cores: its threads would need those of the threads that poll.
  bool has_few_threads() const;
  /// Replaces threads that hang. Call it repeatedly while a copy is not done.
  void relieve();

 private:
  using Kind = HostCopy::Kind;
  struct Crew;
  struct Worker;
  static void run(const std::shared_ptr<Crew>& crew, const std::shared_ptr<Worker>& worker);
  size_t slice_bytes_of(size_t bytes) const;
  size_t most_at_once(bool alone) const;
  std::shared_ptr<const Pagemap> own_pages();
  std::shared_ptr<HostCopy> begin(HostCopy::Work work, std::span<const CopySegment> segments, bool alone,
                                  bool only_at_once = false);
  void run_or_share(const std::shared_ptr<HostCopy>& copy, bool at_once);
  bool share(const std::shared_ptr<HostCopy>& copy);

  // Shared with the threads, because a thread that hangs may outlive this object.
  const std::shared_ptr<Crew> crew_;
};

}  // namespace tcpx
