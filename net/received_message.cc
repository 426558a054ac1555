#include "net/received_message.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "net/abi/nccl_net_common.h"
#include "net/abi/tcpx_request.h"
#include "net/plugin_status.h"

namespace tcpx {
namespace {

constexpr size_t kReadableBytes = sizeof(abi::TcpxRequest);
constexpr uintptr_t kListAlignment = 16;  // of loadMeta in NVIDIA/nccl: src/device/network/unpack/unpack_defs.h

template <class T>
T load(const void* request, size_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(request) + offset, sizeof value);
  return value;
}

/// The three fields of the unpack slot that lead to the scatter list, and two that are only logged.
struct SlotFields {
  uint64_t idx;
  uintptr_t mem;
  uintptr_t cnt;
  uint8_t active;  // a bool of foreign memory
  uint64_t cnt_cache;
};

template <size_t kSlotOffset>
SlotFields load_slot(const void* request) {
  static_assert(kSlotOffset + offsetof(abi::UnpackSlot, cnt_cache) + sizeof(uint64_t) <= kReadableBytes);
  return {load<uint64_t>(request, kSlotOffset + offsetof(abi::UnpackSlot, idx)),
          load<uintptr_t>(request, kSlotOffset + offsetof(abi::UnpackSlot, mem)),
          load<uintptr_t>(request, kSlotOffset + offsetof(abi::UnpackSlot, cnt)),
          load<uint8_t>(request, kSlotOffset + offsetof(abi::UnpackSlot, active)),
          load<uint64_t>(request, kSlotOffset + offsetof(abi::UnpackSlot, cnt_cache))};
}

/// True when `mem` and `cnt` are the addresses of mem[idx] and cnt[idx] of one NetUnpackMeta.
bool points_into_one_queue(const SlotFields& slot) {
  if (slot.idx >= kQueueDepth || slot.mem == 0 || slot.mem % kListAlignment != 0) return false;
  const uintptr_t list_off = slot.idx * sizeof(abi::NetUnpackMeta::mem[0]);
  const uintptr_t count_off = offsetof(abi::NetUnpackMeta, cnt) + slot.idx * sizeof(abi::NetUnpackMeta::cnt[0]);
  return slot.cnt - slot.mem == count_off - list_off;
}

std::optional<SlotFields> find_slot(const void* request) {
  for (const SlotFields& slot :
       {load_slot<abi::kUnpackSlotOffset2024>(request), load_slot<abi::kUnpackSlotOffset2026>(request)}) {
    if (points_into_one_queue(slot)) return slot;
  }
  return std::nullopt;
}

Status refused(std::string detail) {
  return plugin_refused(Code::kProtocol, "read scatter list", std::move(detail));
}

}  // namespace

Result<ReceivedMessage> read_received_message(const void* request) {
  if (request == nullptr) return Status(Code::kInvalidArgument, "read scatter list", "no request");
  // These three have the same offset in both layouts.
  const auto op = load<int32_t>(request, offsetof(abi::TcpxRequest, op));
  const auto mem_type = load<int32_t>(request, offsetof(abi::TcpxRequest, mem_type));
  const auto size = load<int32_t>(request, offsetof(abi::TcpxRequest, size));
  const std::optional<SlotFields> slot = find_slot(request);
  const bool host_memory = mem_type == static_cast<int32_t>(MemoryType::kHost);
  const bool device_memory = mem_type == static_cast<int32_t>(MemoryType::kCuda);
  if (op != abi::kRequestOpRecv || !(host_memory || device_memory) || !slot) {
    return refused(concat("the request has op ", op, ", memory type ", mem_type, " and ", slot ? "a" : "no",
                          " queue slot: it is no receive of the 2024 or the 2026 layout of GPUDirect-TCPX"));
  }
  if (size < 0) return refused(concat("the request holds ", size, " bytes"));

  // Pairs with the plugin's release fence around its store in `test`. The list itself was stored before the count.
  const uint64_t count = __atomic_load_n(reinterpret_cast<const uint64_t*>(slot->cnt), __ATOMIC_ACQUIRE);
  if (count > kMaxFragments)
    return refused(concat(count, " fragments, more than the ", kMaxFragments, " that a queue slot holds"));
  if (host_memory && count != 0) return refused(concat(count, " fragments for a receive of host memory"));
  log(LogLevel::kDebug, "Request metadata: request_ptr=", Hex{reinterpret_cast<uintptr_t>(request)},
      " active=", static_cast<int>(slot->active), " idx=", slot->idx, " cnt_cache=", slot->cnt_cache, " cnt=", count,
      " size=", size, " mem=", Hex{slot->mem});
  return ReceivedMessage{.bytes = static_cast<uint64_t>(size),
                         .fragments = reinterpret_cast<const Fragment*>(slot->mem),
                         .fragment_count = count,
                         // NCCL also lets a plugin put device memory in place and tell so by an empty list.
                         .in_place = host_memory || (size > 0 && count == 0),
                         .queue_index = static_cast<uint32_t>(slot->idx)};
}

Result<BouncePool> read_bounce_pool(const DeviceHandleStorage& device_handle, const MemoryOps& memory, CopyLane& lane) {
  constexpr char kOperation[] = "read device handle";
  abi::NetDeviceHandle handle;
  static_assert(sizeof handle <= sizeof device_handle.bytes);
  std::memcpy(&handle, device_handle.bytes, sizeof handle);
  if (handle.net_device_type != abi::kNcclNetDeviceUnpack || handle.net_device_version != abi::kNcclNetDeviceUnpackVersion ||
      handle.size != sizeof(abi::UnpackNetDeviceHandle) || handle.handle == nullptr) {
    return plugin_refused(
        Code::kProtocol, kOperation,
        concat("type ", handle.net_device_type, ", version ", handle.net_device_version, ", ", handle.size, " bytes at ",
               Hex{reinterpret_cast<uintptr_t>(handle.handle)}, "; UNPACK has type ", abi::kNcclNetDeviceUnpack, ", version ",
               abi::kNcclNetDeviceUnpackVersion, ", ", sizeof(abi::UnpackNetDeviceHandle), " bytes"));
  }
  abi::UnpackNetDeviceHandle unpack;
  TCPX_RETURN_IF_ERROR(lane.copy(&unpack, handle.handle, sizeof unpack));
  const auto base = reinterpret_cast<uintptr_t>(unpack.bounce_buf);
  // Unpackers assume that an address is aligned like its offset.
  if (base == 0 || base % 16 != 0) {
    return plugin_refused(Code::kProtocol, kOperation, concat("bounce pool at ", Hex{base}, ": no 16-byte aligned address"));
  }
  log(LogLevel::kDebug, "Device handle: meta=", Hex{reinterpret_cast<uintptr_t>(unpack.meta)}, " bounce_buf=", Hex{base},
      " head=", static_cast<int64_t>(unpack.head));
  const uint64_t bytes = std::min(memory.extent(unpack.bounce_buf).value_or(kMaxPoolBytes), kMaxPoolBytes);
  return BouncePool{.base = static_cast<const std::byte*>(unpack.bounce_buf), .bytes = bytes};
}

}  // namespace tcpx
