#include "device/cuda_handles.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/own_thread.h"
#include "base/text.h"

namespace tcpx {
Status cuda_error(cudaError_t error, std::string_view operation) {
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
  Status status(Code::kCuda, std::string(operation), concat(cudaGetErrorName(error), ": ", cudaGetErrorString(error)),
                Domain::kCuda, static_cast<int32_t>(error));
  log(LogLevel::kError, status.to_string());
  return status;
}

void report_cuda_failure(cudaError_t error, std::string_view operation) {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading) return;
  [[maybe_unused]] const Status logged = cuda_error(error, operation);
}

namespace {
thread_local bool is_relaxed = false;  // by a CaptureGuard
}

CaptureGuard::CaptureGuard() : entered_(enter_any_device()) {
  if (is_own_thread()) entered_.stay();
  if (is_relaxed) return;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
  report_cuda_failure(error, "change capture mode");
  if (error != cudaSuccess) return;
  is_relaxed = true;
  if (!is_own_thread()) back_to_ = mode;
}

CaptureGuard::~CaptureGuard() {
  if (!back_to_) return;
  is_relaxed = false;
  report_cuda_failure(cudaThreadExchangeStreamCaptureMode(&*back_to_), "change capture mode back");
}

Status StreamView::synchronize() const {
  const CaptureGuard captures;
  return cuda_status(cudaStreamSynchronize(stream_), "wait for stream");
}

Status StreamView::health() const {
  const CaptureGuard captures;
  const cudaError_t answer = cudaStreamQuery(stream_);
  if (answer != cudaSuccess && answer != cudaErrorNotReady) return cuda_error(answer, "query stream");
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
  return Status::ok();
}

Result<bool> StreamView::is_captured() const {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  TCPX_RETURN_IF_ERROR(cuda_status(cudaStreamIsCapturing(stream_, &capture), "ask stream for capture"));
  return capture != cudaStreamCaptureStatusNone;
}

Status EventView::record(StreamView stream) const {
  return cuda_status(cudaEventRecord(event_, stream.get()), "record event");
}

Result<bool> EventView::is_done() const {
  const CaptureGuard captures;
  const cudaError_t answer = cudaEventQuery(event_);
  if (answer == cudaSuccess) return true;
  if (answer == cudaErrorNotReady) {
    // The runtime records even this answer as the thread's last error.
    [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
    return false;
  }
  return cuda_error(answer, "query event");
}

Result<Duration> EventView::elapsed_since(EventView begin) const {
  const CaptureGuard captures;
  float milliseconds = 0;
  TCPX_RETURN_IF_ERROR(cuda_status(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "read event times"));
  return std::chrono::round<Duration>(std::chrono::duration<float, std::milli>(milliseconds));
}

Result<Stream> Stream::create() {
  const CaptureGuard captures;
  int least = 0;
  int greatest = 0;
  TCPX_RETURN_IF_ERROR(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest), "read stream priorities"));
  cudaStream_t stream = nullptr;
  TCPX_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "create stream"));
  return Stream(stream);
}

void Stream::Destroy::operator()(cudaStream_t stream) const {
  const CaptureGuard captures;
  report_cuda_failure(cudaStreamDestroy(stream), "destroy stream");
}

Result<Event> Event::create(EventTiming timing) {
  const CaptureGuard captures;
  cudaEvent_t event = nullptr;
  const unsigned flags = timing == EventTiming::kOn ? cudaEventDefault : cudaEventDisableTiming;
  TCPX_RETURN_IF_ERROR(cuda_status(cudaEventCreateWithFlags(&event, flags), "create event"));
  return Event(event);
}

void Event::Destroy::operator()(cudaEvent_t event) const {
  const CaptureGuard captures;
  report_cuda_failure(cudaEventDestroy(event), "destroy event");
}

}  // namespace tcpx
