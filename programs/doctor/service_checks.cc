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
  if (const auto trap = find_rxdm_directory_trap(facts.wanted)) return fail("prefix", trap->found, trap->why, trap->mend);
  const std::string named = facts.named ? concat(variable, "=", *facts.named) : concat(variable, " is not set");
  if (facts.elsewhere.empty()) {
    return ok("prefix", facts.named ? named
                                    : concat(named, ": tcpx-p2p sets it to ", facts.wanted,
                                             "; other users of the plugin would look in ", kVendorDefault));
  }
  return fail("prefix", concat(named, facts.named ? ", but" : ", and", " RxDM's sockets are in ", facts.elsewhere),
              facts.named
                  ? "The plugin looks for RxDM where the variable says, and accepts no connection without it."
                  : concat("tcpx-p2p then tells the plugin to look in ", facts.wanted, ", and no connection is accepted."),
              concat("export ", variable, "=", facts.elsewhere));
}

/// Says what is wrong with sockets whose conversations ended alike.
Finding socket_failure(std::string check, const std::string& paths, const ServiceAnswer& answer, const std::string& directory) {
  const auto failure = [&](std::string_view found, std::string_view why, std::string mend = kLookAtRxdm) {
    return fail(std::move(check), concat(found, paths), std::string(why), std::move(mend));
  };
  if (answer.end == ServiceEnd::kAbsent)
    return failure("there is no ", "RxDM does not run, has not finished its start, or does not serve this GPU.");
  if (answer.end == ServiceEnd::kDenied)
    return failure("permission denied: ", "The plugin runs as this user and will be denied, too.",
                   concat("sudo chmod a+rx ", directory, " && sudo chmod a+rw ", directory, "/*   # or run as root"));
  if (answer.end == ServiceEnd::kRefused)
    return failure("nobody listens on ", "An RxDM that has ended left it behind.", concat(kLookAtRxdm, "; then start it again"));
  if (answer.end == ServiceEnd::kClosed)
    return failure("the connection was closed: ", "The plugin takes the end of the connection for progress, and waits for ever.");
  if (answer.end == ServiceEnd::kSilent) return failure("no answer from ", "The plugin would wait for ever: it has no deadline.");
  return failure(concat(answer.detail, ": "), "The plugin will fail in the same way.", concat("ls -l ", directory));
}

/// One finding for all that can be connected to, and one for each way of failing.
void check_sockets(const ServiceFacts& facts, Findings& findings) {
  std::map<ServiceEnd, std::vector<std::string>> alike;
  std::map<ServiceEnd, ServiceAnswer> answers;
  for (const auto& [name, answer] : facts.sockets) alike[answer.end].push_back(name), answers[answer.end] = answer;
  for (const auto& [end, names] : alike) {
    if (end == ServiceEnd::kConnected) {
      findings.push_back(ok("sockets", concat(names.size(), " of ", facts.sockets.size(), " can be connected to")));
      continue;
    }
    const std::vector<std::string> shown(names.begin(), names.begin() + std::min<ptrdiff_t>(std::ssize(names), kMostNames));
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
    const std::string numbers = joined(*ids, ", ", [](int id) { return concat(id); });
    findings.push_back(fail_unless(!ids->empty(), check,
                                   ids->empty() ? "RxDM has no receive queue for this GPU" : concat("receive queues ", numbers),
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
