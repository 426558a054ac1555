#include <algorithm>
#include <map>

#include "base/text.h"
#include "net/vendor_traps.h"
#include "programs/doctor/services.h"
#include "programs/doctor/words.h"

namespace tcpx::doctor {
namespace {

using ServiceEnd = ServiceAnswer::End;

constexpr char kLookAtRxdm[] =
    "docker logs --tail 20 $(docker ps -aq -f name=rxdm -f name=receive-datapath-manager)   # in Kubernetes: kubectl logs <pod> "
    "-c tcpx-daemon";
constexpr size_t kMostNames = 3;  // in one finding

Finding check_prefix(const ServiceFacts& facts) {
  const std::string_view variable = environment_info(Variable::kUnixClientPrefix).name;
  const std::string mend = concat("export ", variable, "=", facts.elsewhere);
  if (const auto trap = find_rxdm_directory_trap(facts.wanted)) return fail("prefix", trap->found, trap->why, trap->mend);
  if (facts.named && !facts.elsewhere.empty()) {
    return fail("prefix", concat(variable, "=", *facts.named, ", but RxDM's sockets are in ", facts.elsewhere),
                "The plugin looks for RxDM where the variable says, and accepts no connection without it.", mend);
  }
  if (facts.named) return ok("prefix", concat(variable, "=", *facts.named));
  if (!facts.elsewhere.empty()) {
    return fail("prefix", concat(variable, " is not set, and RxDM's sockets are in ", facts.elsewhere),
                concat("tcpx-p2p then tells the plugin to look in ", facts.wanted, ", and no connection is accepted."), mend);
  }
  return ok("prefix", concat(variable, " is not set: tcpx-p2p sets it to ", facts.wanted,
                             "; other users of the plugin would look in ", kVendorDefault));
}

/// Says what is wrong with sockets whose conversations ended alike.
Finding socket_failure(std::string check, const std::string& paths, const ServiceAnswer& answer, const std::string& directory) {
  const auto failure = [&](std::string_view found, std::string_view why, std::string mend = kLookAtRxdm) {
    return fail(std::move(check), concat(found, paths), std::string(why), std::move(mend));
  };
  switch (answer.end) {
    case ServiceEnd::kConnected:
    case ServiceEnd::kAnswered:
      break;
    case ServiceEnd::kAbsent:
      return failure("there is no ", "RxDM does not run, has not finished its start, or does not serve this GPU.");
    case ServiceEnd::kDenied:
      return failure("permission denied: ", "The plugin runs as this user and will be denied, too.",
                     concat("sudo chmod a+rx ", directory, " && sudo chmod a+rw ", directory, "/*   # or run as root"));
    case ServiceEnd::kRefused:
      return failure("nobody listens on ", "An RxDM that has ended left it behind.",
                     concat(kLookAtRxdm, "; then start it again"));
    case ServiceEnd::kClosed:
      return failure("the connection was closed: ",
                     "The plugin takes the end of the connection for progress, and waits for ever.");
    case ServiceEnd::kSilent:
      return failure("no answer from ", "The plugin would wait for ever: it has no deadline.");
    case ServiceEnd::kFailed:
      return failure(concat(answer.detail, ": "), "The plugin will fail in the same way.", concat("ls -l ", directory));
  }
  return ok(std::move(check), paths);
}

/// One finding for all that can be connected to, and one for each way of failing.
void check_sockets(const ServiceFacts& facts, Findings& findings) {
  std::map<ServiceEnd, std::vector<std::string>> alike;
  std::map<ServiceEnd, ServiceAnswer> answers;
  for (const auto& [name, answer] : facts.sockets) {
    alike[answer.end].push_back(name);
    answers[answer.end] = answer;
  }
  for (const auto& [end, names] : alike) {
    if (end == ServiceEnd::kConnected) {
      findings.push_back(ok("sockets", concat(names.size(), " of ", facts.sockets.size(), " can be connected to")));
      continue;
    }
    std::vector<std::string> shown(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kMostNames)));
    std::string paths = concat(facts.directory, "/", joined(shown));
    if (names.size() > kMostNames) paths += concat(" and ", names.size() - kMostNames, " more");
    findings.push_back(socket_failure(concat("socket[", names.front(), "]"), paths, answers[end], facts.directory));
  }
}

void check_queues(const ServiceFacts& facts, Findings& findings) {
  if (facts.gpus.empty()) {
    findings.push_back(fail("queues", "neither the PCI bus nor RxDM shows a GPU",
                            "Without a GPU there is nothing for GPUDirect-TCPX to receive in.", "tcpx_doctor --only gpu"));
    return;
  }
  for (size_t i = 0; i < std::min(facts.queues.size(), facts.gpus.size()); ++i) {
    const std::string check = concat("queues[", facts.gpus[i], "]");
    const ServiceAnswer& answer = facts.queues[i];
    if (answer.end != ServiceEnd::kAnswered) {
      findings.push_back(warn(
          check,
          concat(facts.directory, "/", kQueueSocket, answer.end == ServiceEnd::kAbsent ? " is not there" : " gives no answer"),
          "The plugin does without it, and nothing else tells whether this GPU has receive queues.", kLookAtRxdm));
      return;
    }
    const auto ids = queue_ids_in(answer.message);
    if (!ids) {
      findings.push_back(warn(check, concat(answer.message.size(), " bytes that are no answer to the question for queues"),
                              "This RxDM speaks another protocol than v2.0.14, and perhaps another than the plugin.",
                              "take RxDM and the plugin from one release of GPUDirect-TCPX"));
      continue;
    }
    std::vector<std::string> numbers;
    for (const int id : *ids) numbers.push_back(concat(id));
    findings.push_back(
        fail_unless(!ids->empty(), check,
                    ids->empty() ? "RxDM has no receive queue for this GPU" : concat("receive queues ", joined(numbers)),
                    "Nothing can arrive in the GPU's memory.", kLookAtRxdm));
  }
  if (!facts.queues.empty()) {
    findings.push_back(
        not_applicable("version", "not told", "RxDM's protocol has no question for it; the tag of its container image says it."));
  }
}

}  // namespace

Findings check_services(const ServiceFacts& facts) {
  if (!facts.expected.vendor_path) {
    return {not_applicable(
        "rxdm", "not looked for",
        concat("Only GPUDirect-TCPX needs RxDM; here the software plugin is right: ", facts.expected.because, "."))};
  }
  const std::string& directory = facts.directory;
  Findings findings = {check_prefix(facts)};
  findings.push_back(
      fail_unless(facts.has_directory, "directory", facts.has_directory ? directory : concat("there is no ", directory),
                  "RxDM does not run, or its directory was not given to this container.",
                  concat(kLookAtRxdm, "; give a container the directory: docker run -v ", directory, ":", directory, " ...")));
  if (!facts.has_directory) return findings;
  check_sockets(facts, findings);
  const std::string registry = concat(directory, "/", kRegistrySocket);
  findings.push_back(
      warn_unless(facts.has_registry, concat("socket[", kRegistrySocket, "]"),
                  facts.has_registry ? "is there; not connected to, because RxDM may end when its last client leaves"
                                     : concat("there is no ", registry),
                  "The plugin needs it only with NCCL_GPUDIRECTTCPX_REPORT_LIFECYCLE=1, which then fails.", kLookAtRxdm));
  check_queues(facts, findings);
  return findings;
}

}  // namespace tcpx::doctor
