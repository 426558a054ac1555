#include "net/soft/copy_thread.h"

#include <utility>

#include "base/own_thread.h"

namespace tcpx::soft {
namespace {

// Copies handed to the GPU at a time: enough to keep its copy engine busy, few enough that a copy started on another lane does
// not wait behind many.
constexpr size_t kMostInFlight = 8;

}  // namespace

Result<bool> CopyThread::Job::is_done() const {
  if (queued_.load(std::memory_order_acquire)) return false;
  if (!result_.is_ok()) return result_;
  return true;
}

void CopyThread::Job::wait() const {
  while (queued_.load(std::memory_order_acquire)) queued_.wait(true, std::memory_order_acquire);
}

Result<std::unique_ptr<CopyThread>> CopyThread::start(MemoryOps& memory, int device, Duration spin) {
  std::unique_ptr<CopyThread> copier(new CopyThread(memory, device, spin));
  auto running = start_thread("tcpx-copy", [raw = copier.get()] { raw->run(); });
  if (!running.is_ok()) return running.status();
  copier->thread_ = std::move(*running);
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

void CopyThread::queue(Job& job, std::byte* target, const std::byte* source, uint32_t bytes) {
  job.target_ = target;
  job.source_ = source;
  job.bytes_ = bytes;
  job.result_ = Status::ok();
  job.queued_.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  queued_.push_back(&job);
  any_queued_.store(true, std::memory_order_release);
  if (std::exchange(asleep_, false)) work_came_.notify_all();
}

void CopyThread::take(std::deque<Job*>& jobs, bool may_sleep) {
  if (!may_sleep && !any_queued_.load(std::memory_order_acquire)) return;
  MutexLock lock(mutex_);
  while (may_sleep && queued_.empty() && !stop_.load()) {
    asleep_ = true;
    work_came_.wait(mutex_);
  }
  asleep_ = false;
  jobs.insert(jobs.end(), queued_.begin(), queued_.end());
  queued_.clear();
  any_queued_.store(false, std::memory_order_relaxed);
}

void CopyThread::end(Job& job, Status result) {
  job.result_ = std::move(result);
  job.queued_.store(false, std::memory_order_release);
  job.queued_.notify_all();
}

void CopyThread::run() {
  const Status selected = memory_.set_current_device(device_);
  std::deque<Job*> waiting, in_flight;
  TimePoint sleep_at = Clock::steady().now() + spin_;
  while (!stop_.load()) {
    const bool idle = waiting.empty() && in_flight.empty();
    take(waiting, idle && Clock::steady().now() >= sleep_at);
    for (; !waiting.empty() && in_flight.size() < kMostInFlight; waiting.pop_front()) {
      Job& job = *waiting.front();
      Status started = selected.is_ok() ? job.copy_->start(job.target_, job.source_, job.bytes_) : selected;
      if (started.is_ok()) {
        in_flight.push_back(&job);
      } else {
        end(job, std::move(started));
      }
    }
    // They end in order, or nearly: a later one that ends early is seen late.
    while (!in_flight.empty()) {
      Job& job = *in_flight.front();
      Result<bool> done = job.copy_->is_done();
      if (done.is_ok() && !*done) break;
      if (!done.is_ok()) job.copy_->wait();
      in_flight.pop_front();
      end(job, done.status());
    }
    if (!idle) sleep_at = Clock::steady().now() + spin_;
  }
}

}  // namespace tcpx::soft
