#include "programs/doctor/service_checks.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "net/vendor_traps.h"
#include "programs/doctor/pci_topology.h"
#include "programs/doctor/rxdm_message.h"

namespace tcpx::doctor {
namespace {

// Where the vendor plugin looks when nobody tells it (google/nccl-plugin-gpudirecttcpx @ 4b8ea7f).
constexpr char kVendorDefault[] = "/tmp";
// RxDM offers it and the plugin never opens it: it is asked here because it knows which receive queues a GPU has.
constexpr char kQueueSocket[] = "queue_ids_by_gpu";
// RxDM may end itself when its last registered client disconnects, so this one is left alone.
constexpr char kRegistrySocket[] = "rxdm_application_registry";
constexpr std::array<const char*, 2> kSockets = {"rx_rule_manager", "rx_rule_uninstall"};
constexpr char kPoolSocketPrefix[] = "get_gpu_fd_";
constexpr std::array<const char*, 2> kGpuSockets = {kPoolSocketPrefix, "get_gpu_metadata_"};
constexpr char kLookAtRxdm[] =
    "docker logs --tail 20 $(docker ps -aq -f name=rxdm -f name=receive-datapath-manager)   # in Kubernetes: kubectl logs <pod> "
    "-c "
    "tcpx-daemon";
constexpr size_t kMostNames = 3;  // in one finding

class ServiceGroup {
 public:
  ServiceGroup(const Machine& machine, ServiceSource& source)
      : machine_(machine),
        source_(source),
        expected_(expected_path(machine)),
        variable_(environment_info(Variable::kUnixClientPrefix).name),
        named_(machine.variable(Variable::kUnixClientPrefix)) {}

  Findings run() {
    if (!expected_.vendor_path) {
      add(not_applicable("rxdm", "not looked for",
                         concat("Only GPUDirect-TCPX needs RxDM; here the software plugin is right: ", expected_.because, ".")));
      return std::move(findings_);
    }
    check_prefix();
    if (!check_directory()) return std::move(findings_);
    const std::vector<std::string> gpus = gpu_addresses();
    check_sockets(gpus);
    check_registry();
    check_queues(gpus);
    return std::move(findings_);
  }

 private:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  std::string path_of(const std::string& name) const { return concat(prefix_, "/", name); }

  bool has_sockets(const std::string& directory) const {
    for (const std::string& name : machine_.files.list(directory)) {
      if (name == kSockets.front() || name.starts_with(kPoolSocketPrefix)) return true;
    }
    return false;
  }

  void check_prefix() {
    const std::string usual(kRxdmDirectory);
    prefix_ = named_.value_or(usual);
    while (prefix_.size() > 1 && prefix_.ends_with('/')) prefix_.pop_back();
    const std::string elsewhere = has_sockets(usual) ? usual : has_sockets(kVendorDefault) ? kVendorDefault : "";
    const std::string set = concat("export ", variable_, "=");
    if (const auto trap = find_rxdm_directory_trap(prefix_)) {
      add(fail("prefix", trap->found, trap->why, trap->mend));
      return;
    }
    if (named_ && !has_sockets(prefix_) && !elsewhere.empty()) {
      add(fail("prefix", concat(variable_, "=", *named_, ", but RxDM's sockets are in ", elsewhere),
               "The plugin looks for RxDM where the variable says, and accepts no connection without it.", set + elsewhere));
      prefix_ = elsewhere;
    } else if (!named_ && elsewhere == kVendorDefault) {
      add(fail("prefix", concat(variable_, " is not set, and RxDM's sockets are in ", elsewhere),
               concat("tcpx-p2p then tells the plugin to look in ", usual, ", and no connection is accepted."), set + elsewhere));
      prefix_ = elsewhere;
    } else if (!named_) {
      add(ok("prefix", concat(variable_, " is not set: tcpx-p2p sets it to ", usual, "; other users of the plugin would look in ",
                              kVendorDefault)));
    } else {
      add(ok("prefix", concat(variable_, "=", *named_)));
    }
  }

  bool check_directory() {
    if (machine_.files.exists(prefix_)) {
      add(ok("directory", prefix_));
      return true;
    }
    add(fail("directory", concat("there is no ", prefix_), "RxDM does not run, or its directory was not given to this container.",
             concat(kLookAtRxdm, "; give a container the directory: docker run -v ", prefix_, ":", prefix_, " ...")));
    return false;
  }

  /// Of the PCI bus; of the sockets where the bus shows none.
  std::vector<std::string> gpu_addresses() {
    std::vector<std::string> addresses;
    for (const PciDevice& gpu : pci_gpus(machine_.files)) addresses.push_back(gpu.name);
    if (!addresses.empty()) return addresses;
    for (const std::string& name : machine_.files.list(prefix_)) {
      if (name.starts_with(kPoolSocketPrefix)) addresses.push_back(name.substr(std::string_view(kPoolSocketPrefix).size()));
    }
    return addresses;
  }

  /// Says what is wrong with conversations that ended alike.
  void add_failure(std::string check, const std::string& path, ServiceAnswer::End end, const std::string& detail) {
    switch (end) {
      case ServiceAnswer::End::kConnected:
      case ServiceAnswer::End::kAnswered:
        return;
      case ServiceAnswer::End::kAbsent:
        return add(fail(std::move(check), concat("there is no ", path),
                        "RxDM does not run, has not finished its start, or does not serve this GPU.", kLookAtRxdm));
      case ServiceAnswer::End::kDenied:
        return add(fail(std::move(check), concat("permission denied: ", path),
                        "The plugin runs as this user and will be denied, too.",
                        concat("sudo chmod a+rx ", prefix_, " && sudo chmod a+rw ", prefix_, "/*   # or run as root")));
      case ServiceAnswer::End::kRefused:
        return add(fail(std::move(check), concat("nobody listens on ", path), "An RxDM that has ended left it behind.",
                        concat(kLookAtRxdm, "; then start it again")));
      case ServiceAnswer::End::kClosed:
        return add(fail(std::move(check), concat("the connection was closed in place of an answer: ", path),
                        "The plugin would wait for ever: it takes the end of the connection for progress.", kLookAtRxdm));
      case ServiceAnswer::End::kSilent:
        return add(fail(std::move(check), concat("no answer from ", path), "The plugin would wait for ever: it has no deadline.",
                        kLookAtRxdm));
      case ServiceAnswer::End::kFailed:
        return add(fail(std::move(check), concat(detail, ": ", path), "The plugin will fail in the same way.",
                        concat("ls -l ", prefix_)));
    }
  }

  /// One finding for all that can be connected to, and one for each way of failing.
  void check_sockets(const std::vector<std::string>& gpus) {
    std::vector<std::string> names(kSockets.begin(), kSockets.end());
    for (const std::string& gpu : gpus) {
      for (const char* prefix : kGpuSockets) names.push_back(concat(prefix, gpu));
    }
    struct Alike {
      std::vector<std::string> names;
      std::string detail;
    };
    std::map<ServiceAnswer::End, Alike> seen;
    for (const std::string& name : names) {
      ServiceAnswer answer = source_.talk(path_of(name), "");
      Alike& alike = seen[answer.end];
      alike.names.push_back(name);
      alike.detail = std::move(answer.detail);
      alive_ = alive_ || answer.end == ServiceAnswer::End::kConnected;
    }
    for (const auto& [end, alike] : seen) {
      if (end == ServiceAnswer::End::kConnected) {
        add(ok("sockets", concat(alike.names.size(), " of ", names.size(), " can be connected to")));
        continue;
      }
      std::string list = path_of(alike.names.front());
      for (size_t i = 1; i < std::min(alike.names.size(), kMostNames); ++i) list += concat(", ", alike.names[i]);
      if (alike.names.size() > kMostNames) list += concat(" and ", alike.names.size() - kMostNames, " more");
      add_failure(concat("socket[", alike.names.front(), "]"), list, end, alike.detail);
    }
  }

  void check_registry() {
    const std::string check = concat("socket[", kRegistrySocket, "]");
    if (machine_.files.exists(path_of(kRegistrySocket))) {
      add(ok(check, "is there; not connected to, because RxDM may end when its last client leaves"));
    } else {
      add(warn(check, concat("there is no ", path_of(kRegistrySocket)),
               "The plugin needs it only with NCCL_GPUDIRECTTCPX_REPORT_LIFECYCLE=1, which then fails.", kLookAtRxdm));
    }
  }

  void check_queues(const std::vector<std::string>& gpus) {
    if (gpus.empty()) {
      add(fail("queues", "neither the PCI bus nor RxDM shows a GPU",
               "Without a GPU there is nothing for GPUDirect-TCPX to receive in.", "tcpx_doctor --only gpu"));
      return;
    }
    if (!alive_) return;  // said above
    for (const std::string& gpu : gpus) {
      const std::string check = concat("queues[", gpu, "]");
      const ServiceAnswer answer = source_.talk(path_of(kQueueSocket), queue_query(gpu));
      if (answer.end != ServiceAnswer::End::kAnswered) {
        // The others would end, or wait, alike.
        return add(
            warn(check,
                 concat(path_of(kQueueSocket), answer.end == ServiceAnswer::End::kAbsent ? " is not there" : " gives no answer"),
                 "The plugin does without it, and nothing else tells whether this GPU has receive queues.", kLookAtRxdm));
      }
      const auto ids = queue_ids_in(answer.message);
      if (!ids) {
        add(warn(check, concat(answer.message.size(), " bytes that are no answer to the question for queues"),
                 "This RxDM speaks another protocol than v2.0.14, and perhaps another than the plugin.",
                 "take RxDM and the plugin from one release of GPUDirect-TCPX"));
      } else if (ids->empty()) {
        add(fail(check, "RxDM has no receive queue for this GPU", "Nothing can arrive in the GPU's memory.", kLookAtRxdm));
      } else {
        std::string list;
        for (const int id : *ids) list += concat(list.empty() ? "" : ", ", id);
        add(ok(check, concat("receive queues ", list)));
      }
    }
    add(not_applicable("version", "not told", "RxDM's protocol has no question for it; the tag of its container image says it."));
  }

  const Machine& machine_;
  ServiceSource& source_;
  const Expectation expected_;
  const std::string variable_;
  const std::optional<std::string> named_;
  std::string prefix_;
  bool alive_ = false;  ///< some of its sockets can be connected to
  Findings findings_;
};

}  // namespace

Findings check_services(const Machine& machine, ServiceSource& source) {
  return ServiceGroup(machine, source).run();
}

}  // namespace tcpx::doctor
