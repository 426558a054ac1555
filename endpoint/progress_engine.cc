#include "endpoint/progress_engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/cpu_affinity.h"
#include "base/own_thread.h"
#include "base/pci_device.h"
#include "base/usable_cores.h"

namespace tcpx {
namespace {

constexpr int kSubmissionsPerTurn = 256;
// How often links are looked at while no operation is outstanding.
constexpr std::chrono::milliseconds kLookWhenIdle{250};
// How long an idle thread polls before it sleeps: longer than a round trip, so that answers find it awake.
constexpr Duration kSpin = std::chrono::microseconds(200);
// How long it polls where cores are few, yielding in between. Another thread that gets the core for kAwhile may be the one that it waits
// for: it sleeps then, and is woken on a core that is free.
constexpr Duration kSpinOfFew = std::chrono::microseconds(100);
constexpr Duration kAwhile = std::chrono::microseconds(10);
// An application that has looked so often, with no longer pauses, takes the turns of the progress thread. That one looks after it, at first
// soon and then so often, and takes over again when the application has stopped.
constexpr uint32_t kLooks = 16;
constexpr Duration kLookPause = std::chrono::microseconds(5), kLookPauseOfFew = std::chrono::microseconds(50);
constexpr Duration kFirstNap = std::chrono::microseconds(50), kNap = std::chrono::microseconds(500);
// On many cores it stays awake as long as looks find something, and sees to it so often that they go on: if it read what a look writes much
// more often, both threads would wait for that cache line. After it has stood back for nothing, or while an operation needs polling, as those
// of GPU memory do, it stands back no more for the second time, because the next operations will be alike.
constexpr Duration kWatch = std::chrono::microseconds(2), kWatchPause = std::chrono::milliseconds(5);
// Turns of a caller in a row: what a turn finds to do often leaves something to the next one.
constexpr int kTurnsOfALook = 4;

// With more than this to move over the network it dozes instead of polling: chunks that are done wait for it without loss, because the
// windows are full. A message of 64 MiB alone is not as much, and would end 5 % later. On 16 cores streams cost a sixth less so: two
// threads polled, one of each end, where eight moved the bytes.
constexpr uint64_t kStreamBytes = uint64_t{64} << 20;
constexpr Duration kDoze = std::chrono::microseconds(20);

// Interruptions of a thread that yields: SpinTime::yielded tells of those that matter.
uint64_t count_none() {
  return 0;
}

// The engine in whose turn this thread moves bytes of the plugin.
thread_local const ProgressEngine* moving = nullptr;

}  // namespace

ProgressEngine::ProgressEngine(MemoryOps& memory, const EndpointConfig& config, OperationTable& operations,
                               std::function<void(ConnId)> forget)
    : memory_(memory),
      config_(config),
      operations_(operations),
      cores_(config.num_cpus != 0 ? config.num_cpus : usable_cores()),
      links_(config, operations, events_, std::move(forget)) {
  operations_.submit_last_parts_to(submitted_);
}

Status ProgressEngine::start(std::unique_ptr<IoLoop> io) {
  TCPX_RETURN_IF_ERROR(events_.open());
  if (!config_.progress_thread) return Status::ok();
  io_ = std::move(io);
  if (watches_io()) events_.watch(io_->fd(), ServedLinks::kPluginTag, true);
  TCPX_ASSIGN_OR_RETURN(auto thread, start_thread("tcpx-progress", [this] { run(); }));
  thread_ = std::move(thread);
  return Status::ok();
}

void ProgressEngine::stop() {
  stop_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  const Lock lock(*this);
  io_.reset();  // first: other endpoints may wait for what comes to these sockets
  links_.clear();
  drain();
}

void ProgressEngine::run() {
  if (const auto path = memory_.pci_path(config_.gpu_idx)) run_near(read_numa_node(*path));
  if (memory_.has_gpu()) (void)memory_.set_current_device(config_.gpu_idx);
  SpinTime spin = spins() ? SpinTime(kSpin) : SpinTime(kSpinOfFew, count_none);
  Backoff backoff(cores_);
  TimePoint busy_until = Clock::steady().now(), watch_at = busy_until;
  bool napped = false;
  attend();
  end_sleeps_in_time();
  while (!stop_) {
    bool advanced = false, polls = false, much = false, streams = false, waits = false, alone = false;
    uint64_t changes = 0;
    wait_for_turn();
    {
      const FairLock lock(mutex_);
      changes = changes_.load();
      links_.end_sleep();
      if (std::exchange(napped, false)) links_.expect_readable();
      advanced = try_turn();
      polls = !advanced && links_.needs_polling();
      much = polls && links_.chunks_in_flight() >= Backoff::kMuchUnderWay;
      waits = !advanced && !polls && links_.needs_turns();
      streams = !advanced && spins() && links_.network_bytes() > kStreamBytes;
      alone = links_.empty();
    }
    const TimePoint now = Clock::steady().now();
    // On few cores it competes with the caller's thread, so it leaves the turns to that also while there is much to move.
    const bool may_nap = !polls && (!spins() || (!advanced && now >= busy_until));
    if (polls) watch_at = now + kWatchPause;
    const bool may_watch = spins() && now >= watch_at;
    if (may_watch) watch_at = now + kWatch;
    if (streams && now < busy_until) {
      doze();
      napped = true;
    } else if (may_nap && is_looked_for(now)) {
      nap(changes);
      napped = true;
    } else if (may_watch && is_looked_for(now)) {
      const TimePoint advanced_at = watch(now, spin);
      if (advanced_at == now) watch_at = now + kWatchPause;
      busy_until = advanced_at + spin.after(advanced_at, advanced_at);
    } else if (advanced) {
      backoff.reset();
      busy_until = now + spin.after(now, now);
    } else if (polls) {
      switch (backoff.next(much, spin.is_crowded(now))) {
        case Backoff::Step::kSpin:
          break;
        case Backoff::Step::kYield:
          std::this_thread::yield();
          break;
        case Backoff::Step::kSleep:
          (void)sleep(backoff.pause(much), changes);
      }
    } else if (now >= busy_until) {
      std::optional<Duration> longest;  // for ever, if there is no link to look at
      if (!alone) longest = waits || operations_.outstanding() > 0 ? ServedLinks::kLookEvery : kLookWhenIdle;
      if (!sleep(longest, changes) && !spins()) {
        std::this_thread::yield();
        continue;
      }
      const TimePoint woken = Clock::steady().now();
      busy_until = woken + spin.after(woken, woken);
    } else if (!spins()) {
      std::this_thread::yield();
      const TimePoint back = Clock::steady().now();
      spin.yielded(now, back);
      if (back - now >= kAwhile) busy_until = now;
    }
  }
  leave();
}

// Sleeps for a moment, whatever I/O threads tell meanwhile. Callers may make turns.
void ProgressEngine::doze() {
  dozes_ = true;
  (void)rest(WakeableEpoll::Until::kReadable, kDoze, std::nullopt);
  dozes_ = false;
}

// Sleeps until `events_` shows something, or for `longest`.
// @param changes value of `changes_` before the last turn: any since then may need another one
// @return false: it needs another turn at once
bool ProgressEngine::sleep(std::optional<Duration> longest, uint64_t changes) {
  {
    const FairLock lock(mutex_);
    if (links_.prepare_sleep()) return false;
  }
  return rest(WakeableEpoll::Until::kReadable, longest, changes);
}

bool ProgressEngine::is_looked_for(TimePoint now) const {
  return looks_in_a_row_.load(std::memory_order_relaxed) >= kLooks &&
         (looks_.load(std::memory_order_relaxed) ||
          now.time_since_epoch() - looked_at_.load(std::memory_order_relaxed) <= look_pause());
}

Duration ProgressEngine::look_pause() const {
  return spins() ? kLookPause : kLookPauseOfFew;
}

// A caller that makes a turn in place of the progress thread is soon done, and to be woken after it takes longer.
void ProgressEngine::wait_for_turn() {
  if (!spins()) return;
  for (const Deadline until = Deadline::after(kSpin); mutex_.is_held() && !until.expired();) pause_briefly();
}

// Leaves the turns to callers as long as they look and find something to do, and stays awake. What they begin and notify makes no whole
// turn. @return when they last did
TimePoint ProgressEngine::watch(TimePoint now, SpinTime& spin) {
  rests_ = true;
  leave();
  TimePoint advanced_at = now;
  uint32_t looks = looks_in_a_row_, advances = advances_;
  // To begin an operation is no pause, however long it takes: it is what follows a look that has found something.
  const auto goes_on = [&](TimePoint looked_at) { return now - looked_at <= kLookPause || mutex_.is_held(); };
  for (TimePoint looked_at = now; goes_on(looked_at) && now - advanced_at < kSpin && looks >= kLooks;) {
    for (const TimePoint next = now + kWatch; now < next; now = Clock::steady().now()) pause_briefly();
    if (stop_ || spin.is_crowded(now)) break;
    if (std::exchange(looks, looks_in_a_row_) != looks || looks_) looked_at = now;
    if (std::exchange(advances, advances_) != advances) advanced_at = now;
  }
  attend();
  rests_ = false;
  return advanced_at;
}

// Rests while callers make the turns. Sockets that can be read do not end it, nor what has changed, as long as callers go on looking: what
// they begin and notify makes no whole turn.
void ProgressEngine::nap(uint64_t changes) {
  naps_ = true;
  Duration pause = kFirstNap;
  for (bool looks = true; looks && !stop_; changes = changes_.load(), pause = std::min(2 * pause, kNap)) {
    const uint32_t looked = looks_in_a_row_.load(std::memory_order_relaxed);
    (void)rest(WakeableEpoll::Until::kWoken, pause, changes);
    looks = is_looked_for(Clock::steady().now()) &&
            (looks_.load(std::memory_order_relaxed) || looks_in_a_row_.load(std::memory_order_relaxed) != looked);
  }
  naps_ = false;
}

// @param changes as `sleep`; nullopt: they can wait
// @return false: it has not, as there is something to do
bool ProgressEngine::rest(WakeableEpoll::Until until, std::optional<Duration> longest, std::optional<uint64_t> changes) {
  rests_ = longest && *longest <= ServedLinks::kLookEvery;
  leave();
  const bool rested = events_.sleep(until, longest, [&] {
    return submitted_.has_new() || notifications_.has_new() || stop_ || (changes && changes_.load() != *changes);
  });
  attend();
  rests_ = false;
  return rested;
}

// @param id of the only operation; nullopt: the caller wakes the progress thread
// @return false: the progress thread must begin it, or go on with it
bool ProgressEngine::begin_here(ConnId conn, std::optional<OperationId> id) {
  if (!mutex_.try_lock()) return false;
  const CurrentGpu gpu(memory_, config_.gpu_idx);
  attend();
  (void)take_submissions();
  links_.progress(conn);
  (void)move_bytes(false);
  leave();
  const bool polls = told_ || links_.needs_polling();
  const bool is_over = !polls && id && !operations_.is_pending(*id) && !links_.needs_turns();
  if (!is_over) changes_.fetch_add(1);  // the progress thread may have made its last turn, and not sleep yet
  mutex_.unlock();
  // Long submissions are no pause between looks.
  looked_at_.store(Clock::steady().now().time_since_epoch(), std::memory_order_relaxed);
  return is_over || (!polls && rests());
}

bool ProgressEngine::look() {
  if (!config_.progress_thread) return false;
  // On many cores the progress thread works beside a caller that has begun several operations, and of several callers that look one makes
  // turns.
  if (spins() && ((!rests() && operations_.outstanding_but_receives() > 1) || looks_.load(std::memory_order_relaxed))) {
    pause_briefly();
    return false;
  }
  const Duration since = Clock::steady().now().time_since_epoch() - looked_at_.load(std::memory_order_relaxed);
  looks_in_a_row_.store(since <= look_pause() ? looks_in_a_row_.load(std::memory_order_relaxed) + 1 : 0,
                        std::memory_order_relaxed);
  looks_.store(true, std::memory_order_relaxed);
  bool advanced = false;
  if (rests() && mutex_.try_lock()) {
    const CurrentGpu gpu(memory_, config_.gpu_idx);
    attend();
    advanced = try_turn();
    for (int i = 1; i < kTurnsOfALook && moved_; ++i) advanced |= try_turn();
    leave();
    const bool polls = (spins() || !naps()) && links_.needs_polling(), wakes = !naps() && (told_ || polls);
    if (wakes) changes_.fetch_add(1);
    mutex_.unlock();
    if (polls && spins()) looks_in_a_row_.store(0, std::memory_order_relaxed);  // ends `watch`
    if (wakes) events_.wake();
  }
  TimePoint now = Clock::steady().now();
  if (!advanced && !spins()) {
    std::this_thread::yield();
    const TimePoint begin = std::exchange(now, Clock::steady().now());
    if (now - begin >= SpinTime::kSlice)
      crowded_until_.store((now + SpinTime::kShortestPause).time_since_epoch(), std::memory_order_relaxed);
  }
  if (advanced) advances_.store(advances_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  looked_at_.store(now.time_since_epoch(), std::memory_order_relaxed);
  looks_.store(false, std::memory_order_relaxed);
  return advanced;
}

bool ProgressEngine::turn() {
  bool any = (!submitted_.empty() || !notifications_.empty()) && take_submissions();
  const TimePoint now = Clock::steady().now();
  moved_ = false;
  const bool watches = watches_io(), readable = links_.look_at_sockets(now, watches);
  // Another endpoint's thread that watches the sockets may be slower to see what is for this one.
  any |= move_bytes(readable || (!watches && links_.chunks_in_flight() > 0));
  told_ = false;
  any |= links_.turn(now);
  return move_bytes(false) || any;
}

// @param readable the plugin's sockets are
bool ProgressEngine::move_bytes(bool readable) {
  if (io_ == nullptr) return false;
  moving = this;
  const bool moved = io_->turn(readable);
  moving = nullptr;
  moved_ |= moved;
  return moved;
}

void ProgressEngine::tell() {
  if (moving == this) {
    told_ = true;
    return;
  }
  changes_.fetch_add(1);
  if (!naps() && !dozes_) events_.wake();
}

void ProgressEngine::attend() {
  if (io_ != nullptr) io_->attend();
}

void ProgressEngine::leave() {
  if (io_ != nullptr) io_->leave();
}

// Work that belongs to no link allocates little, and all of it can be redone in a later turn.
bool ProgressEngine::try_turn() {
  try {
    return turn();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool ProgressEngine::take_submissions() {
  bool any = false;
  for (int i = 0; i < kSubmissionsPerTurn; ++i) {
    Operation* const next = submitted_.pop();
    if (next == nullptr) break;
    any = true;
    links_.submit(*next);
  }
  for (int i = 0; i < kSubmissionsPerTurn; ++i) {
    std::unique_ptr<Notification> next(notifications_.pop());
    if (next == nullptr) break;
    any = true;
    links_.notify(std::move(next));
  }
  return any;
}

void ProgressEngine::drain() {
  while (take_submissions()) {
  }
}

bool ProgressEngine::progress() {
  const Lock lock(*this);
  return turn();
}

void ProgressEngine::help(Backoff& backoff) {
  if (config_.progress_thread) return;
  if (progress()) {
    backoff.reset();
  } else {
    backoff.wait();
  }
}

void ProgressEngine::notify(std::unique_ptr<Notification> notification) {
  const ConnId conn = notification->conn;
  notifications_.push(*notification.release());
  (void)begin_here(conn, std::nullopt);
  wake();
}

bool ProgressEngine::close_links() {
  const Lock lock(*this);
  drain();
  links_.close_all();
  (void)try_turn();
  return links_.empty();
}

}  // namespace tcpx
