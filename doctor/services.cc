#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <span>

#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/words.h"
#include "doctor/services.h"
#include "net/vendor_traps.h"

namespace tcpx::doctor {
namespace {

using ServiceEnd = ServiceAnswer::End;

// Protocol Buffers, "Encoding": wire types.
constexpr uint32_t kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
constexpr uint32_t kQueueIdQuery = 3, kQueueIdResponse = 4, kFirstField = 1;

/// A field with its length in front; all of ours are shorter than 128 bytes, so the length takes one.
std::string field(uint32_t number, std::string_view content) {
  return concat(static_cast<char>(number << 3 | kLengthDelimited), static_cast<char>(content.size()), content);
}

std::optional<uint64_t> take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct Field {
  uint64_t number = 0;
  std::string_view content;  ///< of a varint its own bytes
  bool is_bytes = false;
};
/// Takes the first field off `rest`, never beyond its end. nullopt: it is malformed.
std::optional<Field> take_field(std::string_view& rest) {
  const auto tag = take_varint(rest);
  if (!tag) return std::nullopt;
  const std::string_view begin = rest;
  const uint32_t type = *tag & 7;
  std::optional<uint64_t> length;
  if (type == kVarint && take_varint(rest)) return Field{*tag >> 3, begin.substr(0, begin.size() - rest.size()), false};
  if (type == kFixed64) length = 8;
  if (type == kFixed32) length = 4;
  if (type == kLengthDelimited) length = take_varint(rest);
  if (!length || *length > rest.size()) return std::nullopt;
  const Field field{*tag >> 3, rest.substr(0, *length), true};
  rest.remove_prefix(*length);
  return field;
}

constexpr std::array<const char*, 2> kSockets = {"rx_rule_manager", "rx_rule_uninstall"};
constexpr char kPoolSocketPrefix[] = "get_gpu_fd_";
constexpr std::array<const char*, 2> kGpuSockets = {kPoolSocketPrefix, "get_gpu_metadata_"};

bool has_sockets(const FileTree& files, const std::string& directory) {
  const auto is_rxdms = [](const auto& name) { return name == kSockets.front() || name.starts_with(kPoolSocketPrefix); };
  return std::ranges::any_of(files.list(directory), is_rxdms);
}

ServiceAnswer ended(ServiceEnd end, std::string detail = {}) {
  return {.end = end, .message = {}, .detail = std::move(detail)};
}

ServiceAnswer refused_by(int error) {
  if (error == ENOENT || error == ENOTDIR) return ended(ServiceEnd::kAbsent);
  if (error == EACCES || error == EPERM) return ended(ServiceEnd::kDenied);
  if (error == ECONNREFUSED) return ended(ServiceEnd::kRefused);
  if (error == EAGAIN) return ended(ServiceEnd::kSilent);  // its queue of connections is full (unix(7))
  return ended(ServiceEnd::kFailed, std::strerror(error));
}

constexpr char kLookAtRxdm[] =
    "docker logs --tail 20 $(docker ps -aq -f name=rxdm -f name=receive-datapath-manager)   # in Kubernetes: kubectl logs <pod> "
    "-c tcpx-daemon";
constexpr size_t kMostNames = 3;  // in one finding

/// Where RxDM's sockets are, and where the plugin looks.
Findings check_directory(const ServiceFacts& facts) {
  const std::string_view variable = environment_info(Variable::kUnixClientPrefix).name;
  const VendorTrap trap = find_rxdm_directory_trap(facts.wanted).value_or(VendorTrap{});
  const std::string named = facts.named ? concat(variable, "=", *facts.named) : concat(variable, " is not set");
  const std::string& directory = facts.directory;
  return judge(
      {{"prefix", trap.found, trap.found.empty(), kFail, trap.why, trap.mend},
       {"prefix", concat(named, facts.named ? ", but" : ", and", " RxDM's sockets are in ", facts.elsewhere),
        facts.elsewhere.empty(), kFail,
        facts.named ? "The plugin looks for RxDM where the variable says, and accepts no connection without it."
                    : concat("tcpx-p2p then tells the plugin to look in ", facts.wanted, ", and no connection is accepted."),
        concat("export ", variable, "=", facts.elsewhere)},
       {"prefix", facts.named ? named
                              : concat(named, ": tcpx-p2p sets it to ", facts.wanted,
                                       "; other users of the plugin would look in ", kVendorDefault)},
       {"directory", concat("there is no ", directory), facts.has_directory, kFail,
        "RxDM does not run, or its directory was not given to this container.",
        concat(kLookAtRxdm, "; give a container the directory: docker run -v ", directory, ":", directory, " ...")},
       {"directory", directory}});
}

/// What is wrong with sockets whose conversations ended alike: what stands in front of their paths, why it matters and what mends it.
struct Failure {
  ServiceEnd end;
  std::string_view found;
  std::string why, mend;
};
Failure failure_of(ServiceEnd end, const std::string& directory) {
  const Failure all[] = {
      {ServiceEnd::kAbsent, "there is no ", "RxDM does not run, has not finished its start, or does not serve this GPU.",
       kLookAtRxdm},
      {ServiceEnd::kDenied, "permission denied: ", "The plugin runs as this user and will be denied, too.",
       concat("sudo chmod a+rx ", directory, " && sudo chmod a+rw ", directory, "/*   # or run as root")},
      {ServiceEnd::kRefused, "nobody listens on ", "An RxDM that has ended left it behind.",
       concat(kLookAtRxdm, "; then start it again")},
      {ServiceEnd::kClosed, "the connection was closed: ",
       "The plugin takes the end of the connection for progress, and waits for ever.", kLookAtRxdm},
      {ServiceEnd::kSilent, "no answer from ", "The plugin would wait for ever: it has no deadline.", kLookAtRxdm},
  };
  const auto known = std::ranges::find(all, end, &Failure::end);
  return known != std::end(all) ? *known
                                : Failure{end, ": ", "The plugin will fail in the same way.", concat("ls -l ", directory)};
}

/// One finding for all that can be connected to, and one for each way of failing.
Findings check_sockets(const ServiceFacts& facts) {
  std::map<ServiceEnd, std::pair<ServiceAnswer, std::vector<std::string>>> alike;
  for (const auto& [name, answer] : facts.sockets) {
    alike[answer.end].first = answer;
    alike[answer.end].second.push_back(name);
  }
  Table table;
  for (auto& [end, entry] : alike) {
    auto& [answer, names] = entry;
    const size_t count = names.size();
    if (end == ServiceEnd::kConnected) {
      table.push_back({"sockets", concat(count, " of ", facts.sockets.size(), " can be connected to")});
      continue;
    }
    const std::string check = concat("socket[", names.front(), "]"), rest = concat(" and ", count - kMostNames, " more");
    names.resize(std::min(count, kMostNames));
    const auto [it, found, why, mend] = failure_of(end, facts.directory);
    table.push_back({check, concat(answer.detail, found, facts.directory, "/", joined(names), count > kMostNames ? rest : ""),
                     false, kFail, why, mend});
  }
  table.push_back({concat("socket[", kRegistrySocket, "]"),
                   facts.has_registry ? "is there; not connected to, because RxDM may end when its last client leaves"
                                      : concat("there is no ", facts.directory, "/", kRegistrySocket),
                   facts.has_registry, kWarn,
                   "The plugin needs it only with NCCL_GPUDIRECTTCPX_REPORT_LIFECYCLE=1, which then fails.", kLookAtRxdm});
  return judge(table);
}

Findings check_queues(const ServiceFacts& facts) {
  Findings findings = judge({{"queues", "neither the PCI bus nor RxDM shows a GPU", false, kFail,
                              "Without a GPU there is nothing for GPUDirect-TCPX to receive in.", "tcpx_doctor --only gpu"}});
  if (!facts.gpus.empty()) findings.clear();
  for (size_t i = 0; i < std::min(facts.queues.size(), facts.gpus.size()); ++i) {
    const ServiceAnswer& answer = facts.queues[i];
    const bool answered = answer.end == ServiceEnd::kAnswered;
    const auto told = queue_ids_in(answer.message);
    const std::vector<int> ids = told.value_or(std::vector<int>());
    append(
        findings,
        judge({{"queues",
                concat(facts.directory, "/", kQueueSocket,
                       answer.end == ServiceEnd::kAbsent ? " is not there" : " gives no answer"),
                answered, kWarn, "The plugin does without it, and nothing else tells whether this GPU has receive queues.",
                kLookAtRxdm},
               {"queues", concat(answer.message.size(), " bytes that are no answer to the question for queues"), told.has_value(),
                kWarn, "This RxDM speaks another protocol than v2.0.14, and perhaps another than the plugin.",
                "take RxDM and the plugin from one release of GPUDirect-TCPX"},
               {"queues", "RxDM has no receive queue for this GPU", !ids.empty(), kFail,
                "Nothing can arrive in the GPU's memory.", kLookAtRxdm},
               {"queues", concat("receive queues ", joined(ids))}},
              facts.gpus[i]));
    if (!answered) return findings;
  }
  if (!facts.gpus.empty() && !facts.queues.empty()) {
    append(findings, judge({{"version", "not told", false, kNotApplicable,
                             "RxDM's protocol has no question for it; the tag of its container image says it."}}));
  }
  return findings;
}

}  // namespace

std::string queue_query(std::string_view gpu_pci_address) {
  const std::string body = field(kQueueIdQuery, field(kFirstField, gpu_pci_address.substr(0, 100)));
  return std::string{'\0', static_cast<char>(body.size())} + body;
}

std::optional<std::vector<int>> queue_ids_in(std::string_view message) {
  std::optional<std::vector<int>> ids;
  while (!message.empty()) {
    const auto outer = take_field(message);
    if (!outer) return std::nullopt;
    if (outer->number != kQueueIdResponse || !outer->is_bytes) continue;
    if (!ids) ids.emplace();
    for (std::string_view response = outer->content; !response.empty();) {
      const auto inner = take_field(response);
      if (!inner) return std::nullopt;
      if (inner->number != kFirstField) continue;
      for (std::string_view numbers = inner->content; !numbers.empty();) {  // several when the writer has packed them
        const auto id = take_varint(numbers);
        if (!id) return std::nullopt;
        ids->push_back(static_cast<int>(*id));
      }
    }
  }
  return ids;
}

ServiceAnswer talk(const std::string& path, std::string_view request, Duration limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ended(ServiceEnd::kFailed, "the path is too long for a unix socket");
  path.copy(address.sun_path, path.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return ended(ServiceEnd::kFailed, std::strerror(errno));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return refused_by(errno);
  if (request.empty()) return ended(ServiceEnd::kConnected);

  const Deadline deadline = Deadline::after(limit);
  ServiceAnswer answer = ended(ServiceEnd::kAnswered);
  std::array<unsigned char, 2> length{};
  Status status = send_all(socket.get(), std::as_bytes(std::span(request)), deadline);
  if (status.is_ok()) status = recv_all(socket.get(), std::as_writable_bytes(std::span(length)), deadline);
  answer.message.resize(size_t{length[0]} << 8 | length[1]);
  if (status.is_ok()) status = recv_all(socket.get(), std::as_writable_bytes(std::span(answer.message)), deadline);
  if (status.is_ok()) return answer;
  if (status.code() == Code::kPeerGone) return ended(ServiceEnd::kClosed);
  if (status.code() == Code::kTimeout) return ended(ServiceEnd::kSilent);
  return ended(ServiceEnd::kFailed, status.detail());
}

ServiceFacts service_facts(const Machine& machine) {
  const FileTree& files = machine.files;
  const std::string usual(kRxdmDirectory);
  ServiceFacts facts{.expected = expected_path(machine), .named = machine.variables.get(Variable::kUnixClientPrefix)};
  facts.wanted = facts.named.value_or(usual);
  while (facts.wanted.size() > 1 && facts.wanted.ends_with('/')) facts.wanted.pop_back();
  facts.directory = facts.wanted;
  if (!find_rxdm_directory_trap(facts.wanted) && !has_sockets(files, facts.wanted)) {
    facts.elsewhere = has_sockets(files, usual) ? usual : has_sockets(files, kVendorDefault) ? kVendorDefault : "";
    if (!facts.elsewhere.empty()) facts.directory = facts.elsewhere;
  }
  facts.has_directory = files.exists(facts.directory);
  facts.has_registry = files.exists(concat(facts.directory, "/", kRegistrySocket));
  for (const PciDevice& gpu : pci_gpus(files)) facts.gpus.push_back(gpu.name);
  const bool bus_tells = !facts.gpus.empty();
  for (const std::string& name : files.list(facts.directory))
    if (!bus_tells && name.starts_with(kPoolSocketPrefix)) facts.gpus.push_back(name.substr(sizeof kPoolSocketPrefix - 1));
  for (const char* name : kSockets) facts.sockets.emplace_back(name, ServiceAnswer{});
  for (const std::string& gpu : facts.gpus)
    for (const char* prefix : kGpuSockets) facts.sockets.emplace_back(concat(prefix, gpu), ServiceAnswer{});
  return facts;
}

void ask_services(ServiceFacts& facts) {
  if (!facts.expected.vendor_path || !facts.has_directory) return;
  bool alive = false;
  for (auto& [name, answer] : facts.sockets) {
    answer = talk(concat(facts.directory, "/", name), "");
    alive = alive || answer.end == ServiceEnd::kConnected;
  }
  for (const std::string& gpu : facts.gpus) {
    if (!alive) return;
    facts.queues.push_back(talk(concat(facts.directory, "/", kQueueSocket), queue_query(gpu)));
    alive = facts.queues.back().end == ServiceEnd::kAnswered;
  }
}

Findings check_services(const ServiceFacts& facts) {
  if (!facts.expected.vendor_path) {
    return judge({{"rxdm", "not looked for", false, kNotApplicable,
                   concat("Only GPUDirect-TCPX needs RxDM; here the software plugin is right: ", facts.expected.because, ".")}});
  }
  Findings findings = check_directory(facts);
  if (!facts.has_directory) return findings;
  append(findings, check_sockets(facts));
  append(findings, check_queues(facts));
  return findings;
}

}  // namespace tcpx::doctor
