// One adapter per version of the plugin ABI. A table of one version is never read through the struct of another: properties and
// reg_mr differ (29).
#pragma once

#include <memory>

#include "net/abi/nccl_net_v7.h"
#include "net/abi/nccl_net_v8.h"
#include "net/net_plugin.h"

namespace tcpx {

/// @return kUnsupported naming every required entry that is NULL. reg_mr_dma_buf, iflush and get_device_mr may be NULL:
/// of them we call only get_device_mr, of the software plugin. irecv_consumed is judged by `start_plugin`, which knows the device type.
Status check_table(const abi::NetTable_v7& table);
Status check_table(const abi::NetTable_v8& table);

/// Calls `init`, reads the properties of all devices once, and wraps the table, which must pass `check_table` and stay valid
/// forever. To be called once per table and process (30).
/// @return the error of init, devices or get_properties; kProtocol for an impossible device count; kUnsupported for devices of
/// different types (37), for a device type UNPACK of another version than 7 or without irecv_consumed.
Result<std::shared_ptr<NetPlugin>> start_plugin(const abi::NetTable_v7& table);
Result<std::shared_ptr<NetPlugin>> start_plugin(const abi::NetTable_v8& table);

}  // namespace tcpx
