// A minimal profiler: writes the names of the NVTX ranges of the domain "tcpx" to stderr, each once, and at the end the numbers
// of ranges begun and ended. A program finds it by NVTX_INJECTION64_PATH.
//
// The tool's side of NVTX 3 (NVIDIA/NVTX: c/include/nvtx3/nvtxDetail/nvtxTypes.h), as far as it is needed here.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace {

constexpr uint32_t kCallbacks = 1;  // NVTX_ETID_CALLBACKS
constexpr int kCore2 = 5;           // NVTX_CB_MODULE_CORE2
enum Core2 : unsigned { kRangeStartEx = 2, kRangeEnd = 3, kDomainCreateA = 12 };

using FunctionPointer = void (*)();
using FunctionTable = FunctionPointer**;
struct ExportTableCallbacks {
  size_t struct_size;
  int (*get_module_function_table)(int module, FunctionTable* table, unsigned* size);
};
using GetExportTable = const void* (*)(uint32_t id);

struct EventAttributes {
  uint16_t version, size;
  uint32_t category;
  int32_t colour_type;
  uint32_t colour;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};
static_assert(offsetof(EventAttributes, message) == 40);

std::atomic<uint64_t> begun = 0, ended = 0;

struct Seen {
  std::mutex mutex;
  std::set<std::string> names;
  ~Seen() { std::fprintf(stderr, "nvtx: %lu ranges begun, %lu ended\n", begun.load(), ended.load()); }
};
Seen seen;

void* create_domain(const char* name) {
  static int domain;
  return std::strcmp(name, "tcpx") == 0 ? &domain : nullptr;
}

uint64_t begin_range(void*, const EventAttributes* attributes) {
  const std::lock_guard lock(seen.mutex);
  if (seen.names.insert(attributes->message).second) std::fprintf(stderr, "nvtx: range \"%s\"\n", attributes->message);
  return ++begun;
}

void end_range(void*, uint64_t) {
  ++ended;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(GetExportTable get) {
  const auto* callbacks = static_cast<const ExportTableCallbacks*>(get(kCallbacks));
  FunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->get_module_function_table(kCore2, &table, &size) == 0 || size <= kDomainCreateA)
    return 0;
  *table[kDomainCreateA] = reinterpret_cast<FunctionPointer>(&create_domain);
  *table[kRangeStartEx] = reinterpret_cast<FunctionPointer>(&begin_range);
  *table[kRangeEnd] = reinterpret_cast<FunctionPointer>(&end_range);
  return 1;
}
