// Group "services": the receive datapath manager of GPUDirect-TCPX, RxDM, as a client of its sockets sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "doctor/finding.h"
#include "doctor/machine.h"

namespace tcpx::doctor {

/// The directory in which the vendor plugin looks when nobody tells it (google/nccl-plugin-gpudirecttcpx @ 4b8ea7f).
inline constexpr char kVendorDefault[] = "/tmp";
/// RxDM offers it and the plugin never opens it: it is asked here because it knows which receive queues a GPU has.
inline constexpr char kQueueSocket[] = "queue_ids_by_gpu";
/// RxDM may end itself when its last registered client disconnects, so this one is left alone.
inline constexpr char kRegistrySocket[] = "rxdm_application_registry";

struct ServiceAnswer {
  enum class End : uint8_t {
    kConnected,  ///< and nothing was asked
    kAnswered,
    kAbsent,   ///< no such file
    kDenied,   ///< this user may not
    kRefused,  ///< a socket that nobody listens on
    kClosed,   ///< it closed the connection in place of an answer
    kSilent,   ///< no answer in time, or it accepts nobody
    kFailed,   ///< anything else: `detail`
  };
  End end = End::kAbsent;
  std::string message;  ///< of kAnswered, without its length
  std::string detail;
};
/// Connects to the stream socket at `path`; sends `request` unless it is empty, and reads one answer that has its length in
/// front, 2 bytes, big endian. Then closes.
ServiceAnswer talk(const std::string& path, std::string_view request, Duration limit = std::chrono::seconds(2));

// The one question that is asked, which receive queues a GPU has, changes nothing. Sources: google/nccl-plugin-gpudirecttcpx @
// 4b8ea7f: src/rx_buf_mgr_client/proto/unix_socket_proto.proto; google/tcpgpudmarxd @ a6e09b3. On the socket a message is a
// length of 2 bytes, big endian, and a UnixSocketProto of proto2.

/// UnixSocketProto {3 QueueIdQuery {1 string gpu_pci_addr}} with its length in front.
/// @param gpu_pci_address at most 100 bytes: "0000:04:00.0"
std::string queue_query(std::string_view gpu_pci_address);
/// The numbers in UnixSocketProto {4 QueueIdResponse {1 repeated int32}}, given without length; fields that are not known are
/// skipped. nullopt: there is no such response in it, or it is malformed.
std::optional<std::vector<int>> queue_ids_in(std::string_view message);

struct ServiceFacts {
  Expectation expected;
  std::optional<std::string> named;  ///< NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX
  std::string wanted;                ///< the directory that tcpx-p2p has the plugin look in
  std::string elsewhere;             ///< another directory that has RxDM's sockets, where the wanted one has none
  std::string directory;             ///< the one of the two that is looked at
  bool has_directory = false, has_registry = false;
  std::vector<std::string> gpus;  ///< addresses, of the PCI bus; of the sockets where the bus shows none
  /// Answers to connecting, of each socket that the plugin needs, by name.
  std::vector<std::pair<std::string, ServiceAnswer>> sockets;
  /// Answers to the question for queues, in the order of `gpus`; none after one that did not come, because the others would end,
  /// or wait, alike.
  std::vector<ServiceAnswer> queues;
};
/// All but the last two.
ServiceFacts service_facts(const Machine& machine);
/// Fills in the last two. Asks for queues only when a socket can be connected to.
void ask_services(ServiceFacts& facts);

Findings check_services(const ServiceFacts& facts);

}  // namespace tcpx::doctor
