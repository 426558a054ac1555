// Public face of the software plugin: one version 7 table.
#pragma once

#include "net/abi/nccl_net_v7.h"

namespace tcpx::soft {

/// Static storage. The same functions stand behind the symbol ncclNetPlugin_v7 of libnccl-net-tcpx-soft.so.
const abi::NetTable_v7& net_table();

inline constexpr char kPluginName[] = "tcpx-soft";

}  // namespace tcpx::soft
