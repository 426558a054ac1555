// Wires an Endpoint's real parts: the only file of this folder that knows the vendor's plugin, CUDA memory and the unpackers.
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/fork.h"
#include "base/text.h"
#include "device/unpacker_factory.h"
#include "endpoint/endpoint_impl.h"
#include "net/soft/interfaces.h"
#include "secure/settings.h"
#include "transfer/local_machine.h"

namespace tcpx {
namespace {

// What a credential and UCCL_TCPX_SECURITY do for bytes over the network. Another library does with them as it was made.
std::string_view protection_of(const LocalMachine& machine, Protection protection) {
  if (protection == Protection::kEncrypt) return ", encrypted, ";
  if (protection == Protection::kOff || machine.is_plugin_embedded()) return ", ";
  return ", control stream protected, payload neither encrypted nor authenticated by tcpx, ";
}

std::string describe(const LocalMachine& machine, const Unpacker& unpacker, size_t channels, const std::string& nics,
                     Protection protection) {
  return concat("plugin ", machine.plugin->name(), " (", machine.plugin_path, ", ABI v", machine.plugin->abi_version(), "), ",
                channels, " channel", channels == 1 ? "" : "s", " each way over ", nics, protection_of(machine, protection),
                machine.memory->has_gpu() ? "GPU memory" : "host memory standing in for a GPU's", " unpacked by ",
                unpacker.name());
}

// Encryption that the plugin cannot do is left to the network. A file with the software plugin may be older than its encryption.
Status check_encryption(const LocalMachine& machine, Protection protection) {
  if (protection != Protection::kEncrypt || machine.plugin->encrypts()) return Status::ok();
  return Status(Code::kUnsupported, "create endpoint",
                concat("UCCL_TCPX_SECURITY=encrypt, and plugin ", machine.plugin->name(), " (", machine.plugin_path, ") ",
                       machine.is_plugin_embedded()
                           ? "was started in this process while it was not set"
                           : "does not say that it encrypts: set UCCL_TCPX_PLUGIN_PATH=embedded for the software plugin of this "
                             "build, or let IPsec, PSP or WireGuard encrypt, and set UCCL_TCPX_SECURITY=auth"));
}

std::string local_dir() {
  const std::string named = environment_text(Variable::kLocalDir);
  return named.empty() ? concat("/dev/shm/tcpx-", ::geteuid()) : named;
}

// All addresses of the data NICs: those in use, and those that other endpoints of this machine would use.
std::vector<std::string> hosts_of_nics(const std::vector<soft::InterfaceAddress>& all, std::vector<std::string> interfaces,
                                       const std::string& pattern) {
  for (const auto& each : soft::choose_interfaces(all, pattern, soft::AddressFamily::kAny)) interfaces.push_back(each.name);
  std::vector<std::string> hosts;
  for (const auto& each : all) {
    if (std::find(interfaces.begin(), interfaces.end(), each.name) != interfaces.end()) hosts.push_back(each.address.host());
  }
  return hosts;
}

// An endpoint that is neither protected nor opened by choice does not serve every network of its machine.
std::optional<std::vector<std::string>> places(const SecuritySettings& security, std::vector<std::string> hosts) {
  if (security.chosen || security.protection != Protection::kOff) return std::nullopt;
  return hosts;
}

}  // namespace

Result<EndpointParts> make_default_parts(const EndpointConfig& config) {
  // A plugin is loaded once per process, and its threads do not exist in a forked child.
  static const uint64_t loaded_after = count_forks();
  if (count_forks() != loaded_after) {
    return Status(
        Code::kUnsupported, "create endpoint",
        "this process is a fork of one that had endpoints, and has no threads of its net plugin: start a program instead");
  }
  TCPX_ASSIGN_OR_RETURN(const auto security, SecuritySettings::from_environment());
  TCPX_ASSIGN_OR_RETURN(auto tls, TlsContext::create(security));
  TCPX_ASSIGN_OR_RETURN(auto machine, LocalMachine::create(config.plugin_path));
  TCPX_RETURN_IF_ERROR(check_encryption(machine, security.protection));
  TCPX_ASSIGN_OR_RETURN(auto settings, PipelineSettings::from_environment());
  TCPX_ASSIGN_OR_RETURN(const auto kind, environment_choice(Variable::kUnpackImpl));
  TCPX_ASSIGN_OR_RETURN(auto devices, machine.channel_devices(config.gpu_idx, settings.channels));
  TCPX_ASSIGN_OR_RETURN(auto unpacker, machine.make_unpacker(static_cast<UnpackKind>(kind), config.gpu_idx));
  TCPX_ASSIGN_OR_RETURN(auto lane, machine.memory->make_copy_lane(config.gpu_idx));

  TCPX_ASSIGN_OR_RETURN(const auto nics, machine.describe_devices(config.gpu_idx, devices));
  std::vector<std::string> interfaces;
  for (const int device : devices) {
    TCPX_ASSIGN_OR_RETURN(const auto properties, machine.plugin->properties(device));
    if (std::find(interfaces.begin(), interfaces.end(), properties.name) == interfaces.end())
      interfaces.push_back(properties.name);
  }
  TCPX_ASSIGN_OR_RETURN(const auto config_of_nics, soft::Config::of_interfaces());
  const auto all = soft::list_addresses();
  std::string path = describe(machine, *unpacker, devices.size(), nics, security.protection);
  return EndpointParts{
      .memory = std::move(machine.memory),
      .plugin = std::move(machine.plugin),
      .unpacker = std::move(unpacker),
      .lane = std::move(lane),
      .devices = std::move(devices),
      .settings = settings,
      .addresses = soft::choose_addresses(all, interfaces, config_of_nics.interfaces, config_of_nics.family, kMostHosts),
      .unused_nic = soft::find_unused(all, config_of_nics.interfaces),
      .tls = std::move(tls),
      .protection = security.protection,
      .only_at = places(security, hosts_of_nics(all, interfaces, config_of_nics.interfaces)),
      .path = std::move(path),
      .local_dir = local_dir()};
}

Result<std::unique_ptr<Endpoint>> Endpoint::create(const EndpointConfig& config) {
  try {
    TCPX_ASSIGN_OR_RETURN(auto parts, make_default_parts(config));
    return EndpointMaker::make(std::move(parts), config);
  } catch (const std::exception& error) {
    return Status(Code::kInternal, "create endpoint", error.what());
  }
}

}  // namespace tcpx
