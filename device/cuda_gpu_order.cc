// A mark is an event of a pool. A signal is a stream of ours with a kernel of one thread, which waits for the host, followed by
// the signal's event.
//
// A kernel and not cuStreamWaitValue32, because all streams of a process share a few hardware queues
// (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default), and a wait in a stream blocks its queue. On an H200 with eight waits pending no
// stream of the process ran anything, whatever its priority; our own copies would wait for signals that wait for them. With up
// to 64 waiting kernels every stream ran, and they could be released in any order. The limit is then the number of kernels that
// run at once: 128.
#include "device/cuda_memory_ops.h"

#include <array>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "device/cuda_handles.h"
#include "device/signal_kernel.h"
#include "device/stream_gpu.h"

namespace tcpx {
namespace {

constexpr size_t kFlagStride = 64;  // a cache line each

Status captured(const char* operation) {
  return Status(Code::kUnsupported, operation, "it is being captured into a graph");
}

/// Events of one device, created on demand and kept. Any thread.
class EventPool {
 public:
  Result<Event> take() {
    const MutexLock lock(mutex_);
    if (lent_ == kMostMarks) return Status(Code::kExhausted, "mark GPU work", concat(lent_, " marks are held"));
    if (free_.empty()) {
      Result<Event> made = Event::create();
      if (made.is_ok()) ++lent_;
      return made;
    }
    Event event = std::move(free_.back());
    free_.pop_back();
    ++lent_;
    return event;
  }
  void give_back(Event event) {
    const MutexLock lock(mutex_);
    --lent_;
    free_.push_back(std::move(event));
  }

 private:
  Mutex mutex_;
  size_t lent_ TCPX_GUARDED_BY(mutex_) = 0;
  std::vector<Event> free_ TCPX_GUARDED_BY(mutex_);
};

class CudaMark : public GpuMark {
 public:
  explicit CudaMark(EventView event) : event_(event) {}
  Result<bool> reached() override {
    if (reached_) return true;
    Result<bool> done = event_.is_done();
    if (done.is_ok()) reached_ = *done;
    return done;
  }

 private:
  const EventView event_;
  bool reached_ = false;
};

class PooledMark final : public CudaMark {
 public:
  PooledMark(EventPool& pool, Event event) : CudaMark(event.view()), pool_(pool), event_(std::move(event)) {}
  ~PooledMark() override { pool_.give_back(std::move(event_)); }
  Status record(StreamView stream) const { return event_.view().record(stream); }

 private:
  EventPool& pool_;
  Event event_;
};

/// Resources of a signal. Reused once the GPU has passed its event.
struct SignalSlot {
  Stream stream;
  Event event;
  uint32_t* flag;      // mapped
  uint32_t value = 0;  // flag value that the newest signal's kernel waits for
  bool held = false;   // by a signal
};

class SignalSlots {
 public:
  SignalSlots(int device, MemoryOps& memory) : device_(device), memory_(memory) {}
  SignalSlots(const SignalSlots&) = delete;
  SignalSlots& operator=(const SignalSlots&) = delete;
  ~SignalSlots() {
    const CaptureGuard captures;
    // All signals have fired: their kernels end by themselves, and then nothing reads the flags.
    for (const SignalSlot& slot : slots_) {
      [[maybe_unused]] const cudaError_t ended = cudaStreamSynchronize(slot.stream.view().get());
    }
    [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
  }

  /// A slot whose event now waits for the flag to reach `value`. The device is current.
  Result<SignalSlot*> take() {
    const MutexLock lock(mutex_);
    Result<SignalSlot*> slot = find();
    if (!slot.is_ok()) return slot;
    SignalSlot& taken = **slot;
    const uint32_t value = taken.value + 1;
    TCPX_RETURN_IF_ERROR(cuda_status(launch_await_flag(taken.flag, value, taken.stream.view().get()), "launch waiting kernel"));
    taken.value = value;
    if (Status recorded = taken.event.view().record(taken.stream.view()); !recorded.is_ok()) {
      fire(taken);
      return recorded;
    }
    taken.held = true;
    return &taken;
  }
  void give_back(SignalSlot& slot) {
    const MutexLock lock(mutex_);
    fire(slot);
    slot.held = false;
  }
  static void fire(SignalSlot& slot) {
    // Pairs with the acquire of await_flag.
    std::atomic_ref<uint32_t>(*slot.flag).store(slot.value, std::memory_order_release);
  }

 private:
  Result<SignalSlot*> find() TCPX_REQUIRES(mutex_) {
    if (slots_.empty()) TCPX_RETURN_IF_ERROR(make_slots());
    for (SignalSlot& slot : slots_) {
      if (slot.held) continue;
      TCPX_ASSIGN_OR_RETURN(const bool passed, slot.event.view().is_done());
      if (passed) return &slot;
    }
    return Status(Code::kExhausted, "make a CUDA event", concat("all ", kMostSignals, " signals are held or still pending"));
  }

  /// All at once, on first use: while a signal is pending, creating a stream may wait until it fires.
  Status make_slots() TCPX_REQUIRES(mutex_) {
    TCPX_RETURN_IF_ERROR(cuda_status(load_signal_kernel(), "load waiting kernel"));
    TCPX_ASSIGN_OR_RETURN(MemoryBuffer flags, memory_.allocate_mapped(device_, kMostSignals * kFlagStride));
    std::vector<SignalSlot> slots;
    while (slots.size() < kMostSignals) {
      TCPX_ASSIGN_OR_RETURN(Stream stream, Stream::create());
      TCPX_ASSIGN_OR_RETURN(Event event, Event::create());
      auto* const flag = reinterpret_cast<uint32_t*>(flags.host() + slots.size() * kFlagStride);
      slots.push_back(SignalSlot{std::move(stream), std::move(event), flag});
    }
    flags_ = std::move(flags);
    slots_ = std::move(slots);
    return Status::ok();
  }

  const int device_;
  MemoryOps& memory_;
  Mutex mutex_;
  MemoryBuffer flags_ TCPX_GUARDED_BY(mutex_);
  std::vector<SignalSlot> slots_ TCPX_GUARDED_BY(mutex_);
};

class CudaSignal final : public GpuSignal {
 public:
  CudaSignal(SignalSlots& slots, SignalSlot& slot) : slots_(slots), slot_(slot) {}
  ~CudaSignal() override { slots_.give_back(slot_); }
  void* event() const override { return slot_.event.view().get(); }
  void fire() override { SignalSlots::fire(slot_); }

 private:
  SignalSlots& slots_;
  SignalSlot& slot_;
};

class CudaGpuOrder final : public GpuOrder {
 public:
  CudaGpuOrder(int device, MemoryOps& memory)
      : device_(device), events_(static_cast<size_t>(memory.device_count())), signals_(device, memory) {}

  Result<std::unique_ptr<GpuMark>> mark_stream(void* stream, int gpu) override {
    const auto view = StreamView(static_cast<cudaStream_t>(stream));
    const CaptureGuard capture;
    // An event is recorded on streams of its own GPU alone.
    TCPX_ASSIGN_OR_RETURN(const int device, is_default(view) || events_.size() == 1 ? Result<int>(gpu) : gpu_of_stream(view));
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
    TCPX_ASSIGN_OR_RETURN(const bool is_captured, view.is_captured());
    if (is_captured) return captured("wait for a CUDA stream");
    EventPool& events = events_.at(static_cast<size_t>(device));
    TCPX_ASSIGN_OR_RETURN(Event event, events.take());
    auto mark = std::make_unique<PooledMark>(events, std::move(event));
    TCPX_RETURN_IF_ERROR(mark->record(view));
    return std::unique_ptr<GpuMark>(std::move(mark));
  }

  Result<std::unique_ptr<GpuMark>> mark_event(void* event) override {
    if (event == nullptr) return Status(Code::kInvalidArgument, "wait for a CUDA event", "no event");
    const auto own = static_cast<cudaEvent_t>(event);
    const CaptureGuard capture;
    const cudaError_t answer = cudaEventQuery(own);
    if (answer != cudaSuccess && answer != cudaErrorNotReady && answer != cudaErrorCapturedEvent) {
      return cuda_error(answer, "query event");
    }
    [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
    if (answer == cudaErrorCapturedEvent) return captured("wait for a CUDA event");
    return std::unique_ptr<GpuMark>(std::make_unique<CudaMark>(EventView(own)));
  }

  Result<std::unique_ptr<GpuSignal>> make_signal() override {
    const CaptureGuard capture;
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device_));
    TCPX_ASSIGN_OR_RETURN(SignalSlot* const slot, signals_.take());
    return std::unique_ptr<GpuSignal>(std::make_unique<CudaSignal>(signals_, *slot));
  }

 private:
  static bool is_default(StreamView stream) {
    return stream.get() == nullptr || stream.get() == cudaStreamLegacy || stream.get() == cudaStreamPerThread;
  }

  const int device_;
  std::vector<EventPool> events_;  // by GPU
  SignalSlots signals_;
};

}  // namespace

std::unique_ptr<GpuOrder> make_cuda_gpu_order(int device, MemoryOps& memory) {
  return std::make_unique<CudaGpuOrder>(device, memory);
}

}  // namespace tcpx
