#include "programs/unpack/gpu_clock.h"

#include "programs/unpack/baseline_kernels.h"

namespace tcpx {

Result<std::unique_ptr<GpuClock>> GpuClock::create() {
  TCPX_ASSIGN_OR_RETURN(Stream stream, Stream::create());
  TCPX_ASSIGN_OR_RETURN(Event begin, Event::create(EventTiming::kOn));
  TCPX_ASSIGN_OR_RETURN(Event end, Event::create(EventTiming::kOn));
  return std::unique_ptr<GpuClock>(new GpuClock(std::move(stream), std::move(begin), std::move(end)));
}

Result<double> GpuClock::time(const std::function<Status(StreamView)>& enqueue) {
  TCPX_RETURN_IF_ERROR(begin_.view().record(stream()));
  TCPX_RETURN_IF_ERROR(enqueue(stream()));
  TCPX_RETURN_IF_ERROR(end_.view().record(stream()));
  TCPX_RETURN_IF_ERROR(stream().synchronize());
  TCPX_ASSIGN_OR_RETURN(const Duration elapsed, end_.view().elapsed_since(begin_.view()));
  return std::chrono::duration<double>(elapsed).count();
}

Result<double> GpuClock::time_queued(const std::function<Status(StreamView)>& enqueue, std::chrono::microseconds head_start) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(head_start).count();
  TCPX_RETURN_IF_ERROR(cuda_status(launch_delay(static_cast<uint64_t>(ns), stream().get()), "keep the GPU busy"));
  return time(enqueue);
}

Status launch_nothing(StreamView stream) {
  return cuda_status(launch_empty_kernel(stream.get()), "launch nothing");
}

}  // namespace tcpx
