#include "endpoint/whereabouts.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "base/text.h"
#include "base/words.h"
#include "endpoint/same_host.h"

namespace tcpx {
namespace {

constexpr std::string_view kMend = "set public_address, or NCCL_GPUDIRECTTCPX_SOCKET_IFNAME to the NIC that leads to the others";

bool is_loopback(const std::string& host) {
  if (!is_numeric(host)) return false;
  const auto address = resolve(host, 0);
  return address.is_ok() && address->front().is_loopback();
}

bool is_wildcard(const SocketAddress& address) {
  return address.host() == "::" || address.host() == "0.0.0.0";
}

}  // namespace

uint64_t network_of_thread() {
  const std::string boot = boot_id();
  struct stat space {};
  if (boot.empty() || ::stat("/proc/thread-self/ns/net", &space) != 0) return 0;
  uint64_t number = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : concat(boot, space.st_ino)) number = (number ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return number;
}

Result<Whereabouts> whereabouts(const EndpointConfig& config, const SocketAddress& listens, const std::vector<SocketAddress>& own,
                                const std::string& unused) {
  if (!config.public_address.empty()) {
    const std::string& hosts = config.public_address;
    TCPX_RETURN_IF_ERROR(split_hosts(hosts).status());
    if (!std::all_of(hosts.begin(), hosts.end(), [](unsigned char c) { return std::isgraph(c) != 0; }))
      return Status(Code::kInvalidArgument, "read hosts", concat("\"", hosts, "\" has a blank, or is not printable"));
    return Whereabouts{hosts};
  }
  if (!config.listen_address.empty() && !is_wildcard(listens)) {
    const std::string& name = config.listen_address;
    const bool meant = is_numeric(name) || name.find("localhost") != std::string::npos;
    if (meant || !listens.is_loopback()) return Whereabouts{listens.host()};
    return Whereabouts{
        listens.host(),
        concat("listens on ", name, ", which is ", listens.host(),
               " here: other hosts cannot connect. Listen on the address of a NIC, or on all (no listen_address); Debian's "
               "/etc/hosts gives a host's own name that address"),
        LogLevel::kWarning};
  }
  std::vector<std::string> hosts;
  for (const SocketAddress& address : own) {
    if (listens.family() == AF_INET6 || address.family() == AF_INET) hosts.push_back(address.host());
  }
  if (hosts.empty()) hosts.push_back(SocketAddress::loopback(0).host());
  Whereabouts told{joined(hosts, ",")};
  if (!std::all_of(hosts.begin(), hosts.end(), is_loopback)) return told;
  const bool other_family = !own.empty() && !own.front().is_loopback();
  const std::string left = other_family ? own.front().host() : unused;
  if (left.empty()) {
    told.line = concat("no NIC leads to other hosts: only this one can connect, by ", told.hosts);
  } else {
    told.line = concat("other hosts are told ", told.hosts, ", and cannot connect; ", left, " is not used",
                       other_family ? ", because only IPv4 is listened on" : "", ": ", kMend);
    told.level = LogLevel::kWarning;
  }
  return told;
}

std::string open_hosts(const EndpointConfig& config, const SocketAddress& listens, const std::vector<std::string>& nics) {
  if (!config.listen_address.empty()) return listens.is_loopback() ? "" : listens.host();
  std::vector<std::string> open;
  std::copy_if(nics.begin(), nics.end(), std::back_inserter(open), [](const auto& host) { return !is_loopback(host); });
  return joined(open, ",");
}

PeerHosts hosts_to_try(const EndpointMetadata& peer, uint64_t here) {
  const auto hosts = split_hosts(peer.host);
  if (!hosts.is_ok() || peer.network == 0 || here == 0 || peer.network == here) return {peer.host};
  std::vector<std::string> reachable;
  std::copy_if(hosts->begin(), hosts->end(), std::back_inserter(reachable), [](const auto& host) { return !is_loopback(host); });
  if (reachable.empty()) return {peer.host, true};
  return {joined(reachable, ",")};
}

Status explain_foreign_loopback(const Status& why, const std::string& hosts) {
  return {Code::kPeerGone, why.operation(),
          concat(why.detail(), "; the peer is on another host, or in another network namespace, and tells only of loopback, ",
                 hosts, ": there, ", kMend),
          why.domain(), why.native()};
}

}  // namespace tcpx
