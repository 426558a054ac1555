// What drivers tell: by the ethtool requests of ioctl(2), and header split, which the kernel calls TCP data split, by the ethtool
// family of generic netlink, which alone tells it.
#include <linux/ethtool.h>
#include <linux/ethtool_netlink.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/netlink.h"
#include "base/unique_fd.h"
#include "doctor/nic.h"

namespace tcpx::doctor {
namespace {

constexpr uint32_t kMostEntries = 64 * 1024;
// The kernel fills in as many entries as there are at that moment, which may be more than it has announced.
constexpr uint32_t kSpareEntries = 1024;
// torvalds/linux: include/uapi/linux/ethtool_netlink_generated.h, since 6.14. Headers of older systems lack it.
constexpr uint16_t kSplitThreshold = 17;  // ETHTOOL_A_RINGS_HDS_THRESH

/// The ethtool requests of ioctl(2) that any user may make.
class Ethtool {
 public:
  explicit Ethtool(const std::string& interface) : interface_(interface) {
    socket_ = UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  }

  /// `request` begins with its command, and the kernel writes the answer into it.
  bool ask(void* request) const {
    ifreq envelope{};
    // A name cut to fit could be another interface's.
    if (!socket_ || interface_.empty() || interface_.size() >= sizeof envelope.ifr_name) return false;
    interface_.copy(envelope.ifr_name, interface_.size());
    envelope.ifr_data = static_cast<char*>(request);
    return ::ioctl(socket_.get(), SIOCETHTOOL, &envelope) == 0;
  }

  std::optional<uint32_t> ask_value(uint32_t command) const {
    ethtool_value request{.cmd = command, .data = 0};
    return ask(&request) ? std::optional(request.data) : std::nullopt;
  }

  /// Names of the entries of a set (ETH_SS_...), in its order.
  std::vector<std::string> names(uint32_t set) const {
    ethtool_sset_info wanted{};
    wanted.cmd = ETHTOOL_GSSET_INFO;
    wanted.sset_mask = uint64_t{1} << set;
    const auto count = value_of<uint32_t>(entries(wanted, sizeof(uint32_t), 1));
    if (!count || wanted.sset_mask == 0 || *count > kMostEntries) return {};
    ethtool_gstrings head{.cmd = ETHTOOL_GSTRINGS, .string_set = set, .len = *count};
    const Bytes texts = entries(head, ETH_GSTRING_LEN, *count);
    std::vector<std::string> names;
    for (size_t at = 0; at < texts.size() && names.size() < head.len; at += ETH_GSTRING_LEN) {
      const char* const name = reinterpret_cast<const char*>(texts.data() + at);
      names.emplace_back(name, ::strnlen(name, ETH_GSTRING_LEN));
    }
    return names;
  }

  std::vector<std::pair<std::string, uint64_t>> statistics() const {
    const std::vector<std::string> names = this->names(ETH_SS_STATS);
    ethtool_stats head{.cmd = ETHTOOL_GSTATS, .n_stats = static_cast<uint32_t>(names.size())};
    const Bytes values = entries(head, sizeof(uint64_t), head.n_stats);
    std::vector<std::pair<std::string, uint64_t>> statistics;
    for (size_t at = 0; at < values.size() && statistics.size() < head.n_stats; at += sizeof(uint64_t))
      statistics.emplace_back(names[statistics.size()], *value_of<uint64_t>(std::span(values).subspan(at, sizeof(uint64_t))));
    return statistics;
  }

 private:
  /// Asks for `count` entries that stand behind `head`, which becomes that of the answer. None when there is no answer.
  template <class Head>
  Bytes entries(Head& head, size_t entry_bytes, uint32_t count) const {
    Bytes answer(sizeof head + size_t{count + kSpareEntries} * entry_bytes);
    std::memcpy(answer.data(), &head, sizeof head);
    if (!ask(answer.data())) return {};
    std::memcpy(&head, answer.data(), sizeof head);
    return Bytes(answer.begin() + sizeof head, answer.begin() + static_cast<ptrdiff_t>(sizeof head + count * entry_bytes));
  }

  std::string interface_;
  UniqueFd socket_;
};

/// Attributes of the answer to ETHTOOL_MSG_RINGS_GET; none where there is no answer.
Bytes ask_rings(const std::string& interface) {
  auto family = GenericFamily::open(ETHTOOL_GENL_NAME);
  if (!family.is_ok()) return {};
  Bytes question;
  append_attribute(question, ETHTOOL_A_RINGS_HEADER | NLA_F_NESTED, text_attribute(ETHTOOL_A_HEADER_DEV_NAME, interface));
  auto answer = family->ask(ETHTOOL_MSG_RINGS_GET, question);
  return answer.is_ok() ? *std::move(answer) : Bytes();
}

}  // namespace

EthtoolAnswers ask_ethtool(const std::string& interface) {
  const Ethtool ethtool(interface);
  const Bytes rings = ask_rings(interface);
  EthtoolAnswers answers{.data_split = data_split_of(rings), .split_threshold = split_threshold_of(rings)};
  const std::vector<std::string> flags = ethtool.names(ETH_SS_PRIV_FLAGS);
  if (const auto set = flags.empty() ? std::nullopt : ethtool.ask_value(ETHTOOL_GPFLAGS)) {
    for (size_t i = 0; i < std::min<size_t>(flags.size(), 32); ++i)
      answers.private_flags.emplace_back(flags[i], (*set >> i & 1) != 0);
  }
  if (const auto features = ethtool.ask_value(ETHTOOL_GFLAGS)) answers.ntuple = (*features & ETH_FLAG_NTUPLE) != 0;
  ethtool_rxnfc rules{};
  rules.cmd = ETHTOOL_GRXCLSRLCNT;
  if (ethtool.ask(&rules)) answers.ntuple_rules = rules.rule_cnt;
  answers.statistics = ethtool.statistics();
  return answers;
}

std::optional<bool> data_split_of(std::span<const std::byte> attributes) {
  const auto attribute = netlink_attribute(attributes, ETHTOOL_A_RINGS_TCP_DATA_SPLIT);
  const auto split = attribute ? value_of<uint8_t>(*attribute) : std::nullopt;
  if (split == ETHTOOL_TCP_DATA_SPLIT_ENABLED) return true;
  if (split == ETHTOOL_TCP_DATA_SPLIT_DISABLED) return false;
  return std::nullopt;
}

std::optional<uint32_t> split_threshold_of(std::span<const std::byte> attributes) {
  const auto attribute = netlink_attribute(attributes, kSplitThreshold);
  return attribute ? value_of<uint32_t>(*attribute) : std::nullopt;
}

}  // namespace tcpx::doctor
