#include "base/trace_range.h"

#ifdef TCPX_HAVE_NVTX
// NVTX consists of headers only: the profiler provides the rest, and is looked for at the first call.
#include <nvtx3/nvToolsExt.h>
#endif

namespace tcpx {

#ifdef TCPX_HAVE_NVTX

namespace {

// Null without a profiler. Never destroyed: ranges may end while the process exits.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("tcpx");
  return handle;
}

}  // namespace

TraceRange::TraceRange(const char* name, uint64_t bytes) {
  if (domain() == nullptr) return;
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = bytes;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  id_ = nvtxDomainRangeStartEx(domain(), &attributes);
}

void TraceRange::end() {
  if (id_ != 0) nvtxDomainRangeEnd(domain(), std::exchange(id_, 0));
}

bool TraceRange::is_built_in() {
  return true;
}

#else

TraceRange::TraceRange(const char*, uint64_t) {}

void TraceRange::end() {}

bool TraceRange::is_built_in() {
  return false;
}

#endif

}  // namespace tcpx
