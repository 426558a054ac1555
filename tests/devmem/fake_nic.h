// A NIC with ntuple rules and RSS tables, as far as the ethtool requests show it (torvalds/linux: net/ethtool/ioctl.c).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

#include "net/devmem/flow_table.h"

namespace tcpx::testing {

class FakeNic final : public devmem::EthtoolCalls {
 public:
  static constexpr uint32_t kQueues = 4;

  uint32_t size = 8;           // rules that there is room for
  bool chooses = true;         // the locations of rules
  bool forgets_rules = false;  // lists rules that are gone when asked for
  std::map<uint32_t, ethtool_rxnfc> rules;
  std::map<uint32_t, std::vector<uint32_t>> tables = {{0, {0, 1, 2, 3, 0, 1, 2, 3}}};
  std::map<uint32_t, int> refuses;  // errno by command
  uint8_t transformation = 3;       // of the hash's input: what stands behind the function
  size_t resets = 0;                // of the table to the driver's default

  /// What an administrator adds: TCP over IPv4 to 127.0.0.1 and this port.
  ethtool_rxnfc& add(uint32_t location, uint16_t port, uint64_t queue) {
    ethtool_rxnfc& rule = rules[location];
    rule = {};
    rule.fs.flow_type = TCP_V4_FLOW;
    rule.fs.ring_cookie = queue;
    rule.fs.location = location;
    rule.fs.h_u.tcp_ip4_spec.ip4dst = htonl(INADDR_LOOPBACK);
    rule.fs.m_u.tcp_ip4_spec.ip4dst = ~uint32_t{0};
    rule.fs.h_u.tcp_ip4_spec.pdst = htons(port);
    rule.fs.m_u.tcp_ip4_spec.pdst = 0xffff;
    return rule;
  }

  int ethtool(const std::string& interface, void* request) override {
    EXPECT_EQ(interface, "lo");
    uint32_t command;
    std::memcpy(&command, request, sizeof command);
    if (const auto found = refuses.find(command); found != refuses.end()) return fail(found->second);
    if (command == ETHTOOL_GRSSH || command == ETHTOOL_SRSSH) return table(*static_cast<ethtool_rxfh*>(request));
    return rule(*static_cast<ethtool_rxnfc*>(request));
  }

 private:
  static int fail(int error) {
    errno = error;
    return -1;
  }

  int rule(ethtool_rxnfc& request) {
    uint32_t at = request.fs.location;
    switch (request.cmd) {
      case ETHTOOL_GRXRINGS:
        request.data = kQueues;
        return 0;
      case ETHTOOL_GRXCLSRLCNT:
        request.rule_cnt = static_cast<uint32_t>(rules.size());
        request.data = size | (chooses ? RX_CLS_LOC_SPECIAL : 0);
        return 0;
      case ETHTOOL_GRXCLSRLALL: {
        if (request.rule_cnt < rules.size()) return fail(EMSGSIZE);
        std::byte* place = reinterpret_cast<std::byte*>(&request) + offsetof(ethtool_rxnfc, rule_locs);
        request.rule_cnt = static_cast<uint32_t>(rules.size());
        request.data = size;
        // The lowest location comes last: no order is promised.
        for (auto each = rules.rbegin(); each != rules.rend(); ++each, place += sizeof(uint32_t))
          std::memcpy(place, &each->first, sizeof(uint32_t));
        return 0;
      }
      case ETHTOOL_GRXCLSRULE: {
        if (rules.count(at) == 0 || forgets_rules) return fail(ENOENT);
        const uint32_t command = request.cmd;
        request = rules[at];
        request.cmd = command;
        return 0;
      }
      case ETHTOOL_SRXCLSRLINS:
        if (request.fs.ring_cookie >= kQueues) return fail(EINVAL);
        if (at == RX_CLS_LOC_ANY && !chooses) return fail(EINVAL);
        if (at == RX_CLS_LOC_ANY)
          for (at = 0; rules.count(at) != 0;) ++at;
        if (at >= size) return fail(ENOSPC);
        request.fs.location = at;
        rules[at] = request;
        return 0;
      case ETHTOOL_SRXCLSRLDEL:
        return rules.erase(at) == 1 ? 0 : fail(ENOENT);
      default:
        return fail(EOPNOTSUPP);
    }
  }

  int table(ethtool_rxfh& request) {
    const auto found = tables.find(request.rss_context);
    if (found == tables.end()) return fail(ENOENT);
    std::vector<uint32_t>& queues = found->second;
    std::byte* const entries = reinterpret_cast<std::byte*>(&request) + sizeof request;
    const auto count = static_cast<uint32_t>(queues.size());
    if (request.indir_size != 0 && request.indir_size != count) return fail(EINVAL);
    if (request.cmd == ETHTOOL_GRSSH) {
      if (request.indir_size != 0) std::memcpy(entries, queues.data(), count * sizeof(uint32_t));
      request.indir_size = count;
      request.key_size = 40;
      request.hfunc = 1;
      std::memcpy(reinterpret_cast<std::byte*>(&request) + offsetof(ethtool_rxfh, hfunc) + 1, &transformation, 1);
      return 0;
    }
    EXPECT_EQ(request.key_size, 0u);
    EXPECT_EQ(request.hfunc, 0);
    std::memcpy(&transformation, reinterpret_cast<std::byte*>(&request) + offsetof(ethtool_rxfh, hfunc) + 1, 1);
    if (request.indir_size != 0) {
      std::memcpy(queues.data(), entries, count * sizeof(uint32_t));
      return 0;
    }
    ++resets;
    for (uint32_t i = 0; i < count; ++i) queues[i] = i % kQueues;
    return 0;
  }
};

}  // namespace tcpx::testing
