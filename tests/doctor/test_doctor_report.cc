// The doctor's report, and its reading of a machine's files.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "doctor/finding.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

const std::vector<GroupFindings> kSeen = {
    {"nics",
     {ok("speed[eth1]", "200000 Mb/s"), warn("mtu[eth1]", "1460", "Small packets cost a core.", "ip link set eth1 mtu 8244")}},
    {"gpu",
     {not_applicable("dma_buf", "no GPU", "Nothing to export."), fail("driver", "535\nloaded twice", "It is old.", "reboot")}},
};

std::string findings_text(const std::vector<GroupFindings>& groups, bool colour, bool verbose = true) {
  std::string text;
  for (const GroupFindings& group : groups) text += group_text(group, colour, verbose);
  return text + findings_summary(groups, verbose);
}

TEST(DoctorReport, TheFirstRowOfACheckThatIsNotAsExpectedIsItsFinding) {
  const auto table = [](bool there, bool large) {
    return Table{{"size", "none", there, kNotApplicable, "No size."},
                 {"size", "small", large, kWarn, "{} is small.", "grow {} {}"},
                 {"size", "large"},
                 {"more", "x"}};
  };
  const auto finding = [&](bool there, bool large) { return judge(table(there, large), "eth1").front(); };
  EXPECT_EQ(judge(table(false, false)).size(), 2u);
  EXPECT_EQ(judge(table(true, true)).front().check, "size");
  EXPECT_EQ(finding(true, true).check, "size[eth1]");
  EXPECT_EQ(finding(true, true).verdict, kOk);
  EXPECT_EQ(finding(true, true).found, "large");
  EXPECT_EQ(finding(true, false).verdict, kWarn);
  EXPECT_EQ(finding(true, false).why, "eth1 is small.");
  EXPECT_EQ(finding(true, false).mend, "grow eth1 eth1");
  EXPECT_EQ(finding(false, false).verdict, kNotApplicable);
  EXPECT_EQ(finding(false, false).found, "none");
  EXPECT_EQ(judge(table(false, false), "eth1").back().found, "x");
}

TEST(DoctorReport, EveryFindingIsALineAndSaysWhatToDo) {
  EXPECT_EQ(findings_text(kSeen, false),
            "nics\n"
            "  ok    speed[eth1]  200000 Mb/s\n"
            "  warn  mtu[eth1]    1460\n"
            "        why   Small packets cost a core.\n"
            "        mend  ip link set eth1 mtu 8244\n"
            "gpu\n"
            "  n/a   dma_buf  no GPU\n"
            "        why   Nothing to export.\n"
            "  fail  driver   535\n"
            "        loaded twice\n"
            "        why   It is old.\n"
            "        mend  reboot\n"
            "\n1 ok, 1 warn, 1 fail, 1 not applicable\n");
}

TEST(DoctorReport, WhatIsNotApplicableIsPrintedWhenAskedForOnly) {
  EXPECT_EQ(findings_text({kSeen[1], {"services", {not_applicable("rxdm", "not looked for", "Not needed.")}}}, false, false),
            "gpu\n"
            "  fail  driver  535\n"
            "        loaded twice\n"
            "        why   It is old.\n"
            "        mend  reboot\n"
            "\n0 ok, 0 warn, 1 fail, 2 not applicable (--verbose shows them)\n");
}

TEST(DoctorReport, ColoursAreAroundVerdictsAlone) {
  std::string text = findings_text(kSeen, true);
  size_t sequences = 0;
  for (size_t at; (at = text.find('\033')) != std::string::npos; ++sequences) text.erase(at, text.find('m', at) + 1 - at);
  EXPECT_EQ(text, findings_text(kSeen, false));
  EXPECT_EQ(sequences, 2 * (kSeen.size() + 4));
}

TEST(DoctorReport, TheWorstVerdictCounts) {
  EXPECT_EQ(worst_of({}), Verdict::kOk);
  EXPECT_EQ(worst_of({{"gpu", {not_applicable("driver", "none", "No GPU.")}}}), Verdict::kOk);
  EXPECT_EQ(worst_of({kSeen[0]}), Verdict::kWarn);
  EXPECT_EQ(worst_of(kSeen), Verdict::kFail);
}

TEST(DoctorReport, JsonHasEverything) {
  std::vector<GroupFindings> seen = kSeen;
  seen[0].findings[0].found = "\xff no text";
  const auto json = nlohmann::json::parse(findings_json(seen, "Data goes"));
  EXPECT_EQ(json["version"], TCPX_VERSION);
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["conclusion"], "Data goes");
  EXPECT_EQ(json["groups"].size(), 2u);
  const auto& mtu = json["groups"][0]["findings"][1];
  EXPECT_EQ(mtu["check"], "mtu[eth1]");
  EXPECT_EQ(mtu["verdict"], "warn");
  EXPECT_EQ(mtu["why"], "Small packets cost a core.");
  EXPECT_EQ(mtu["mend"], "ip link set eth1 mtu 8244");
}

TEST(DoctorFiles, ReadsListsAndResolvesUnderItsRoot) {
  testing::MadeUpMachine here;
  here.file("/sys/class/net/eth1/mtu", "8244").link("/sys/class/net/eth1/device", "/sys/devices/pci0000:00/0000:00:04.0");
  const FileTree files = here.machine().files;
  EXPECT_TRUE(files.exists("/sys/class/net/eth1"));
  EXPECT_FALSE(files.exists("/sys/class/net/eth2"));
  EXPECT_EQ(files.read("/sys/class/net/eth1/mtu"), "8244");
  EXPECT_EQ(files.read("/sys/class/net/eth1/speed"), std::nullopt);
  EXPECT_EQ(files.read("/sys/class/net/eth1"), std::nullopt);
  EXPECT_EQ(files.list("/sys/class/net/eth1"), (std::vector<std::string>{"device", "mtu"}));
  EXPECT_TRUE(files.list("/sys/class/net/eth2").empty());
  EXPECT_EQ(files.resolve("/sys/class/net/eth1/device"), "/sys/devices/pci0000:00/0000:00:04.0");
  EXPECT_EQ(files.resolve("/sys/class/net/eth2/device"), std::nullopt);
}

TEST(DoctorFiles, ALongFileIsCut) {
  testing::MadeUpMachine here;
  here.file("/proc/long", std::string(200'000, 'x'));
  EXPECT_EQ(here.machine().files.read("/proc/long")->size(), 65536u);
}

}  // namespace
}  // namespace tcpx::doctor
