// A GPU for the cases of UnpackLauncher on a machine without one: replaces the CUDA runtime and the kernel, as far as launcher
// and cases call them, over host memory. A stream is a thread that works through a queue; so copies of several streams really
// run concurrently, and the sanitizers see their accesses.
//
// Linked with the launcher's own sources instead of the device layer, whose CUDA library would bring the same names.
#include "tests/support/fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "device/gpu_presence.h"
#include "device/unpack_launch.h"
#include "device/unpacker_factory.h"
#include "tests/support/open_counts.h"

namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Contexts that cuCtxPushCurrent has put there, and the device of cudaSetDevice. A context (CUcontext) is a pointer to one of `devices`;
// answers are numbers of CUresult.
using Context = char*;
char devices[2];
bool is_reset[2] = {};  // and not retained since
thread_local std::vector<Context> pushed;
thread_local std::optional<int> selected;
std::atomic<int> made_unasked{0};

/// For calls of the runtime that need a context: it makes one on the first device where there is none.
void need_context() {
  if (!pushed.empty() || selected) return;
  selected = 0;
  ++made_unasked;
}

// Functions of the driver, which are looked up by name.
int current_context(Context* context) {
  *context = pushed.empty() ? nullptr : pushed.back();
  if (pushed.empty() && selected) *context = &devices[*selected];
  return 0;
}
int push_context(Context context) {
  if (is_reset[context - devices]) return cudaErrorContextIsDestroyed;
  pushed.push_back(context);
  return 0;
}
int pop_context(Context* context) {
  *context = pushed.back();
  pushed.pop_back();
  return 0;
}
int retain_context(Context* context, int device) {
  is_reset[device] = false;
  *context = &devices[device];
  return 0;
}

struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;  // the first is running
  bool closed = false;
  bool captured = false;
  bool capture_lost = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return closed || !work.empty(); });
      if (work.empty()) return;
      const std::function<void()> first = work.front();
      lock.unlock();
      first();
      lock.lock();
      work.pop_front();
      changed.notify_all();
    }
  }
};

struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool passed = false;
  std::chrono::steady_clock::time_point at;
};

}  // namespace

struct CUstream_st {
  CUstream_st() : thread([queue = queue] { queue->run(); }) {}
  // Lets the work continue, as CUDA does.
  ~CUstream_st() {
    {
      const std::lock_guard lock(queue->mutex);
      queue->closed = true;
    }
    queue->changed.notify_all();
    thread.detach();
  }
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::thread thread;
};

struct CUevent_st {
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();  // of the last recording
  bool recorded = false;
  bool timed = false;
};

namespace {

Queue& queue_of(cudaStream_t stream) {
  static CUstream_st& legacy = *new CUstream_st;
  return stream != nullptr ? *stream->queue : *legacy.queue;
}

cudaError_t put(cudaStream_t stream, std::function<void()> work) {
  Queue& queue = queue_of(stream);
  {
    const std::lock_guard lock(queue.mutex);
    if (queue.captured) return answer(cudaErrorStreamCaptureUnsupported);
    queue.work.push_back(std::move(work));
  }
  queue.changed.notify_all();
  return cudaSuccess;
}

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
std::mutex captures_mutex;
std::vector<Queue*> captures;  // in the global mode

/// For calls that CUDA allows no thread in the global mode while a stream is captured in it.
cudaError_t disturb_captures() {
  need_context();
  if (capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(captures_mutex);
  for (Queue* queue : captures) queue->capture_lost = true;
  return captures.empty() ? cudaSuccess : answer(cudaErrorStreamCaptureUnsupported);
}

}  // namespace

extern "C" {

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
#else
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
#endif
  const std::string_view name = symbol;
  *function = name == "cuCtxGetCurrent"            ? reinterpret_cast<void*>(current_context)
              : name == "cuCtxPushCurrent"         ? reinterpret_cast<void*>(push_context)
              : name == "cuCtxPopCurrent"          ? reinterpret_cast<void*>(pop_context)
              : name == "cuDevicePrimaryCtxRetain" ? reinterpret_cast<void*>(retain_context)
                                                   : nullptr;
  *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  need_context();
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    default:
      return "another error";
  }
}
const char* cudaGetErrorString(cudaError_t) {
  return "said the fake";
}

cudaError_t cudaGetDevice(int* device) {
  Context context = nullptr;
  current_context(&context);
  *device = context == &devices[1] ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  selected = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceReset() {
  is_reset[selected.value_or(0)] = true;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t refused = disturb_captures(); refused != cudaSuccess) return refused;
  Queue& queue = queue_of(stream);
  std::unique_lock lock(queue.mutex);
  queue.changed.wait(lock, [&] { return queue.work.empty(); });
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t refused = disturb_captures(); refused != cudaSuccess) return refused;
  Queue& queue = queue_of(stream);
  const std::lock_guard lock(queue.mutex);
  return queue.work.empty() ? cudaSuccess : answer(cudaErrorNotReady);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(captures_mutex);
  queue_of(stream).captured = true;
  if (mode == cudaStreamCaptureModeGlobal) captures.push_back(&queue_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(captures_mutex);
  Queue& queue = queue_of(stream);
  queue.captured = false;
  std::erase(captures, &queue);
  *graph = nullptr;
  return std::exchange(queue.capture_lost, false) ? answer(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = queue_of(stream).captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->mark = std::make_shared<Mark>();
  event->recorded = true;
  return put(stream, [mark = event->mark] {
    const std::lock_guard lock(mark->mutex);
    mark->at = std::chrono::steady_clock::now();
    mark->passed = true;
    mark->changed.notify_all();
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t refused = disturb_captures(); refused != cudaSuccess) return refused;
  if (!event->recorded) return cudaSuccess;
  const std::lock_guard lock(event->mark->mutex);
  return event->mark->passed ? cudaSuccess : answer(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t refused = disturb_captures(); refused != cudaSuccess) return refused;
  if (!event->recorded) return cudaSuccess;
  std::unique_lock lock(event->mark->mutex);
  event->mark->changed.wait(lock, [&] { return event->mark->passed; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->timed || !end->timed || !begin->recorded || !end->recorded) return answer(cudaErrorInvalidResourceHandle);
  if (cudaEventQuery(begin) != cudaSuccess || cudaEventQuery(end) != cudaSuccess) return answer(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->mark->at - begin->mark->at).count();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user) {
  return put(stream, [=] { function(user); });
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return put(stream, [=] { std::memset(memory, value, bytes); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return put(stream, [=] { std::memcpy(to, from, bytes); });
}

}  // extern "C"

namespace tcpx {

int testing::contexts_made_unasked() {
  return made_unasked;
}

namespace {

class FakeGpuMemory final : public MemoryOps {
 public:
  bool has_gpu() const override { return true; }
  int device_count() const override { return 1; }
  Result<int> current_device() const override { return 0; }
  Status set_current_device(int device) override { return host_->set_current_device(device); }
  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override {
    auto buffer = testing::counted("allocations of mapped memory", host_->allocate_mapped(device, bytes));
    if (!buffer.is_ok()) return buffer;
    const MutexLock lock(mutex_);
    mapped_.emplace_back(buffer->host(), bytes);  // never removed: freed memory is not queried
    return buffer;
  }
  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    return testing::counted("allocations of GPU memory", host_->allocate_device(device, bytes));
  }
  bool host_readable(const void*) const override { return true; }
  bool is_device_memory(const void* address) const override {
    const MutexLock lock(mutex_);
    return std::none_of(mapped_.begin(), mapped_.end(), [&](const std::span<std::byte>& range) {
      return address >= range.data() && address < range.data() + range.size();
    });
  }
  std::optional<uint64_t> extent(const void* address) const override { return host_->extent(address); }
  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override { return host_->make_copy_lane(device); }

 private:
  const std::unique_ptr<MemoryOps> host_ = make_host_memory_ops();
  mutable Mutex mutex_;
  std::vector<std::span<std::byte>> mapped_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace

const Result<int>& gpu_count() {
  static const Result<int> one = 1;
  return one;
}

std::unique_ptr<MemoryOps> make_machine_memory_ops() {
  return std::make_unique<FakeGpuMemory>();
}

Result<std::unique_ptr<Unpacker>> make_unpacker(UnpackKind, int device, MemoryOps& memory) {
  return make_kernel_unpacker(device, memory);
}

cudaError_t load_unpack_kernels() {
  return cudaSuccess;
}

cudaError_t launch_unpack(const LaunchPolicy& policy, const UnpackLaunch& launch, cudaStream_t stream) {
  if (policy.blocks == 0) return answer(cudaErrorInvalidValue);
  return put(stream, [launch] {
    for (uint32_t i = 0; i < launch.fragment_count; ++i) {
      const KernelFragment fragment = launch.fragments[i];
      std::memcpy(fragment.destination, launch.pool + fragment.src_off, fragment.len);
    }
  });
}

}  // namespace tcpx
