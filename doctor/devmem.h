// Group "devmem": what receiving into device memory, and sending from it, takes of upstream Linux (docs/deploy_devmem.md).
//
// The doctor binds nothing and changes nothing. Whether a NIC reaches a GPU's memory is known only when a queue is bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/gpu.h"
#include "doctor/kernel.h"
#include "doctor/machine.h"
#include "doctor/nic.h"
#include "net/devmem/netdev.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

struct DevmemNic {
  Nic nic;
  std::string iommu_domain;                          ///< "DMA-FQ", "identity", ...; "" without an IOMMU
  Result<std::vector<devmem::ReceiveQueue>> queues;  ///< or why they are not known
  Result<std::vector<uint32_t>> rss_table;           ///< the queue of each entry; or why there is none
};

struct DevmemFacts {
  Expectation expected;
  std::string network;     ///< UCCL_TCPX_NETWORK; "" when it is unset
  bool asked_for = false;  ///< somebody wants to know what is missing, although nothing may be prepared
  KernelFacts kernel;
  bool has_capability = false;     ///< CAP_NET_ADMIN, by the process's effective set
  bool in_user_namespace = false;  ///< of which that is told, then
  size_t gpus = 0;                 ///< on the PCI bus
  bool build_has_cuda = false;
  std::vector<DevmemNic> nics;  ///< those that carry data
  CudaAnswer cuda;
};
/// Without what kernel, drivers and GPUs have to be asked for.
DevmemFacts devmem_facts(const Machine& machine, const std::vector<NetworkInterface>& all, bool asked_for);
/// Fills in the rest. Asks for no more when it does not apply here.
void ask_devmem(DevmemFacts& facts);

Findings check_devmem(const DevmemFacts& facts);

}  // namespace tcpx::doctor
