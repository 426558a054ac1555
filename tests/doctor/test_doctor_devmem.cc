// Verdicts on what device-memory TCP of upstream Linux takes: of a machine that is prepared, of one that is not, and of most.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "doctor/devmem.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using devmem::ReceiveQueue;
using testing::MadeUpMachine;
using enum Verdict;

constexpr char kNetworkName[] = "UCCL_TCPX_NETWORK";

/// Four receive queues; the last is bound already.
DevmemNic prepared_nic(const std::string& name) {
  return {.nic = {.name = name,
                  .driver = "mlx5_core",
                  .ethtool = {.data_split = true, .split_threshold = 0, .private_flags = {}, .ntuple = true}},
          .iommu_domain = "",
          .queues = std::vector<ReceiveQueue>{{0, {}}, {1, {}}, {2, {}}, {3, 7}},
          .rss_table = std::vector<uint32_t>{0, 1, 2, 0}};
}
DevmemFacts prepared() {
  DevmemFacts facts{.expected = {false, "a test"},
                    .kernel = {.release = "6.18.1", .devmem = {ENOPROTOOPT, ENOPROTOOPT, EINVAL}},
                    .has_capability = true,
                    .gpus = 1,
                    .build_has_cuda = true,
                    .nics = {prepared_nic("eth1"), prepared_nic("eth2")}};
  facts.cuda.end = LibraryAnswer::End::kAnswered;
  facts.cuda.gpus = {{.pci_address = "0000:04:00.0", .major = 9, .minor = 0, .dma_buf = true}};
  return facts;
}
const testing::Checks<DevmemFacts> kDevmem{check_devmem};
using Case = testing::Checks<DevmemFacts>::Case;

/// A change of the first interface, and the verdict that it brings.
Case nic_case(const std::string& check, Verdict verdict, std::function<void(DevmemNic&)> change) {
  return {check, verdict, [change](DevmemFacts& facts) { change(facts.nics[0]); }};
}

TEST(DoctorDevmem, AMachineThatIsPreparedNeedsAllOfIt) {
  EXPECT_EQ(kDevmem.worst(prepared()), kOk);
  kDevmem.expect_ok(prepared(), {"use", "kernel", "privileges", "gpu_memory", "driver[eth2]", "header_split[eth2]",
                                 "hds_thresh[eth2]", "rx_queues[eth2]", "ntuple[eth2]", "rss[eth2]", "iommu[eth2]"});
  const Status refused(Code::kSystem, "ask", "refused");
  kDevmem.expect(prepared(),
                 {{"kernel", kWarn, [](DevmemFacts& facts) { facts.kernel.release = "6.15.9"; }},
                  {"kernel", kOk, [](DevmemFacts& facts) { facts.kernel.release = "7.0.0"; }},
                  {"privileges", kWarn, [](DevmemFacts& facts) { facts.has_capability = false; }},
                  {"privileges", kNotApplicable, [](DevmemFacts& facts) { facts.in_user_namespace = true; }},
                  {"gpu_memory", kWarn, [](DevmemFacts& facts) { facts.cuda.gpus[0].dma_buf = false; }},
                  {"gpu_memory", kWarn, [](DevmemFacts& facts) { facts.cuda.gpus.clear(); }},
                  {"gpu_memory", kWarn, [](DevmemFacts& facts) { facts.cuda.end = LibraryAnswer::End::kHung; }},
                  nic_case("driver[eth1]", kNotApplicable, [](DevmemNic& each) { each.nic.driver = "virtio_net"; }),
                  nic_case("header_split[eth1]", kWarn, [](DevmemNic& each) { each.nic.ethtool.data_split = false; }),
                  nic_case("header_split[eth1]", kWarn, [](DevmemNic& each) { each.nic.ethtool.data_split.reset(); }),
                  nic_case("hds_thresh[eth1]", kWarn, [](DevmemNic& each) { each.nic.ethtool.split_threshold = 256; }),
                  nic_case("hds_thresh[eth1]", kOk, [](DevmemNic& each) { each.nic.ethtool.split_threshold.reset(); }),
                  nic_case("rx_queues[eth1]", kWarn, [&](DevmemNic& each) { each.queues = refused; }),
                  nic_case("rx_queues[eth1]", kWarn, [](DevmemNic& each) { each.queues->resize(1); }),
                  nic_case("rx_queues[eth1]", kOk, [](DevmemNic& each) { each.queues->resize(2); }),
                  nic_case("rx_queues[eth1]", kWarn,
                           [](DevmemNic& each) {
                             (*each.queues)[1] = {1, 5}, (*each.queues)[2] = {2, 6};
                           }),
                  nic_case("ntuple[eth1]", kWarn, [](DevmemNic& each) { each.nic.ethtool.ntuple = false; }),
                  nic_case("ntuple[eth1]", kWarn, [](DevmemNic& each) { each.nic.ethtool.ntuple.reset(); }),
                  nic_case("rss[eth1]", kWarn, [&](DevmemNic& each) { each.rss_table = refused; }),
                  nic_case("rss[eth1]", kWarn,
                           [](DevmemNic& each) {
                             each.rss_table = std::vector<uint32_t>{2, 2};
                           }),
                  nic_case("rss[eth1]", kOk,
                           [](DevmemNic& each) {
                             each.rss_table = std::vector<uint32_t>{1, 1};
                           }),
                  nic_case("iommu[eth1]", kNotApplicable, [](DevmemNic& each) { each.iommu_domain = "DMA-FQ"; }),
                  nic_case("iommu[eth1]", kOk, [](DevmemNic& each) { each.iommu_domain = "identity"; })});
}

TEST(DoctorDevmem, TheCommandNamesTheInterfaceAndWhatItLacks) {
  DevmemFacts facts = prepared();
  DevmemNic& each = facts.nics[0];
  each.nic.ethtool.data_split = false;
  each.queues = std::vector<ReceiveQueue>{{0, {}}, {1, 4}, {2, 5}};
  EXPECT_EQ(kDevmem.finding(facts, "header_split[eth1]").mend,
            "sudo ethtool -K eth1 rx-gro-hw on && sudo ethtool -G eth1 tcp-data-split on");
  each.nic.driver = "gve";
  EXPECT_EQ(kDevmem.finding(facts, "header_split[eth1]").mend, "sudo ethtool -G eth1 tcp-data-split on");
  EXPECT_TRUE(kDevmem.finding(facts, "rx_queues[eth1]").mend.starts_with("sudo ethtool -L eth1 combined 4 "));
  EXPECT_EQ(kDevmem.finding(facts, "rx_queues[eth2]").found, "4; the next to be bound is 2");
}

TEST(DoctorDevmem, MostMachinesGetOneLineThatWarnsOfNothing) {
  const std::vector<std::function<void(DevmemFacts&)>> most = {
      [](DevmemFacts& facts) {
        facts.expected = {true, "a test"};
      },
      [](DevmemFacts& facts) { facts.network = "soft"; },
      [](DevmemFacts& facts) { facts.nics.clear(); },
      [](DevmemFacts& facts) { facts.nics[0].nic.driver = "virtio_net", facts.nics[1].nic.driver = ""; },
      [](DevmemFacts& facts) { facts.gpus = 0; },
      [](DevmemFacts& facts) { facts.build_has_cuda = false; },
      [](DevmemFacts& facts) { facts.kernel.devmem.linux_own = ENOPROTOOPT; },
      [](DevmemFacts& facts) { facts.kernel.devmem.nobodys = 0; },
      [](DevmemFacts& facts) { facts.kernel.devmem.google = EINVAL; },
      [](DevmemFacts& facts) { facts.nics[0].nic.ethtool.data_split = facts.nics[1].nic.ethtool.data_split = false; }};
  for (size_t i = 0; i < most.size(); ++i) {
    DevmemFacts facts = prepared();
    most[i](facts);
    EXPECT_EQ(kDevmem.all(facts).size(), 1u) << i;
    EXPECT_EQ(kDevmem.verdict(facts, "use"), kNotApplicable) << i;
  }
}

TEST(DoctorDevmem, WhatNobodyHasPreparedIsToldToWhoAsks) {
  DevmemFacts facts = prepared();
  for (DevmemNic& each : facts.nics) each.nic.ethtool.data_split = false;
  facts.asked_for = true;
  EXPECT_EQ(kDevmem.verdict(facts, "header_split[eth1]"), kWarn);
  facts.asked_for = false;
  facts.nics[1].nic.ethtool.data_split = true;
  EXPECT_EQ(kDevmem.verdict(facts, "header_split[eth1]"), kWarn) << "somebody has prepared the other";
}

TEST(DoctorDevmem, WhoNamesItIsWarnedWhereItCannotBe) {
  const auto named = [](const std::function<void(DevmemFacts&)>& change) {
    DevmemFacts facts = prepared();
    facts.network = "devmem";
    change(facts);
    return facts;
  };
  EXPECT_EQ(kDevmem.worst(named([](DevmemFacts&) {})), kOk);
  EXPECT_EQ(kDevmem.verdict(named([](DevmemFacts& facts) { facts.expected = {true, "a plugin is named"}; }), "use"), kWarn);
  EXPECT_EQ(kDevmem.verdict(named([](DevmemFacts& facts) { facts.nics.clear(); }), "use"), kWarn);
  EXPECT_EQ(kDevmem.verdict(named([](DevmemFacts& facts) { facts.kernel.devmem.linux_own = ENOPROTOOPT; }), "use"), kWarn);
  // Host memory stands in.
  EXPECT_EQ(kDevmem.verdict(named([](DevmemFacts& facts) { facts.gpus = 0; }), "gpu_memory"), kNotApplicable);
  EXPECT_EQ(kDevmem.verdict(named([](DevmemFacts& facts) { facts.build_has_cuda = false; }), "gpu_memory"), kWarn);
}

TEST(DoctorDevmemFacts, AreReadFromTheTree) {
  MadeUpMachine here;
  const std::string device = "/sys/devices/pci0000:00/0000:06:00.0";
  here.link("/sys/class/net/eth1/device", device).link(device + "/driver", "/sys/bus/pci/drivers/bnxt_en");
  here.file(device + "/iommu_group/type", "DMA-FQ").variable(kNetworkName, "devmem");
  here.file("/proc/self/status", "Name:\tx\nCapEff:\t0000000000001000")
      .file("/proc/self/uid_map", "         0          0 4294967295");
  const std::vector<NetworkInterface> all = {{.name = "eth1", .up = true, .addresses = {{SocketAddress::loopback(0), 8}}}};
  DevmemFacts facts = devmem_facts(here.machine(), all, true);
  ASSERT_EQ(facts.nics.size(), 1u);
  EXPECT_EQ(facts.nics[0].nic.driver, "bnxt_en");
  EXPECT_EQ(facts.nics[0].iommu_domain, "DMA-FQ");
  EXPECT_FALSE(facts.nics[0].queues.is_ok() || facts.nics[0].rss_table.is_ok());
  EXPECT_EQ(facts.network, "devmem");
  EXPECT_TRUE(facts.asked_for && facts.has_capability);
  EXPECT_FALSE(facts.in_user_namespace || facts.expected.vendor_path);
  here.file("/proc/self/status", "CapEff:\t000001ffffffefff").file("/proc/self/uid_map", "0 1000 1");
  facts = devmem_facts(here.machine(), all, false);
  EXPECT_FALSE(facts.has_capability || facts.asked_for);
  EXPECT_TRUE(facts.in_user_namespace);
}

TEST(DoctorDevmemFacts, TheKernelIsAskedAboutDriversThatHaveIt) {
  DevmemFacts facts = prepared();
  facts.network = "devmem";
  facts.gpus = 0;
  facts.cuda = {};
  const Status not_asked(Code::kUnsupported, "ask", "not asked");
  facts.nics = {{.nic = {.name = "lo", .driver = "mlx5_core"}, .iommu_domain = "", .queues = not_asked, .rss_table = not_asked}};
  ask_devmem(facts);
  const DevmemNic& each = facts.nics[0];
  EXPECT_EQ(each.nic.ethtool.ntuple, false);
  // Loopback has one queue, where the kernel tells, and neither an RSS table nor a threshold.
  EXPECT_TRUE(!each.queues.is_ok() || each.queues->size() == 1);
  EXPECT_NE(each.queues.status().detail(), "not asked");
  EXPECT_NE(each.rss_table.status().detail(), "not asked");
  EXPECT_EQ(kDevmem.verdict(facts, "rx_queues[lo]"), kWarn);
  EXPECT_EQ(kDevmem.verdict(facts, "rss[lo]"), kWarn);
}

}  // namespace
}  // namespace tcpx::doctor
