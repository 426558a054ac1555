// The one question that the doctor asks the receive datapath manager, RxDM: which receive queues a GPU has. It changes nothing.
//
// Sources: google/nccl-plugin-gpudirecttcpx @ 4b8ea7f: src/rx_buf_mgr_client/proto/unix_socket_proto.proto; google/tcpgpudmarxd
// @ a6e09b3. On the socket a message is a length of 2 bytes, big endian, and a UnixSocketProto of proto2.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx::doctor {

/// UnixSocketProto {3 QueueIdQuery {1 string gpu_pci_addr}} with its length in front.
/// @param gpu_pci_address at most 100 bytes: "0000:04:00.0"
std::string queue_query(std::string_view gpu_pci_address);

/// The numbers in UnixSocketProto {4 QueueIdResponse {1 repeated int32}}, given without length; fields that are not known are
/// skipped. nullopt: there is no such response in it, or it is malformed.
std::optional<std::vector<int>> queue_ids_in(std::string_view message);

}  // namespace tcpx::doctor
