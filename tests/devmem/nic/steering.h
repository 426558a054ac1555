/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The ntuple rules and the RSS table of an end of the wire. A device's private data begins with them.
 *
 * Packets are compared with rules while ethtool changes them, so a rule that is not used yet, or no longer, is one that no packet is
 * compared with.
 */
#pragma once

#include <linux/ethtool.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/tcp.h>

#define RULES 4
#define TABLE 8

struct rule {
  bool used; /* written after the rest */
  struct ethtool_rx_flow_spec flow;
};

struct steering {
  struct rule rule[RULES];
  u32 table[TABLE];
};

static void steer_by_default(struct steering* steering) {
  int i;

  for (i = 0; i < TABLE; i++) steering->table[i] = ethtool_rxfh_indir_default(i, QUEUES);
}

static bool matches(const struct ethtool_rx_flow_spec* flow, const struct sk_buff* skb) {
  const struct ethtool_tcpip4_spec *v4 = &flow->h_u.tcp_ip4_spec, *mask4 = &flow->m_u.tcp_ip4_spec;
  const struct ethtool_tcpip6_spec *v6 = &flow->h_u.tcp_ip6_spec, *mask6 = &flow->m_u.tcp_ip6_spec;
  __be16 port = tcp_hdr(skb)->dest;
  int i;

  if ((flow->flow_type == TCP_V4_FLOW) != (skb->protocol == htons(ETH_P_IP))) return false;
  if (flow->flow_type == TCP_V4_FLOW)
    return !((v4->ip4dst ^ ip_hdr(skb)->daddr) & mask4->ip4dst) && !((v4->pdst ^ port) & mask4->pdst);
  for (i = 0; i < 4; i++)
    if ((v6->ip6dst[i] ^ ipv6_hdr(skb)->daddr.s6_addr32[i]) & mask6->ip6dst[i]) return false;
  return !((v6->pdst ^ port) & mask6->pdst);
}

/* The queue by which a packet of TCP is received: the first, for one that is not there any longer. */
static unsigned int steer(const struct steering* steering, const struct sk_buff* skb, unsigned int queues) {
  unsigned int queue = READ_ONCE(steering->table[ntohs(tcp_hdr(skb)->source) % TABLE]);
  int i;

  for (i = 0; i < RULES; i++)
    if (smp_load_acquire(&steering->rule[i].used) && matches(&steering->rule[i].flow, skb)) {
      queue = steering->rule[i].flow.ring_cookie;
      break;
    }
  return queue < queues ? queue : 0;
}

static int get_rules(struct net_device* dev, struct ethtool_rxnfc* command, u32* locations) {
  struct steering* steering = netdev_priv(dev);
  u32 i, used = 0;

  if (command->cmd == ETHTOOL_GRXCLSRULE) {
    i = command->fs.location;
    if (i >= RULES || !steering->rule[i].used) return -ENOENT;
    command->fs = steering->rule[i].flow;
    return 0;
  }
  if (command->cmd != ETHTOOL_GRXCLSRLCNT && command->cmd != ETHTOOL_GRXCLSRLALL) return -EOPNOTSUPP;
  for (i = 0; i < RULES; i++) {
    if (!steering->rule[i].used) continue;
    if (command->cmd == ETHTOOL_GRXCLSRLALL) {
      if (used == command->rule_cnt) return -EMSGSIZE;
      locations[used] = i;
    }
    used++;
  }
  command->data = command->cmd == ETHTOOL_GRXCLSRLCNT ? RULES | RX_CLS_LOC_SPECIAL : RULES;
  command->rule_cnt = used;
  return 0;
}

static int set_rule(struct net_device* dev, struct ethtool_rxnfc* command) {
  struct steering* steering = netdev_priv(dev);
  u32 i = command->fs.location;

  if (command->cmd == ETHTOOL_SRXCLSRLDEL) {
    if (i >= RULES || !steering->rule[i].used) return -ENOENT;
    WRITE_ONCE(steering->rule[i].used, false);
    return 0;
  }
  if (command->cmd != ETHTOOL_SRXCLSRLINS) return -EOPNOTSUPP;
  if (command->fs.flow_type != TCP_V4_FLOW && command->fs.flow_type != TCP_V6_FLOW) return -EOPNOTSUPP;
  if (command->fs.ring_cookie >= QUEUES) return -EINVAL;
  if (i == RX_CLS_LOC_ANY)
    for (i = 0; i < RULES && steering->rule[i].used; i++)
      ;
  if (i >= RULES) return -ENOSPC;
  WRITE_ONCE(steering->rule[i].used, false);
  synchronize_net(); /* no packet is compared with the one before */
  command->fs.location = i;
  steering->rule[i].flow = command->fs;
  smp_store_release(&steering->rule[i].used, true);
  return 0;
}

static u32 queue_count(struct net_device* dev) {
  return dev->real_num_rx_queues;
}

static void get_channels(struct net_device* dev, struct ethtool_channels* channels) {
  channels->max_combined = QUEUES;
  channels->combined_count = dev->real_num_rx_queues;
}

/*
 * The kernel has refused already when memory is bound to a queue that is to go. Transmit queues stay: it does not hold the lock that
 * takes here.
 */
static int set_channels(struct net_device* dev, struct ethtool_channels* channels) {
  struct steering* steering = netdev_priv(dev);
  int i;

  if (!netif_is_rxfh_configured(dev))
    for (i = 0; i < TABLE; i++) WRITE_ONCE(steering->table[i], ethtool_rxfh_indir_default(i, channels->combined_count));
  return netif_set_real_num_rx_queues(dev, channels->combined_count);
}

static u32 table_size(struct net_device* dev) {
  return TABLE;
}

static int get_table(struct net_device* dev, struct ethtool_rxfh_param* table) {
  if (table->indir) memcpy(table->indir, ((struct steering*)netdev_priv(dev))->table, sizeof(u32) * TABLE);
  return 0;
}

static int set_table(struct net_device* dev, struct ethtool_rxfh_param* table, struct netlink_ext_ack* extack) {
  int i;

  for (i = 0; table->indir && i < TABLE; i++) WRITE_ONCE(((struct steering*)netdev_priv(dev))->table[i], table->indir[i]);
  return 0;
}

static const struct ethtool_ops ethtool_ops = {
    .get_channels = get_channels,
    .set_channels = set_channels,
    .get_rxnfc = get_rules,
    .set_rxnfc = set_rule,
    .get_rx_ring_count = queue_count,
    .get_rxfh_indir_size = table_size,
    .get_rxfh = get_table,
    .set_rxfh = set_table,
};
