#include "lanes/unmapper.h"

#include <deque>
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

  void run();

  std::shared_ptr<MemoryOps> memory;
  int gpu = 0;
  Mutex mutex;
  CondVar changed;
  std::function<void()> told TCPX_GUARDED_BY(mutex);
  std::deque<Going> going TCPX_GUARDED_BY(mutex);
  bool is_running TCPX_GUARDED_BY(mutex) = false;  // the thread runs, and takes what is added to `going`
};

Unmapper::Unmapper(std::shared_ptr<MemoryOps> memory, int gpu, std::function<void()> told) : state_(std::make_shared<State>()) {
  state_->memory = std::move(memory);
  state_->gpu = gpu;
  const MutexLock lock(state_->mutex);
  state_->told = std::move(told);
}

Unmapper::~Unmapper() {
  end();
}

void Unmapper::let_go(std::vector<MemoryBuffer> buffers, std::function<void()> then) {
  State::Going here;
  {
    const MutexLock lock(state_->mutex);
    state_->going.push_back({std::move(buffers), std::move(then)});
    if (state_->is_running) return;
    auto thread = start_thread("tcpx-unmap", [state = state_] { state->run(); });
    if (thread.is_ok()) {
      thread->detach();
      state_->is_running = true;
      return;
    }
    here = std::move(state_->going.back());
    state_->going.pop_back();
  }
  here.go();
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
  const MutexLock lock(state_->mutex);
  state_->told = nullptr;
  const TimePoint until = Clock::steady().now() + kFarewell;
  while (state_->is_running && state_->changed.wait_until(state_->mutex, until)) {
  }
  if (state_->is_running)
    log(LogLevel::kWarning, "unmap GPU memory: the application's kernels have not ended; the memory is unmapped when they have");
}

}  // namespace tcpx
