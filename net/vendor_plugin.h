// Requirements of GPUDirect-TCPX beyond the ABI: variables that it reads once, when its init is called.
#pragma once

#include <cstdint>
#include <string_view>

#include "net/net_plugin.h"

namespace tcpx {

/// True when a plugin of that name is GPUDirect-TCPX, in any version ("GPUDirectTCPX_v7").
bool is_vendor_plugin(std::string_view name);

/// To be called before the plugin's init. Sets the variables that the plugin needs to work, or to work well, unless the user
/// has set them: NCCL_DYNAMIC_CHUNK_SIZE (7), NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS (6),
/// NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX (33). One info line lists them. Changes the environment of the process: no
/// other thread should be reading it.
/// @return kBadConfig for the first one that is malformed or out of range, for which the plugin itself would silently use
/// another value; a chunk size of 0 is such a value.
Status preset_vendor_environment();

/// Data sockets that the plugin opens per comm. google/nccl-plugin-gpudirecttcpx, 4b8ea7f: src/common.h: beyond 8 it keeps the
/// threads and reduces the sockets of each.
inline constexpr int64_t kMostVendorSockets = 8;
/// @param each per thread; @param threads 1 ... kMostVendorSockets
int64_t vendor_data_sockets(int64_t each, int64_t threads);

/// The plugin's cut of messages, from the variables that control it.
/// @return kBadConfig as above, and for more than 8 threads, with which it opens no data socket and crashes.
Result<MessageCut> vendor_message_cut();

}  // namespace tcpx
