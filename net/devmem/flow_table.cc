#include "net/devmem/flow_table.h"

#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/text.h"
#include "base/unique_fd.h"

namespace tcpx::devmem {
namespace {

constexpr uint32_t kMostRules = 64 * 1024, kMostEntries = 64 * 1024;
constexpr uint32_t kSpareRules = 64;  // that others add between two requests

constexpr char kListRules[] = "list the ntuple rules";
constexpr char kInsertRule[] = "insert an ntuple rule";
constexpr char kReadTable[] = "read the RSS table";

class RealEthtoolCalls final : public EthtoolCalls {
 public:
  int ethtool(const std::string& interface, void* request) override {
    ifreq envelope{};
    // A name cut to fit could be another interface's.
    if (interface.empty() || interface.size() >= sizeof envelope.ifr_name) {
      errno = ENODEV;
      return -1;
    }
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return -1;
    interface.copy(envelope.ifr_name, interface.size());
    envelope.ifr_data = static_cast<char*>(request);
    return ::ioctl(socket.get(), SIOCETHTOOL, &envelope);
  }
};

/// A request with room for `count` numbers behind its head.
template <class Head>
std::vector<uint32_t> with_room(const Head& head, size_t count) {
  static_assert(sizeof head % sizeof(uint32_t) == 0);
  std::vector<uint32_t> request(sizeof head / sizeof(uint32_t) + count);
  std::memcpy(request.data(), &head, sizeof head);
  return request;
}

Code code_of_ethtool(int error) {
  switch (error) {
    case EOPNOTSUPP:
    case EINVAL:
      return Code::kUnsupported;
    case ENOSPC:
      return Code::kExhausted;
    case ENODEV:
      return Code::kNotFound;
    default:
      return Code::kSystem;
  }
}

std::string cure_of_ethtool(int error, uint32_t command, const std::string& interface) {
  const bool is_table = command == ETHTOOL_GRSSH || command == ETHTOOL_SRSSH;
  switch (error) {
    case EPERM:
      return "changing it needs CAP_NET_ADMIN over the network namespace";
    case EOPNOTSUPP:
      return is_table ? "the driver has no RSS table"
                      : concat("the driver takes no such rules, or they are off: ethtool -K ", interface, " ntuple on");
    case ENOSPC:
      return concat("the NIC's rule table is full: ethtool -n ", interface, " lists it");
    case EINVAL:
      return is_table ? "the table is not one that the driver takes" : "is there such a receive queue?";
    case EEXIST:
      return concat("there is such a rule for another queue: ethtool -n ", interface, " lists it");
    case ENODEV:
      return concat("there is no interface ", interface, " in this network namespace");
    default:
      return "the driver refuses it";
  }
}

}  // namespace

EthtoolCalls& EthtoolCalls::real() {
  static RealEthtoolCalls calls;
  return calls;
}

Status FlowTable::ask(void* request, const char* operation) const {
  if (calls_->ethtool(interface_, request) == 0) return Status::ok();
  const int error = errno;
  uint32_t command;
  std::memcpy(&command, request, sizeof command);
  return Status(code_of_ethtool(error), operation, cure_of_ethtool(error, command, interface_), Domain::kErrno, error);
}

Result<std::vector<uint32_t>> FlowTable::locations(uint32_t& size, bool& nic_chooses) const {
  ethtool_rxnfc head{};
  head.cmd = ETHTOOL_GRXCLSRLCNT;
  TCPX_RETURN_IF_ERROR(ask(&head, kListRules));
  nic_chooses = (head.data & RX_CLS_LOC_SPECIAL) != 0;
  const uint32_t room = std::min(head.rule_cnt, kMostRules) + kSpareRules;
  head = {};
  head.cmd = ETHTOOL_GRXCLSRLALL;
  head.rule_cnt = room;
  std::vector<uint32_t> request = with_room(head, room);
  TCPX_RETURN_IF_ERROR(ask(request.data(), kListRules));
  std::memcpy(&head, request.data(), sizeof head);
  if (head.rule_cnt > room) return Status(Code::kProtocol, kListRules, "the driver tells of more rules than there is room for");
  size = static_cast<uint32_t>(std::min<uint64_t>(head.data, kMostRules));
  const auto first = request.begin() + offsetof(ethtool_rxnfc, rule_locs) / sizeof(uint32_t);  // which is in its padding
  std::vector<uint32_t> locations(first, first + head.rule_cnt);
  std::sort(locations.begin(), locations.end());
  return locations;
}

Result<std::vector<NtupleRule>> FlowTable::rules() const {
  uint32_t size = 0;
  bool nic_chooses = false;
  TCPX_ASSIGN_OR_RETURN(const auto locations, this->locations(size, nic_chooses));
  std::vector<NtupleRule> rules;
  for (const uint32_t location : locations) {
    ethtool_rxnfc request{};
    request.cmd = ETHTOOL_GRXCLSRULE;
    request.fs.location = location;
    const Status status = ask(&request, kListRules);
    if (status.native() == ENOENT) continue;  // removed meanwhile
    TCPX_RETURN_IF_ERROR(status);
    request.fs.location = location;
    rules.push_back({request.fs, request.rss_context});
  }
  return rules;
}

Result<uint32_t> FlowTable::insert(ethtool_rx_flow_spec rule) const {
  uint32_t size = 0;
  bool nic_chooses = false;
  TCPX_ASSIGN_OR_RETURN(const auto taken, locations(size, nic_chooses));
  rule.location = RX_CLS_LOC_ANY;
  if (!nic_chooses) {
    // Inserting at a location in use would replace the rule there.
    while (size > 0 && std::binary_search(taken.begin(), taken.end(), size - 1)) --size;
    if (size == 0)
      return Status(Code::kExhausted, kInsertRule, cure_of_ethtool(ENOSPC, ETHTOOL_SRXCLSRLINS, interface_), Domain::kErrno,
                    ENOSPC);
    rule.location = size - 1;
  }
  ethtool_rxnfc request{};
  request.cmd = ETHTOOL_SRXCLSRLINS;
  request.fs = rule;
  TCPX_RETURN_IF_ERROR(ask(&request, kInsertRule));
  return request.fs.location;
}

Status FlowTable::remove(uint32_t location) const {
  ethtool_rxnfc request{};
  request.cmd = ETHTOOL_SRXCLSRLDEL;
  request.fs.location = location;
  const Status status = ask(&request, "remove an ntuple rule");
  return status.native() == ENOENT ? Status::ok() : status;
}

Result<std::vector<uint32_t>> FlowTable::rss(uint32_t context) const {
  ethtool_rxfh head{};
  head.cmd = ETHTOOL_GRSSH;
  head.rss_context = context;
  TCPX_RETURN_IF_ERROR(ask(&head, kReadTable));
  const uint32_t count = head.indir_size;
  if (count == 0 || count > kMostEntries) return Status(Code::kUnsupported, kReadTable, "the driver has no RSS table");
  head = {};
  head.cmd = ETHTOOL_GRSSH;
  head.rss_context = context;
  head.indir_size = count;
  std::vector<uint32_t> request = with_room(head, count);
  TCPX_RETURN_IF_ERROR(ask(request.data(), kReadTable));
  return std::vector<uint32_t>(request.end() - count, request.end());
}

Result<uint64_t> FlowTable::queue_count() const {
  ethtool_rxnfc request{};
  request.cmd = ETHTOOL_GRXRINGS;
  TCPX_RETURN_IF_ERROR(ask(&request, "count the receive queues"));
  return request.data;
}

Status FlowTable::set_rss(std::span<const uint32_t> queues) const {
  ethtool_rxfh head{};
  head.cmd = ETHTOOL_GRSSH;
  TCPX_RETURN_IF_ERROR(ask(&head, kReadTable));
  head.cmd = ETHTOOL_SRSSH;
  head.indir_size = static_cast<uint32_t>(queues.size());
  // The hash stays: no key and no function, and what stands behind the function is as it was told. Linux 6.8 made that byte, which
  // had to be 0, the transformation of the hash's input.
  head.key_size = 0;
  head.hfunc = 0;
  std::vector<uint32_t> request = with_room(head, queues.size());
  std::copy(queues.begin(), queues.end(), request.end() - static_cast<ptrdiff_t>(queues.size()));
  return ask(request.data(), "set the RSS table");
}

}  // namespace tcpx::devmem
