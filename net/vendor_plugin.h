// What GPUDirect-TCPX wants of a program that loads it, beyond the ABI: variables that it reads once, when its init is called.
#pragma once

#include <cstdint>
#include <string_view>

#include "net/net_plugin.h"

namespace tcpx {

/// Whether a plugin of that name is GPUDirect-TCPX, of whatever version ("GPUDirectTCPX_v7").
bool is_vendor_plugin(std::string_view name);

/// To be called before the plugin's init. Sets what the plugin cannot work without, or works badly, unless the user did:
/// NCCL_DYNAMIC_CHUNK_SIZE (7), NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS (6),
/// NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX (33). One info line says what was set. Changes the environment of the process: no other
/// thread should be reading it.
/// @return kBadConfig for the first one that is malformed or out of range, where the plugin itself would take another value
/// without a word; a chunk size of 0 is such a one.
Status preset_vendor_environment();

/// Data sockets that the plugin opens per comm. google/nccl-plugin-gpudirecttcpx, 4b8ea7f: src/common.h: beyond 8 it keeps the
/// threads and cuts the sockets of each.
inline constexpr int64_t kMostVendorSockets = 8;
/// @param each per thread; @param threads 1 ... kMostVendorSockets
int64_t vendor_data_sockets(int64_t each, int64_t threads);

/// How the plugin will cut messages, from the variables that tell it so.
/// @return kBadConfig as above, and for more than 8 threads, with which it makes no data socket and crashes.
Result<MessageCut> vendor_message_cut();

}  // namespace tcpx
