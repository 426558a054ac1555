// Properties of a machine and its settings with which GPUDirect-TCPX crashes by a signal instead of reporting an error. Checked
// before the plugin is called, and by the doctor. Facts from google/nccl-plugin-gpudirecttcpx, 4b8ea7f.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/soft/interfaces.h"
#include "tcpx/status.h"

namespace tcpx {

struct VendorTrap {
  Code code = Code::kUnsupported;
  std::string found;  ///< observation
  std::string why;    ///< the plugin's behaviour then
  std::string mend;   ///< command that fixes it
};
/// The trap as a refusal of `operation`.
Status refusal_of(const VendorTrap& trap, std::string_view operation);

/// The plugin's environment variables that matter here; "" is unset.
struct VendorSettings {
  std::string interfaces;      ///< NCCL_GPUDIRECTTCPX_SOCKET_IFNAME
  std::string control;         ///< NCCL_GPUDIRECTTCPX_CTRL_DEV
  std::string rxdm_directory;  ///< NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX
  std::string send_cores;      ///< NCCL_GPUDIRECTTCPX_TX_BINDINGS
  std::string receive_cores;   ///< NCCL_GPUDIRECTTCPX_RX_BINDINGS
  bool names_peer = false;     ///< NET_COMM_ID is set: it then uses the interface of that address's subnet
  soft::AddressFamily family = soft::AddressFamily::kAny;
};

/// The interfaces that become the plugin's devices, by name. nullopt: unknown.
std::optional<std::vector<std::string>> vendor_interfaces(const std::vector<soft::InterfaceAddress>& all,
                                                          const VendorSettings& settings);

/// Trap: RxDM's sockets have names too long for a unix socket, which overwrites the stack.
std::optional<VendorTrap> find_rxdm_directory_trap(const std::string& directory);
/// Trap: no interface has the name for control connections, and the plugin takes an address out of uninitialised memory.
std::optional<VendorTrap> find_control_trap(const std::vector<soft::InterfaceAddress>& all, const VendorSettings& settings);
/// Trap: the plugin finds no list of cores near the interface, or none that it can read.
/// @param root replaces "/"; "" is this machine
std::optional<VendorTrap> find_cores_trap(const std::string& root, const std::string& interface, const VendorSettings& settings);
/// Trap: GPU memory cannot be registered for the interface.
/// @param pci_path of its device below /sys/devices, nullopt or "" without one
std::optional<VendorTrap> find_pci_trap(const std::string& interface, const std::optional<std::string>& pci_path);

/// Looks for all traps of the plugin's init or later calls on this machine. @return the first, as a refusal of `operation`
Status check_vendor_machine(const std::string& root, const std::vector<soft::InterfaceAddress>& all,
                            const VendorSettings& settings, std::string_view operation);
/// @return kBadConfig for a malformed variable
Result<VendorSettings> vendor_settings();

}  // namespace tcpx
