#include "lanes/unmapper.h"

#include <algorithm>
#include <deque>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/own_thread.h"
#include "base/text.h"

namespace tcpx {

struct Unmapper::State {
  struct Going {
    std::vector<MemoryBuffer> buffers;
    std::function<void()> then;
    const PendingBuffer* makes = nullptr;  // what `then` makes
    bool hurried = false;

    void go() {
      for (MemoryBuffer& buffer : buffers) buffer = {};
      if (then) then();
    }
  };

  State(size_t threads, std::shared_ptr<MemoryOps> ops, int of, std::function<void()> tell)
      : most(threads), memory(std::move(ops)), gpu(of), told(std::move(tell)) {}

  static void add(const std::shared_ptr<State>& state, Going next, const char* thread_name);
  void run();
  void hurry_marked() TCPX_REQUIRES(mutex) {
    std::stable_partition(going.begin(), going.end(), [](const Going& one) { return one.hurried; });
  }

  const size_t most;  // threads
  const std::shared_ptr<MemoryOps> memory;
  const int gpu;
  Mutex mutex;
  CondVar changed;
  std::function<void()> told TCPX_GUARDED_BY(mutex);
  std::deque<Going> going TCPX_GUARDED_BY(mutex);
  size_t running TCPX_GUARDED_BY(mutex) = 0;  // threads, which take what is added to `going`
};

Unmapper::Unmapper(std::shared_ptr<MemoryOps> memory, int gpu, std::function<void()> told)
    : state_(std::make_shared<State>(1, memory, gpu, told)),
      mapping_(std::make_shared<State>(kMappingThreads, memory, gpu, told)) {}

Unmapper::~Unmapper() {
  end();
}

void Unmapper::let_go(std::vector<MemoryBuffer> buffers, std::function<void()> then) {
  State::add(state_, {.buffers = std::move(buffers), .then = std::move(then)}, "tcpx-unmap");
}

void Unmapper::begin(std::function<void()> map) {
  State::add(mapping_, {.buffers = {}, .then = std::move(map), .hurried = true}, "tcpx-map");
}

std::shared_ptr<PendingBuffer> Unmapper::make(std::function<Result<MemoryBuffer>()> make) {
  auto pending = std::make_shared<PendingBuffer>();
  auto run = [pending, make = std::move(make)] {
    try {
      pending->buffer = make();
    } catch (const std::bad_alloc&) {  // it has failed
    }
    pending->done.store(true, std::memory_order_release);
    pending->done.notify_all();
  };
  State::add(mapping_, {.buffers = {}, .then = std::move(run), .makes = pending.get()}, "tcpx-map");
  return pending;
}

void Unmapper::hurry(std::vector<const PendingBuffer*> wanted) {
  std::erase_if(wanted, [](const PendingBuffer* one) { return one == nullptr || one->is_done(); });
  if (wanted.empty()) return;
  std::sort(wanted.begin(), wanted.end());
  const MutexLock lock(mapping_->mutex);
  for (State::Going& one : mapping_->going)
    one.hurried |= one.makes != nullptr && std::binary_search(wanted.begin(), wanted.end(), one.makes);
  mapping_->hurry_marked();
}

bool Unmapper::cancel(const PendingBuffer& unwanted) {
  const MutexLock lock(mapping_->mutex);
  return std::erase_if(mapping_->going, [&](const State::Going& one) { return one.makes == &unwanted; }) > 0;
}

void Unmapper::State::add(const std::shared_ptr<State>& state, Going next, const char* thread_name) {
  {
    const MutexLock lock(state->mutex);
    const auto behind =
        std::find_if(state->going.begin(), state->going.end(), [&](const Going& one) { return next.hurried && !one.hurried; });
    const auto place = state->going.insert(behind, std::move(next));
    if (state->running == state->most) return;
    auto thread = start_thread(thread_name, [state] { state->run(); });
    if (thread.is_ok()) {
      thread->detach();
      ++state->running;
      return;
    }
    if (state->running > 0) return;
    next = std::move(*place);
    state->going.erase(place);
  }
  next.go();
}

void Unmapper::State::run() {
  (void)memory->set_current_device(gpu);
  mutex.lock();
  while (!going.empty()) {
    Going next = std::move(going.front());
    going.pop_front();
    mutex.unlock();
    next.go();
    mutex.lock();
    if (told) told();
  }
  --running;
  changed.notify_all();
  mutex.unlock();
}

void Unmapper::end() {
  const TimePoint until = Clock::steady().now() + kFarewell;
  for (State* const state : {mapping_.get(), state_.get()}) {
    const MutexLock lock(state->mutex);
    state->told = nullptr;
    while (state->running > 0 && state->changed.wait_until(state->mutex, until)) {
    }
    if (state->running > 0)
      log(LogLevel::kWarning,
          "unmap GPU memory: the application's kernels have not ended; the memory is unmapped when they have");
  }
}

}  // namespace tcpx
