// Public face of the software plugin: one version 7 table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/range_list.h"
#include "net/abi/nccl_net_v7.h"
#include "net/net_plugin.h"
#include "tcpx/status.h"

namespace tcpx::soft {

/// Static storage. The same functions stand behind the symbol ncclNetPlugin_v7 of libnccl-net-tcpx-soft.so.
const abi::NetTable_v7& net_table();

/// As in the table, for memory of any size.
int reg_mr(void* comm, void* data, size_t size, int type, void** mhandle);

inline constexpr char kPluginName[] = "tcpx-soft";

/// NetPlugin::encrypts, since init has succeeded.
bool encrypts();
/// NetPlugin::tell_changes. @return false: not an open comm of this library
bool tell_changes(void* comm, std::function<void()> told);
/// NetPlugin::borrow_io
std::unique_ptr<IoLoop> borrow_io();
/// NetPlugin::register_list: as regMr. @return kInvalidArgument: not an open comm of this library
Result<void*> register_list(void* comm, std::shared_ptr<const RangeList> list);

/// Requests that a comm takes at once. Several sockets of a connection bring its messages out of order, so one that has lost a packet
/// stops the others when these are used up: 128 of 256 KiB are what 1 Gbit/s brings in a quarter of a second. Receives of CUDA memory have kQueueDepth,
/// the lists of the metadata queue; as long as one of those is not consumed, all receives have.
inline constexpr uint32_t kRequests = 128;

}  // namespace tcpx::soft
