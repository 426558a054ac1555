#include "lanes/unmapper.h"

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

    void go() {
      for (MemoryBuffer& buffer : buffers) buffer = {};
      if (then) then();
    }
  };

  State(std::shared_ptr<MemoryOps> ops, int of, std::function<void()> tell)
      : memory(std::move(ops)), gpu(of), told(std::move(tell)) {}

  static void add(const std::shared_ptr<State>& state, Going next, const char* thread_name);
  void run();

  const std::shared_ptr<MemoryOps> memory;
  const int gpu;
  Mutex mutex;
  CondVar changed;
  std::function<void()> told TCPX_GUARDED_BY(mutex);
  std::deque<Going> going TCPX_GUARDED_BY(mutex);
  bool is_running TCPX_GUARDED_BY(mutex) = false;  // the thread runs, and takes what is added to `going`
};

Unmapper::Unmapper(std::shared_ptr<MemoryOps> memory, int gpu, std::function<void()> told)
    : state_(std::make_shared<State>(memory, gpu, told)), mapping_(std::make_shared<State>(memory, gpu, told)) {}

Unmapper::~Unmapper() {
  end();
}

void Unmapper::let_go(std::vector<MemoryBuffer> buffers, std::function<void()> then) {
  State::add(state_, {std::move(buffers), std::move(then)}, "tcpx-unmap");
}

void Unmapper::begin(std::function<void()> map) {
  State::add(mapping_, {{}, std::move(map)}, "tcpx-map");
}

std::shared_ptr<PendingBuffer> Unmapper::make(std::function<Result<MemoryBuffer>()> make) {
  auto pending = std::make_shared<PendingBuffer>();
  begin([pending, make = std::move(make)] {
    try {
      pending->buffer = make();
    } catch (const std::bad_alloc&) {  // it has failed
    }
    pending->done.store(true, std::memory_order_release);
    pending->done.notify_all();
  });
  return pending;
}

void Unmapper::State::add(const std::shared_ptr<State>& state, Going next, const char* thread_name) {
  {
    const MutexLock lock(state->mutex);
    state->going.push_back(std::move(next));
    if (state->is_running) return;
    auto thread = start_thread(thread_name, [state] { state->run(); });
    if (thread.is_ok()) {
      thread->detach();
      state->is_running = true;
      return;
    }
    next = std::move(state->going.back());
    state->going.pop_back();
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
  is_running = false;
  changed.notify_all();
  mutex.unlock();
}

void Unmapper::end() {
  const TimePoint until = Clock::steady().now() + kFarewell;
  for (State* const state : {mapping_.get(), state_.get()}) {
    const MutexLock lock(state->mutex);
    state->told = nullptr;
    while (state->is_running && state->changed.wait_until(state->mutex, until)) {
    }
    if (state->is_running)
      log(LogLevel::kWarning,
          "unmap GPU memory: the application's kernels have not ended; the memory is unmapped when they have");
  }
}

}  // namespace tcpx
