#include "net/devmem/steering.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "net/devmem/netdev.h"

namespace tcpx::devmem {
namespace {

constexpr char kLead[] = "lead flows to a receive queue";
constexpr char kTakeOut[] = "take a receive queue out of the RSS table";

using Kind = SteeringRecord::Kind;

/// The packets that a rule matches, with the fields of both families at the same places.
struct FlowMatch {
  static constexpr size_t kAddress = 16, kBytes = 2 * kAddress + 2 * sizeof(uint16_t) + 1;
  using Fields = std::array<uint8_t, kBytes>;  // source and target address, both ports, type of service

  uint32_t family = 0;  // TCP_V4_FLOW or TCP_V6_FLOW
  Fields values{}, mask{};

  /// Whether this matches every packet that `other` matches.
  bool covers(const FlowMatch& other) const {
    if (family != other.family) return false;
    for (size_t i = 0; i < kBytes; ++i)
      if ((mask[i] & ~other.mask[i]) != 0 || ((values[i] ^ other.values[i]) & mask[i]) != 0) return false;
    return true;
  }
  bool operator==(const FlowMatch& other) const { return covers(other) && other.covers(*this); }
};

template <class Address, class Service>
FlowMatch::Fields fields_of(const Address& from, const Address& to, uint16_t source, uint16_t target, Service service) {
  FlowMatch::Fields fields{};
  static_assert(sizeof from <= FlowMatch::kAddress);
  std::memcpy(fields.data(), &from, sizeof from);
  std::memcpy(fields.data() + FlowMatch::kAddress, &to, sizeof to);
  std::memcpy(fields.data() + 2 * FlowMatch::kAddress, &source, sizeof source);
  std::memcpy(fields.data() + 2 * FlowMatch::kAddress + sizeof source, &target, sizeof target);
  fields.back() = service;
  return fields;
}
FlowMatch::Fields fields_of(const ethtool_tcpip4_spec& spec) {
  return fields_of(spec.ip4src, spec.ip4dst, spec.psrc, spec.pdst, spec.tos);
}
FlowMatch::Fields fields_of(const ethtool_tcpip6_spec& spec) {
  return fields_of(spec.ip6src, spec.ip6dst, spec.psrc, spec.pdst, spec.tclass);
}

/// nullopt: the rule is not of TCP, or asks for more than addresses and ports.
std::optional<FlowMatch> match_of(const ethtool_rx_flow_spec& rule) {
  const uint32_t family = rule.flow_type & ~FLOW_RSS;
  if (family == TCP_V4_FLOW) return FlowMatch{family, fields_of(rule.h_u.tcp_ip4_spec), fields_of(rule.m_u.tcp_ip4_spec)};
  if (family == TCP_V6_FLOW) return FlowMatch{family, fields_of(rule.h_u.tcp_ip6_spec), fields_of(rule.m_u.tcp_ip6_spec)};
  return std::nullopt;
}

bool is_same_rule(const ethtool_rx_flow_spec& one, const ethtool_rx_flow_spec& other) {
  const auto match = match_of(one);
  return match && one.flow_type == other.flow_type && one.ring_cookie == other.ring_cookie && match == match_of(other);
}

ethtool_rx_flow_spec rule_for(const SocketAddress& local, uint32_t queue) {
  constexpr uint16_t kAllOfPort = 0xffff;
  ethtool_rx_flow_spec rule{};
  rule.ring_cookie = queue;
  rule.location = RX_CLS_LOC_ANY;
  const auto lead_ipv4 = [&](const void* address) {
    rule.flow_type = TCP_V4_FLOW;
    std::memcpy(&rule.h_u.tcp_ip4_spec.ip4dst, address, sizeof(in_addr));
    if (rule.h_u.tcp_ip4_spec.ip4dst != htonl(INADDR_ANY)) rule.m_u.tcp_ip4_spec.ip4dst = ~uint32_t{0};
    rule.h_u.tcp_ip4_spec.pdst = htons(local.port());
    rule.m_u.tcp_ip4_spec.pdst = kAllOfPort;
    return rule;
  };
  if (local.family() == AF_INET) return lead_ipv4(&reinterpret_cast<const sockaddr_in*>(local.get())->sin_addr);
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(local.get())->sin6_addr;
  // Packets of an IPv6 socket's IPv4 connections are those of IPv4.
  if (IN6_IS_ADDR_V4MAPPED(&address)) return lead_ipv4(&address.s6_addr[12]);
  rule.flow_type = TCP_V6_FLOW;
  std::memcpy(rule.h_u.tcp_ip6_spec.ip6dst, &address, sizeof address);
  if (!IN6_IS_ADDR_UNSPECIFIED(&address)) std::memset(rule.m_u.tcp_ip6_spec.ip6dst, 0xff, sizeof address);
  rule.h_u.tcp_ip6_spec.pdst = htons(local.port());
  rule.m_u.tcp_ip6_spec.pdst = kAllOfPort;
  return rule;
}

/// Whether somebody listens where a rule of ours leads. Binding a socket there fails then, and only then when it may reuse an
/// address. Without the right to try, somebody may.
bool is_listened_to(const ethtool_rx_flow_spec& rule) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = rule.h_u.tcp_ip4_spec.ip4dst;
  v4.sin_port = rule.h_u.tcp_ip4_spec.pdst;
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  std::memcpy(&v6.sin6_addr, rule.h_u.tcp_ip6_spec.ip6dst, sizeof v6.sin6_addr);
  v6.sin6_port = rule.h_u.tcp_ip6_spec.pdst;
  const bool is_v6 = rule.flow_type == TCP_V6_FLOW;
  const UniqueFd socket(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(socket.get(), SOL_IP, IP_FREEBIND, &on, sizeof on);  // the address may be gone
  if (is_v6) ::setsockopt(socket.get(), SOL_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const int bound = is_v6 ? ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&v6), sizeof v6)
                          : ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  return bound != 0 && (errno == EADDRINUSE || errno == EACCES);
}

bool never(const ethtool_rx_flow_spec&) {
  return false;
}

/// An RSS table without some queues: their entries go to the others in turn. Empty when no other is in it.
std::vector<uint32_t> without(const std::vector<uint32_t>& table, const std::set<uint32_t>& queues) {
  std::set<uint32_t> others(table.begin(), table.end());
  for (const uint32_t queue : queues) others.erase(queue);
  if (others.empty()) return {};
  std::vector<uint32_t> out = table;
  auto next = others.begin();
  for (uint32_t& entry : out) {
    if (queues.count(entry) == 0) continue;
    entry = *next;
    if (++next == others.end()) next = others.begin();
  }
  return out;
}

/// The queues that are taken out of a table by these records.
std::set<uint32_t> taken_out(const std::vector<SteeringRecordFile>& records, const std::vector<uint32_t>& table) {
  std::set<uint32_t> queues;
  for (const auto& each : records)
    if (each.record().kind == Kind::kRssTable && each.record().table == table) queues.insert(each.record().queue);
  return queues;
}

Status undo_rule(const FlowTable& table, const SteeringRecord& record, const std::vector<SteeringRecordFile>& others) {
  // As long as others of us need it, it stays.
  for (const auto& each : others)
    if (each.record().kind == Kind::kRule && is_same_rule(each.record().rule, record.rule)) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto rules, table.rules());
  for (const NtupleRule& each : rules) {
    // A rule that stands at its place and differs is another's.
    if (record.rule.location != RX_CLS_LOC_ANY && each.spec.location != record.rule.location) continue;
    if (is_same_rule(each.spec, record.rule)) return table.remove(each.spec.location);
  }
  return Status::ok();
}

/// Whether a table is the driver's default. It is put back as such: one that was set stands in the way of fewer queues later.
bool is_default(const FlowTable& table, const std::vector<uint32_t>& queues) {
  const auto count = table.queue_count();
  if (!count.is_ok() || *count == 0) return false;
  for (size_t i = 0; i < queues.size(); ++i)
    if (queues[i] != i % *count) return false;  // torvalds/linux: ethtool_rxfh_indir_default
  return true;
}

Status undo_table(const FlowTable& table, const SteeringRecord& record, const std::vector<SteeringRecordFile>& others) {
  const std::set<uint32_t> remain = taken_out(others, record.table);
  std::set<uint32_t> all = remain;
  all.insert(record.queue);
  TCPX_ASSIGN_OR_RETURN(const auto now, table.rss());
  if (now != without(record.table, all)) return Status::ok();  // somebody else has set it since
  const std::vector<uint32_t> before = without(record.table, remain);
  if (now == before) return Status::ok();
  if (remain.empty() && is_default(table, before)) return table.set_rss({});
  return table.set_rss(before);
}

/// Undoes a change, and removes its record unless that failed: then the next process tries again.
void undo(const FlowTable& table, SteeringRecordFile& file, const std::vector<SteeringRecordFile>& others) {
  const SteeringRecord& record = file.record();
  const Status status = record.kind == Kind::kRule ? undo_rule(table, record, others) : undo_table(table, record, others);
  if (status.is_ok() || status.code() == Code::kNotFound)
    file.remove();
  else
    log(LogLevel::kWarning, "net/devmem: the steering of ", table.interface(), " stays changed: ", status.to_string());
}

}  // namespace

SteeringChange::Held::~Held() {
  if (process != ::getpid()) return;
  const auto lock = records.lock();
  if (!lock.is_ok()) {
    log(LogLevel::kWarning, "net/devmem: the steering of ", table.interface(), " stays changed: ", lock.status().to_string());
    return;
  }
  auto others = records.read();
  if (!others.is_ok()) {
    log(LogLevel::kWarning, "net/devmem: the steering of ", table.interface(), " stays changed: ", others.status().to_string());
    return;
  }
  std::erase_if(*others, [&](const auto& each) { return each.path() == file.path(); });
  undo(table, file, *others);
}

Result<Steering> Steering::open(EthtoolCalls& calls, const std::string& interface, const std::string& directory) {
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, interface_index(interface));
  TCPX_ASSIGN_OR_RETURN(SteeringRecords records, SteeringRecords::open(directory, index));
  Steering steering(FlowTable(calls, interface), std::move(records));
  TCPX_ASSIGN_OR_RETURN(const UniqueFd lock, steering.records_.lock());
  TCPX_RETURN_IF_ERROR(steering.undo_left(never));
  return steering;
}

Status Steering::undo_all_left() {
  TCPX_ASSIGN_OR_RETURN(const UniqueFd lock, records_.lock());
  return undo_left([](const ethtool_rx_flow_spec&) { return true; });
}

template <class Goes>
Status Steering::undo_left(const Goes& goes) {
  TCPX_ASSIGN_OR_RETURN(std::vector<SteeringRecordFile> files, records_.read());
  for (size_t i = 0; i < files.size();) {
    const SteeringRecord& record = files[i].record();
    if (!files[i].is_left() || (record.kind == Kind::kRule && !goes(record.rule) && is_listened_to(record.rule))) {
      ++i;
      continue;
    }
    SteeringRecordFile left = std::move(files[i]);
    files.erase(files.begin() + static_cast<ptrdiff_t>(i));
    undo(table_, left, files);
  }
  return Status::ok();
}

template <class Change>
Result<SteeringChange> Steering::make(SteeringRecord record, const Change& change) {
  // The record comes first: a process that dies between the two leaves nothing that nobody knows of.
  TCPX_ASSIGN_OR_RETURN(SteeringRecordFile file, records_.add(std::move(record)));
  if (const Status status = change(file); !status.is_ok()) {
    file.remove();
    return status;
  }
  return SteeringChange(
      std::unique_ptr<SteeringChange::Held>(new SteeringChange::Held{table_, records_, std::move(file), ::getpid()}));
}

Result<SteeringChange> Steering::lead(const SocketAddress& local, uint32_t queue) {
  const ethtool_rx_flow_spec wanted = rule_for(local, queue);
  const FlowMatch flows = *match_of(wanted);
  TCPX_ASSIGN_OR_RETURN(const UniqueFd lock, records_.lock());
  // The port is the caller's.
  TCPX_RETURN_IF_ERROR(undo_left([&](const ethtool_rx_flow_spec& rule) { return match_of(rule) == flows; }));
  const auto spreads_to_queue = [&](uint32_t context, uint64_t offset) {
    const auto table = table_.rss(context);
    return table.is_ok() && std::all_of(table->begin(), table->end(), [&](uint32_t entry) { return entry + offset == queue; });
  };
  const auto rules = table_.rules();
  for (const NtupleRule& rule : rules.is_ok() ? *rules : std::vector<NtupleRule>{}) {
    const auto match = match_of(rule.spec);
    if (!match || !match->covers(flows)) continue;
    const bool spreads = (rule.spec.flow_type & FLOW_RSS) != 0;
    if (spreads ? !spreads_to_queue(rule.rss_context, rule.spec.ring_cookie) : rule.spec.ring_cookie != queue)
      return Status(Code::kMismatch, kLead,
                    concat("rule ", rule.spec.location, " leads the packets for ", local.to_string(), " elsewhere: ethtool -N ",
                           table_.interface(), " delete ", rule.spec.location));
    TCPX_ASSIGN_OR_RETURN(const auto records, records_.read());
    for (const SteeringRecordFile& each : records) {
      const SteeringRecord& record = each.record();
      // As long as one of us needs it, it stays.
      if (record.kind == Kind::kRule && record.rule.location == rule.spec.location && is_same_rule(record.rule, rule.spec))
        return make(record, [](SteeringRecordFile&) { return Status::ok(); });
    }
    return SteeringChange();
  }
  if (spreads_to_queue(0, 0)) return SteeringChange();
  TCPX_RETURN_IF_ERROR(rules.status());
  return make({Kind::kRule, queue, wanted, {}}, [&](SteeringRecordFile& file) -> Status {
    TCPX_ASSIGN_OR_RETURN(const uint32_t location, table_.insert(wanted));
    const Status status = file.place_rule(location);
    if (!status.is_ok()) (void)table_.remove(location);
    return status;
  });
}

Result<SteeringChange> Steering::take_out_of_rss(uint32_t queue) {
  TCPX_ASSIGN_OR_RETURN(const UniqueFd lock, records_.lock());
  TCPX_RETURN_IF_ERROR(undo_left(never));
  TCPX_ASSIGN_OR_RETURN(std::vector<uint32_t> table, table_.rss());
  // What others of us have taken out of it comes back when they end, so the table before all of us is what counts.
  TCPX_ASSIGN_OR_RETURN(const std::vector<SteeringRecordFile> records, records_.read());
  std::set<uint32_t> taken;
  for (const auto& each : records) {
    if (each.record().kind != Kind::kRssTable || table != without(each.record().table, taken_out(records, each.record().table)))
      continue;
    table = each.record().table;
    taken = taken_out(records, table);
    break;
  }
  if (std::count(table.begin(), table.end(), queue) == 0) return SteeringChange();
  taken.insert(queue);
  const std::vector<uint32_t> changed = without(table, taken);
  if (changed.empty())
    return Status(Code::kUnsupported, kTakeOut, concat("no other queue of ", table_.interface(), " is left for other packets"));
  return make({Kind::kRssTable, queue, {}, table}, [&](SteeringRecordFile&) { return table_.set_rss(changed); });
}

}  // namespace tcpx::devmem
