#include "net/soft/copy_thread.h"

#include <new>
#include <utility>

#include "base/own_thread.h"

namespace tcpx::soft {
namespace {

// Copies handed to the GPU at a time: enough to keep its copy engine busy, few enough that a copy started on another lane does
// not wait behind many.
constexpr size_t kMostInFlight = 8;
// After copying for so long, without a pause, it dozes instead of polling: it is in a stream, in which each socket has a copied slot to send
// while the next one waits. Longer than a message of 64 MiB takes, which would end later.
constexpr Duration kStream = std::chrono::milliseconds(5), kPause = std::chrono::microseconds(100);
constexpr Duration kDoze = std::chrono::microseconds(10);

/// What `call` returns; without memory to say it, it has failed.
template <class Call>
auto answer_of(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Status(Code::kExhausted, "copy", "out of memory");
  }
}

}  // namespace

Result<bool> CopyThread::Copy::is_done() const {
  if (queued_.load(std::memory_order_acquire)) return false;
  if (!result_.is_ok()) return result_;
  return true;
}

void CopyThread::Copy::wait() const {
  while (queued_.load(std::memory_order_acquire)) queued_.wait(true, std::memory_order_acquire);
}

Result<std::unique_ptr<CopyThread>> CopyThread::start(MemoryOps& memory, int device, Duration spin) {
  std::unique_ptr<CopyThread> copier(new CopyThread(memory, device, spin));
  TCPX_ASSIGN_OR_RETURN(copier->thread_, start_thread("tcpx-copy", [raw = copier.get()] { raw->run(); }));
  return copier;
}

CopyThread::~CopyThread() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stop_.store(true);
    work_came_.notify_all();
  }
  thread_.join();
}

void CopyThread::queue(Copy& copy, std::byte* target, const std::byte* source, uint32_t bytes) {
  copy.target_ = target;
  copy.source_ = source;
  copy.bytes_ = bytes;
  copy.result_ = Status::ok();
  copy.queued_.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  queued_.push_back(copy);
  any_queued_.store(true, std::memory_order_release);
  if (std::exchange(asleep_, false)) work_came_.notify_all();
}

void CopyThread::take(Line& copies, bool may_sleep) {
  if (!may_sleep && !any_queued_.load(std::memory_order_acquire)) return;
  MutexLock lock(mutex_);
  while (may_sleep && queued_.empty() && !stop_.load()) {
    asleep_ = true;
    work_came_.wait(mutex_);
  }
  asleep_ = false;
  while (!queued_.empty()) copies.push_back(queued_.pop_front());
  any_queued_.store(false, std::memory_order_relaxed);
}

void CopyThread::end(Copy& copy, Status result) {
  copy.result_ = std::move(result);
  copy.queued_.store(false, std::memory_order_release);
  copy.queued_.notify_all();
}

void CopyThread::run() {
  const Status selected = answer_of([&] { return memory_.set_current_device(device_); });
  Line waiting, in_flight;
  size_t flying = 0;
  TimePoint sleep_at{}, began_at = Clock::steady().now(), worked_at = began_at;
  end_sleeps_in_time();
  while (!stop_.load()) {
    const bool idle = waiting.empty() && in_flight.empty();
    const TimePoint now = Clock::steady().now();
    take(waiting, idle && now >= sleep_at);
    while (!waiting.empty() && flying < kMostInFlight) {
      Copy& copy = waiting.pop_front();
      Status started =
          selected.is_ok() ? answer_of([&] { return copy.copy_->start(copy.target_, copy.source_, copy.bytes_); }) : selected;
      if (started.is_ok()) {
        in_flight.push_back(copy);
        ++flying;
      } else {
        end(copy, std::move(started));
      }
    }
    // They end in order, or nearly: a later one that ends early is seen late.
    while (!in_flight.empty()) {
      Copy& copy = *in_flight.first;
      Result<bool> done = answer_of([&] { return copy.copy_->is_done(); });
      if (done.is_ok() && !*done) break;
      if (!done.is_ok()) copy.copy_->wait();
      in_flight.pop_front();
      --flying;
      end(copy, done.status());
    }
    if (!idle) {
      if (now - worked_at > kPause) began_at = now;
      worked_at = now;
      sleep_at = now + spin_.after(now, now);
    }
    const bool waits = idle ? now < sleep_at : flying > 0;
    if (waits && worked_at - began_at > kStream && now - worked_at <= kPause) std::this_thread::sleep_for(kDoze);
  }
}

}  // namespace tcpx::soft
