// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Two network interfaces, wire0 and wire1, with a wire between them, for tests of device-memory TCP in a virtual machine.
 *
 * A driver may take dma-bufs as receive memory when it can restart single queues, splits headers from payload, and never looks at
 * payload itself. This one does all of it, with a memcpy where hardware has DMA. Each end has two receive queues, ntuple rules for
 * TCP to an address and port, and an RSS table for other TCP.
 *
 * A DMA address is taken for a physical one, which holds without an IOMMU, and payload must lie in memory that the processor can
 * read, as that of /dev/udmabuf does. For Linux 7.3: the operations on queues change from release to release.
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/tcp.h>
#include <net/netdev_queues.h>
#include <net/netdev_rx_queue.h>
#include <net/page_pool/helpers.h>
#include <net/rtnetlink.h>

#define QUEUES 2
#include "steering.h"

#define LONGEST 60000 /* of a segment that crosses in one piece: its pages fit into one sk_buff */
#define MOST_WAITING 512

/* Faults, of packets with TCP payload; 0 is none. */
static uint linear_bytes, whole_every, lose_every, reorder_every;
module_param(linear_bytes, uint, 0644);
MODULE_PARM_DESC(linear_bytes, "so many bytes of payload stay with the headers");
module_param(whole_every, uint, 0644);
MODULE_PARM_DESC(whole_every, "each packet of this number is not split");
module_param(lose_every, uint, 0644);
MODULE_PARM_DESC(lose_every, "each packet of this number is lost");
module_param(reorder_every, uint, 0644);
MODULE_PARM_DESC(reorder_every, "each packet of this number, 2 or more, comes after the next one");

struct queue {
  struct napi_struct napi;
  struct sk_buff_head wire; /* sent by the other end, and still its packets */
  struct page_pool* pool;
  u64 payloads, taken;
};

struct end {
  struct steering steering; /* first: steering.h */
  struct net_device* dev;
  struct end* other;
  struct queue queue[QUEUES];
};

static struct platform_device* bus; /* for which dma-bufs are mapped */
static struct net_device* ends[2];

/* Bytes of all headers, 0 unless it is TCP. The stack has left the places of the headers in what it sends. */
static unsigned int tcp_headers(const struct sk_buff* skb) {
  if (!skb_transport_header_was_set(skb)) return 0;
  if (skb->protocol != htons(ETH_P_IP) && skb->protocol != htons(ETH_P_IPV6)) return 0;
  if ((skb->protocol == htons(ETH_P_IP) ? ip_hdr(skb)->protocol : ipv6_hdr(skb)->nexthdr) != IPPROTO_TCP) return 0;
  return skb_transport_offset(skb) + tcp_hdrlen(skb);
}

static void* memory_of(netmem_ref page) {
  return netmem_is_net_iov(page) ? phys_to_virt(page_pool_get_dma_addr_netmem(page)) : page_address(netmem_to_page(page));
}

/* The DMA: skb_copy_bits() refuses packets whose payload is in a dma-buf. */
static void dma(void* to, const struct sk_buff* skb, unsigned int from, unsigned int bytes) {
  unsigned int begin = skb_headlen(skb), i;

  if (from < begin) {
    unsigned int part = min(bytes, begin - from);

    memcpy(to, skb->data + from, part);
    to += part, from += part, bytes -= part;
  }
  for (i = 0; bytes != 0; i++) {
    const skb_frag_t* frag = &skb_shinfo(skb)->frags[i];
    unsigned int end = begin + skb_frag_size(frag);

    if (from < end) {
      unsigned int part = min(bytes, end - from);

      memcpy(to, memory_of(skb_frag_netmem(frag)) + skb_frag_off(frag) + (from - begin), part);
      to += part, from += part, bytes -= part;
    }
    begin = end;
  }
}

static netdev_tx_t transmit(struct sk_buff* skb, struct net_device* dev) {
  struct end* to = ((struct end*)netdev_priv(dev))->other;
  struct queue* queue = &to->queue[tcp_headers(skb) != 0 ? steer(&to->steering, skb, to->dev->real_num_rx_queues) : 0];

  if (!netif_running(to->dev) || skb_queue_len(&queue->wire) >= MOST_WAITING) {
    dev_kfree_skb_any(skb);
    return NETDEV_TX_OK;
  }
  skb_queue_tail(&queue->wire, skb);
  napi_schedule(&queue->napi);
  return NETDEV_TX_OK;
}

/* The packet as this end has it: headers in host memory, payload in pages of the queue's pool. NULL: lost. */
static struct sk_buff* land(struct end* end, struct queue* queue, const struct sk_buff* sent) {
  unsigned int headers = tcp_headers(sent), linear = sent->len, at;
  struct sk_buff* skb;

  if (headers != 0 && sent->len > headers) {
    queue->payloads++;
    if (lose_every && queue->payloads % lose_every == 0) return NULL;
    if (!whole_every || queue->payloads % whole_every != 0) linear = min(headers + linear_bytes, sent->len);
  }
  skb = napi_alloc_skb(&queue->napi, linear);
  if (!skb) return NULL;
  dma(skb_put(skb, linear), sent, 0, linear);
  for (at = linear; at < sent->len;) {
    unsigned int bytes = min_t(unsigned int, sent->len - at, PAGE_SIZE);
    netmem_ref page = page_pool_alloc_netmems(queue->pool, GFP_ATOMIC);

    /* The receiver holds all of them. */
    if (!page) goto lost;
    /* Not on packets without such pages: GRO would join them with those that have some. */
    skb_mark_for_recycle(skb);
    dma(memory_of(page), sent, at, bytes);
    skb_add_rx_frag_netmem(skb, skb_shinfo(skb)->nr_frags, page, 0, bytes, PAGE_SIZE);
    at += bytes;
  }
  /* As of a card that joins packets. */
  skb_shinfo(skb)->gso_size = skb_shinfo(sent)->gso_size;
  skb_shinfo(skb)->gso_segs = skb_shinfo(sent)->gso_segs;
  skb_shinfo(skb)->gso_type = skb_shinfo(sent)->gso_type & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6 | SKB_GSO_TCP_ECN);
  skb->ip_summed = CHECKSUM_UNNECESSARY;
  skb->protocol = eth_type_trans(skb, end->dev);
  skb_record_rx_queue(skb, queue - end->queue);
  return skb;
lost:
  kfree_skb(skb);
  return NULL;
}

/* The next packet off the wire. */
static struct sk_buff* take(struct queue* queue) {
  struct sk_buff *sent = skb_dequeue(&queue->wire), *next;

  if (!sent || !reorder_every || tcp_headers(sent) == 0 || ++queue->taken % reorder_every != 0) return sent;
  next = skb_dequeue(&queue->wire);
  if (!next) return sent;
  skb_queue_head(&queue->wire, sent);
  return next;
}

static int poll(struct napi_struct* napi, int budget) {
  struct queue* queue = container_of(napi, struct queue, napi);
  struct end* end = netdev_priv(napi->dev);
  int done;

  for (done = 0; done < budget; done++) {
    struct sk_buff *sent = take(queue), *skb;

    if (!sent) break;
    skb = land(end, queue, sent);
    if (skb) napi_gro_receive(napi, skb);
    /* Only now is the sender's memory not read any longer. */
    consume_skb(sent);
  }
  if (done < budget && napi_complete_done(napi, done) && !skb_queue_empty(&queue->wire)) napi_schedule(napi);
  return done;
}

static struct page_pool* make_pool(struct net_device* dev, int index) {
  struct end* end = netdev_priv(dev);
  struct page_pool_params params = {
      .flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV,
      .pool_size = 256,
      .nid = NUMA_NO_NODE,
      .dev = &bus->dev,
      .napi = &end->queue[index].napi,
      .netdev = dev,
      .queue_idx = index,
      .dma_dir = DMA_FROM_DEVICE,
      .max_len = PAGE_SIZE,
  };

  if (netif_rxq_has_unreadable_mp(dev, index)) params.flags |= PP_FLAG_ALLOW_UNREADABLE_NETMEM;
  return page_pool_create(&params);
}

static void start_queue(struct net_device* dev, int index, struct page_pool* pool) {
  struct queue* queue = &((struct end*)netdev_priv(dev))->queue[index];

  queue->pool = pool;
  napi_enable_locked(&queue->napi);
  napi_schedule(&queue->napi); /* packets may have come meanwhile */
}

static struct page_pool* stop_queue(struct net_device* dev, int index) {
  struct queue* queue = &((struct end*)netdev_priv(dev))->queue[index];

  napi_disable_locked(&queue->napi);
  return queue->pool;
}

/* A queue is restarted for a bind and for its end: the memory of a queue is its pool. */
static int memory_alloc(struct net_device* dev, struct netdev_queue_config* config, void* memory, int index) {
  struct page_pool* pool = make_pool(dev, index);

  if (IS_ERR(pool)) return PTR_ERR(pool);
  *(struct page_pool**)memory = pool;
  return 0;
}

static void memory_free(struct net_device* dev, void* memory) {
  page_pool_destroy(*(struct page_pool**)memory);
}

static int queue_restart(struct net_device* dev, struct netdev_queue_config* config, void* memory, int index) {
  start_queue(dev, index, *(struct page_pool**)memory);
  return 0;
}

static int queue_halt(struct net_device* dev, void* memory, int index) {
  struct page_pool* pool = stop_queue(dev, index);

  page_pool_disable_direct_recycling(pool);
  *(struct page_pool**)memory = pool;
  return 0;
}

static const struct netdev_queue_mgmt_ops queue_ops = {
    .ndo_queue_mem_size = sizeof(struct page_pool*),
    .ndo_queue_mem_alloc = memory_alloc,
    .ndo_queue_mem_free = memory_free,
    .ndo_queue_start = queue_restart,
    .ndo_queue_stop = queue_halt,
};

static int wire_up(struct net_device* dev) {
  struct page_pool* pools[QUEUES];
  int i;

  for (i = 0; i < QUEUES; i++) {
    pools[i] = make_pool(dev, i);
    if (IS_ERR(pools[i])) {
      int error = PTR_ERR(pools[i]);

      while (i-- > 0) page_pool_destroy(pools[i]);
      return error;
    }
  }
  for (i = 0; i < QUEUES; i++) start_queue(dev, i, pools[i]);
  netif_tx_start_all_queues(dev);
  netif_carrier_on(dev);
  return 0;
}

static int wire_down(struct net_device* dev) {
  struct end* end = netdev_priv(dev);
  int i;

  netif_tx_stop_all_queues(dev);
  netif_carrier_off(dev);
  for (i = 0; i < QUEUES; i++) {
    struct page_pool* pool = stop_queue(dev, i);

    skb_queue_purge(&end->queue[i].wire);
    page_pool_destroy(pool);
  }
  return 0;
}

static const struct net_device_ops device_ops = {
    .ndo_open = wire_up,
    .ndo_stop = wire_down,
    .ndo_start_xmit = transmit,
};

/* `ip link del`: an end is taken away while it is used, and comes back with the module. */
static void delete_end(struct net_device* dev, struct list_head* list) {
  unregister_netdevice_queue(dev, list);
}

static struct rtnl_link_ops link_ops = {
    .kind = "wire", .dellink = delete_end, .netns_refund = true, /* else it would end with the other host */
};

static void remove_ends(void) {
  int i, q;

  /* No end sends to one that is gone. */
  for (i = 0; i < 2; i++)
    if (ends[i] && ends[i]->reg_state == NETREG_REGISTERED) unregister_netdev(ends[i]);
  for (i = 0; i < 2; i++) {
    if (!ends[i]) continue;
    for (q = 0; q < QUEUES; q++) skb_queue_purge(&((struct end*)netdev_priv(ends[i]))->queue[q].wire);
    free_netdev(ends[i]);
  }
  platform_device_unregister(bus);
}

static int __init wire_nic_init(void) {
  int i, q, error = -ENOMEM;

  bus = platform_device_register_simple("wire_nic", PLATFORM_DEVID_NONE, NULL, 0);
  if (IS_ERR(bus)) return PTR_ERR(bus);
  dma_coerce_mask_and_coherent(&bus->dev, DMA_BIT_MASK(64));
  for (i = 0; i < 2; i++) {
    struct net_device* dev = alloc_etherdev_mqs(sizeof(struct end), QUEUES, QUEUES);
    struct end* end;

    if (!dev) goto failed;
    ends[i] = dev;
    end = netdev_priv(dev);
    end->dev = dev;
    snprintf(dev->name, IFNAMSIZ, "wire%d", i);
    SET_NETDEV_DEV(dev, &bus->dev);
    eth_hw_addr_random(dev);
    dev->netdev_ops = &device_ops;
    dev->ethtool_ops = &ethtool_ops;
    dev->queue_mgmt_ops = &queue_ops;
    dev->rtnl_link_ops = &link_ops;
    dev->netmem_tx = NETMEM_TX_DMA; /* it may send from dma-bufs */
    dev->cfg->hds_config = ETHTOOL_TCP_DATA_SPLIT_ENABLED;
    dev->hw_features = dev->features =
        NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_HIGHDMA | NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_NTUPLE;
    dev->max_mtu = 9000;
    netif_set_tso_max_size(dev, LONGEST);
    steer_by_default(&end->steering);
    for (q = 0; q < QUEUES; q++) {
      skb_queue_head_init(&end->queue[q].wire);
      netif_napi_add(dev, &end->queue[q].napi, poll);
    }
  }
  for (i = 0; i < 2; i++) ((struct end*)netdev_priv(ends[i]))->other = netdev_priv(ends[1 - i]);
  for (i = 0; i < 2; i++) {
    error = register_netdev(ends[i]);
    if (error) goto failed;
  }
  return 0;
failed:
  remove_ends();
  return error;
}

static void __exit wire_nic_exit(void) {
  remove_ends();
}

module_init(wire_nic_init);
module_exit(wire_nic_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("two interfaces with device-memory TCP and a wire between them");
MODULE_IMPORT_NS("NETDEV_INTERNAL");
