#include "base/host_copier.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/own_thread.h"
#include "base/read_process.h"
#include "base/spin_time.h"
#include "tcpx/types.h"

namespace tcpx {
namespace {

// Time that the destructor of a copier waits for its threads.
constexpr Duration kPatience = std::chrono::seconds(1);
// So few threads are of a machine with few cores, on which others want the core of one that polls.
constexpr size_t kFewThreads = 5;

size_t bytes_of_all(std::span<const CopySegment> segments) {
  return std::accumulate(segments.begin(), segments.end(), size_t{0},
                         [](size_t bytes, const CopySegment& segment) { return bytes + segment.bytes; });
}

std::array<CopySegment, 2> ends_of(const std::byte* data, size_t bytes) {
  return {CopySegment{nullptr, data, 1}, CopySegment{nullptr, data + bytes - 1, 1}};
}

}  // namespace

/// A thread and its work. Guarded by the crew's mutex.
struct HostCopier::Worker {
  std::thread thread;
  std::shared_ptr<HostCopy> copy;  // the copy of which it has a slice; null: none
  TimePoint since{};               // when it took that slice
  bool replaced = false, left = false;
};

struct HostCopier::Crew : std::enable_shared_from_this<HostCopier::Crew> {
  explicit Crew(size_t threads) : wanted(threads) {}
  void start_threads() TCPX_REQUIRES(mutex);
  bool take(Worker& worker, TimePoint poll_until) TCPX_EXCLUDES(mutex);
  void end_slice(Worker& worker, bool took) TCPX_EXCLUDES(mutex);
  void replace(Worker& worker) TCPX_REQUIRES(mutex);
  void add(const std::shared_ptr<HostCopy>& copy) TCPX_REQUIRES(mutex) {
    copies.push_back(copy);
    has_copies.store(true, std::memory_order_relaxed);
  }
  void remove(const std::shared_ptr<HostCopy>& copy) TCPX_REQUIRES(mutex) {
    std::erase(copies, copy);
    has_copies.store(!copies.empty(), std::memory_order_relaxed);
  }
  size_t working() const TCPX_REQUIRES(mutex) {
    return static_cast<size_t>(std::count_if(workers.begin(), workers.end(), [](const auto& one) { return !one->replaced; }));
  }

  const size_t wanted;
  Mutex mutex;
  CondVar changed;
  std::deque<std::shared_ptr<HostCopy>> copies TCPX_GUARDED_BY(mutex);  // those with slices that nobody has taken
  std::vector<std::shared_ptr<Worker>> workers TCPX_GUARDED_BY(mutex);
  std::shared_ptr<const Pagemap> own_pages TCPX_GUARDED_BY(mutex);
  bool ending TCPX_GUARDED_BY(mutex) = false;
  std::atomic<bool> has_copies{false};  // a hint, so that polling takes no lock
  std::atomic<TimePoint::rep> next_look{0};
};

HostCopier::HostCopier(size_t threads) : crew_(std::make_shared<Crew>(threads)) {}

HostCopier::~HostCopier() {
  std::vector<std::shared_ptr<Worker>> workers;
  {
    const MutexLock lock(crew_->mutex);
    crew_->ending = true;
    crew_->changed.notify_all();
    const TimePoint until = std::chrono::steady_clock::now() + kPatience;
    const auto works = [](const auto& worker) { return !worker->left && !worker->replaced; };
    while (std::any_of(crew_->workers.begin(), crew_->workers.end(), works) && crew_->changed.wait_until(crew_->mutex, until)) {
    }
    for (const auto& copy : crew_->copies) copy->stop();
    crew_->copies.clear();
    workers.swap(crew_->workers);
    for (const auto& worker : workers) {
      if (works(worker)) crew_->replace(*worker);
    }
  }
  for (const auto& worker : workers) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

// Opens this process's page map at the first call. When that fails for lack of descriptors, the next call tries again.
std::shared_ptr<const Pagemap> HostCopier::own_pages() {
  const MutexLock lock(crew_->mutex);
  if (crew_->own_pages == nullptr) {
    auto own = Pagemap::of(::getpid());
    if (own.is_ok()) crew_->own_pages = std::move(*own);
  }
  return crew_->own_pages;
}

// A slice for each thread, so that none is idle while others have much of a short copy.
size_t HostCopier::slice_bytes_of(size_t bytes) const {
  const size_t each = bytes / crew_->wanted + 1;
  return std::clamp((each + kPageBytes - 1) / kPageBytes * kPageBytes, HostCopy::kLeastSliceBytes, HostCopy::kSliceBytes);
}

std::shared_ptr<HostCopy> HostCopier::start(pid_t process, std::span<const CopySegment> segments, HostCopyOptions options) {
  if (process == HostCopy::kThisProcess || process == ::getpid()) options.pages = own_pages();
  return begin({.kind = Kind::kRead, .process = process, .pages = std::move(options.pages), .may_hang = options.may_hang},
               segments, options.alone, options.only_at_once);
}

size_t HostCopier::most_at_once(bool alone) const {
  return alone || has_few_threads() ? kAtOnceAlone : kAtOnceBytes;
}

bool HostCopier::has_few_threads() const {
  return crew_->wanted <= kFewThreads;
}

bool HostCopier::has_ends(const std::byte* data, size_t bytes) {
  const auto own = own_pages();
  return own != nullptr && own->has_sources(ends_of(data, bytes));
}

std::shared_ptr<HostCopy> HostCopier::read_ends(const std::byte* data, size_t bytes) {
  const std::shared_ptr<HostCopy> look(new HostCopy({.kind = Kind::kReadEnds, .process = ::getpid()}, ends_of(data, bytes)));
  if (!share(look)) look->stop();
  return look;
}

std::shared_ptr<HostCopy> HostCopier::start_write(pid_t process, std::span<const CopySegment> segments,
                                                  std::shared_ptr<const Pagemap> pages, bool alone) {
  const auto own = own_pages();
  if (process == ::getpid()) pages = own;
  if (own == nullptr || pages == nullptr) return nullptr;
  const size_t bytes = bytes_of_all(segments);
  const bool at_once = bytes <= most_at_once(alone);
  if (!at_once && bytes < segments.size() * HostCopy::kSliceBytes) return nullptr;
  const std::shared_ptr<HostCopy> copy(
      new HostCopy({.kind = Kind::kWrite, .process = process, .pages = std::move(pages), .own_pages = own}, segments,
                   at_once ? HostCopy::kOneSlice : HostCopy::kSliceBytes));
  copy->was_there_ = at_once && copy->is_there(segments);
  if (at_once && !copy->was_there_) return nullptr;
  run_or_share(copy, at_once);
  return copy;
}

std::shared_ptr<HostCopy> HostCopier::start_sum(std::shared_ptr<const ByteSumKey> key, std::span<const CopySegment> segments) {
  return begin({.kind = Kind::kSum, .pages = own_pages(), .may_hang = MayHang::kSources, .key = std::move(key)}, segments, false);
}

std::shared_ptr<HostCopy> HostCopier::begin(HostCopy::Work work, std::span<const CopySegment> segments, bool alone,
                                            bool only_at_once) {
  const size_t bytes = bytes_of_all(segments);
  const bool may_be_at_once = bytes <= most_at_once(alone);
  const std::shared_ptr<HostCopy> copy(
      new HostCopy(std::move(work), segments, may_be_at_once ? HostCopy::kOneSlice : slice_bytes_of(bytes)));
  const auto targets_answer = [&] {
    if (copy->work_.may_hang == MayHang::kSources) return true;
    const auto own = own_pages();
    return own != nullptr && own->has_targets(segments);
  };
  const bool at_once = may_be_at_once && copy->sources_answer(segments) && targets_answer();
  if (only_at_once && !at_once) return nullptr;
  run_or_share(copy, at_once);
  return copy;
}

void HostCopier::run_or_share(const std::shared_ptr<HostCopy>& copy, bool at_once) {
  if (!at_once && share(copy)) return;
  std::optional<WithoutTracingRight> without;
  if (copy->work_.process != HostCopy::kThisProcess) without.emplace();
  while (copy->do_next(nullptr)) {
  }
}

// Gives the copy to the threads. @return false: there are none
bool HostCopier::share(const std::shared_ptr<HostCopy>& copy) {
  {
    const MutexLock lock(crew_->mutex);
    if (crew_->working() < crew_->wanted) crew_->start_threads();
    if (crew_->working() == 0) return false;
    crew_->add(copy);
  }
  crew_->changed.notify_all();
  return true;
}

void HostCopier::relieve() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (now.time_since_epoch().count() < crew_->next_look.load(std::memory_order_relaxed)) return;
  const MutexLock lock(crew_->mutex);
  crew_->next_look.store((now + kHangs / 4).time_since_epoch().count(), std::memory_order_relaxed);
  std::erase_if(crew_->workers, [](const auto& worker) { return worker->replaced && worker->left; });
  for (const auto& worker : crew_->workers) {
    if (worker->replaced || worker->copy == nullptr || now - worker->since < kHangs) continue;
    if (crew_->workers.size() - crew_->working() >= kMostHanging) break;
    crew_->replace(*worker);
  }
  if (crew_->working() < crew_->wanted) crew_->start_threads();
}

// Leaves the thread alone with its slice. The other slices of its copy would probably hang, too, so they wait until this one is
// done.
void HostCopier::Crew::replace(Worker& worker) {
  worker.replaced = true;
  worker.thread.detach();
  if (worker.copy == nullptr) return;
  worker.copy->hanging_.fetch_add(1, std::memory_order_relaxed);
  remove(worker.copy);
}

// Starts as many threads as possible. When there are none, `start` copies by itself.
void HostCopier::Crew::start_threads() {
  while (working() < wanted) {
    workers.reserve(workers.size() + 1);
    const auto worker = std::make_shared<Worker>();
    auto thread = start_thread("tcpx-pull", [crew = shared_from_this(), worker] { run(crew, worker); });
    if (!thread.is_ok()) return;
    worker->thread = std::move(*thread);
    workers.push_back(worker);
  }
}

// Waits for a slice to copy, until `poll_until` without sleeping. @return false: the thread must end
bool HostCopier::Crew::take(Worker& worker, TimePoint poll_until) {
  while (!has_copies.load(std::memory_order_relaxed) && Clock::steady().now() < poll_until) {
  }
  const MutexLock lock(mutex);
  while (!worker.replaced && !ending && copies.empty()) changed.wait(mutex);
  if (worker.replaced || copies.empty()) {
    worker.left = true;
    changed.notify_all();
    return false;
  }
  // The copy goes to the end of the queue, so the next thread takes a slice of another copy: a long copy holds up no short one.
  worker.copy = copies.front();
  copies.pop_front();
  copies.push_back(worker.copy);
  worker.since = std::chrono::steady_clock::now();
  return true;
}

// @param took false: the copy had no slice left to take
void HostCopier::Crew::end_slice(Worker& worker, bool took) {
  const MutexLock lock(mutex);
  const auto copy = std::exchange(worker.copy, nullptr);
  if (!took) {
    remove(copy);
  } else if (worker.replaced && copy->hanging_.fetch_sub(1, std::memory_order_relaxed) == 1 && !ending) {
    add(copy);  // it goes on
    changed.notify_all();
  }
}

void HostCopier::run(const std::shared_ptr<Crew>& crew, const std::shared_ptr<Worker>& worker) {
  std::vector<std::byte> apart;
  SpinTime spin(crew->wanted > kFewThreads ? SpinTime::kShort : Duration::zero());
  TimePoint poll_until{};
  while (crew->take(*worker, poll_until)) {
    const TimePoint began = Clock::steady().now();
    crew->end_slice(*worker, worker->copy->do_next(&apart));
    const TimePoint ended = Clock::steady().now();
    poll_until = ended + spin.after(began, ended);
  }
}

}  // namespace tcpx
