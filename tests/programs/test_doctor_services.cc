// What the doctor says of RxDM's sockets.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <map>
#include <thread>

#include "base/socket_io.h"
#include "programs/doctor/rxdm_message.h"
#include "programs/doctor/service_checks.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using End = ServiceAnswer::End;
using testing::expect_helpful;
using testing::finding_of;
using testing::MadeUpMachine;
using namespace std::literals;

constexpr char kPrefixVariable[] = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX";
const std::vector<std::string> kGpus = {"0000:04:00.0", "0000:0a:00.0"};
// UnixSocketProto {4 {1: 8, 1: 9}}
const std::string kQueues = "\x22\x04\x08\x08\x08\x09"s;

class FakeServices final : public ServiceSource {
 public:
  ServiceAnswer talk(const std::string& path, std::string_view request) override {
    const auto known = answers.find(path);
    if (known == answers.end()) return {.end = End::kAbsent, .message = {}, .detail = {}};
    ServiceAnswer answer = known->second;
    if (answer.end == End::kAnswered && request.empty()) answer.end = End::kConnected;
    if (!request.empty()) {
      ++questions;
      answer.end = queues_end;
    }
    return answer;
  }
  std::map<std::string, ServiceAnswer> answers;
  End queues_end = End::kAnswered;
  int questions = 0;
};

class DoctorServices : public ::testing::Test {
 protected:
  void serve(const std::string& path, End end = End::kAnswered, const std::string& message = {}) {
    here_.file(path, "");
    services_.answers[path] = {.end = end, .message = message, .detail = "a strange error"};
  }
  void make_a3(const std::string& prefix = "/run/tcpx") {
    here_.file("/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "");
    for (const std::string& gpu : kGpus) {
      const std::string path = "/sys/devices/pci0000:00/" + gpu;
      here_.link("/sys/bus/pci/devices/" + gpu, path).file(path + "/vendor", "0x10de").file(path + "/class", "0x030200");
      serve(prefix + "/get_gpu_fd_" + gpu);
      serve(prefix + "/get_gpu_metadata_" + gpu);
    }
    serve(prefix + "/rx_rule_manager");
    serve(prefix + "/rx_rule_uninstall");
    serve(prefix + "/queue_ids_by_gpu", End::kAnswered, kQueues);
    here_.file(prefix + "/rxdm_application_registry", "");
  }
  Findings check() {
    Findings findings = check_services(here_.machine(), services_);
    expect_helpful(findings);
    return findings;
  }
  Finding finding(const std::string& name) { return finding_of(check(), name); }

  MadeUpMachine here_;
  FakeServices services_;
};

TEST_F(DoctorServices, A5_ADirectoryWithTooLongANameFails) {
  const std::string directory = "/run/" + std::string(73, 'x');
  make_a3(directory);
  here_.variable(kPrefixVariable, directory);
  EXPECT_EQ(finding("prefix").verdict, Verdict::kFail);
  EXPECT_NE(finding("prefix").found.find("78 characters"), std::string::npos);
}

TEST_F(DoctorServices, AHealthyA3IsWell) {
  make_a3();
  here_.variable(kPrefixVariable, "/run/tcpx/");
  const Findings findings = check();
  EXPECT_EQ(worst_of({{"services", findings}}), Verdict::kOk);
  for (const char* name : {"prefix", "directory", "sockets", "socket[rxdm_application_registry]", "queues[0000:04:00.0]"}) {
    EXPECT_EQ(finding_of(findings, name).verdict, Verdict::kOk) << name;
  }
  EXPECT_EQ(finding_of(findings, "sockets").found, "6 of 6 can be connected to");
  EXPECT_EQ(finding_of(findings, "queues[0000:0a:00.0]").found, "receive queues 8, 9");
  EXPECT_EQ(finding_of(findings, "version").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorServices, APlainMachineNeedsNoRxdm) {
  const Findings findings = check();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorServices, AContainerWithoutTheDirectoryFails) {
  here_.file("/var/lib/tcpx/lib64/libnccl-net.so", "");
  EXPECT_EQ(finding("directory").verdict, Verdict::kFail);
  EXPECT_NE(finding("directory").mend.find("docker run -v /run/tcpx:/run/tcpx"), std::string::npos);
}

TEST_F(DoctorServices, AVariableThatLeadsElsewhereFails) {
  make_a3();
  here_.directory("/tmp").variable(kPrefixVariable, "/tmp");
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "prefix").verdict, Verdict::kFail);
  EXPECT_EQ(finding_of(findings, "prefix").mend, std::string("export ") + kPrefixVariable + "=/run/tcpx");
  EXPECT_EQ(finding_of(findings, "sockets").verdict, Verdict::kOk);  // the rest is looked at where it is
}

TEST_F(DoctorServices, SocketsAtThePluginsOwnDefaultAreFound) {
  make_a3("/tmp");
  EXPECT_EQ(finding("prefix").verdict, Verdict::kFail);
  EXPECT_EQ(finding("prefix").mend, std::string("export ") + kPrefixVariable + "=/tmp");
}

TEST_F(DoctorServices, AnUnsetVariableIsWellWhereRxdmIsWhereItIsLookedFor) {
  make_a3();
  EXPECT_EQ(finding("prefix").verdict, Verdict::kOk);
  EXPECT_NE(finding("prefix").found.find("/tmp"), std::string::npos);
}

TEST_F(DoctorServices, ASocketThatIsNotThereFails) {
  make_a3();
  services_.answers.erase("/run/tcpx/get_gpu_fd_0000:0a:00.0");
  EXPECT_EQ(finding("socket[get_gpu_fd_0000:0a:00.0]").verdict, Verdict::kFail);
  EXPECT_EQ(finding("sockets").found, "5 of 6 can be connected to");
}

TEST_F(DoctorServices, EveryWayOfNotConnectingFailsWithItsCure) {
  make_a3();
  const auto seen = [&](End end) {
    serve("/run/tcpx/rx_rule_manager", end);
    EXPECT_EQ(finding("socket[rx_rule_manager]").verdict, Verdict::kFail);
    return finding("socket[rx_rule_manager]");
  };
  EXPECT_NE(seen(End::kRefused).found.find("nobody listens"), std::string::npos);
  EXPECT_NE(seen(End::kDenied).mend.find("sudo chmod a+rw /run/tcpx/*"), std::string::npos);
  EXPECT_NE(seen(End::kSilent).found.find("no answer from /run/tcpx/rx_rule_manager"), std::string::npos);
  EXPECT_NE(seen(End::kFailed).found.find("a strange error"), std::string::npos);
}

TEST_F(DoctorServices, AnRxdmThatHasEndedIsOneFinding) {
  make_a3();
  for (auto& [path, answer] : services_.answers) answer.end = End::kRefused;
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "socket[rx_rule_manager]").found,
            "nobody listens on /run/tcpx/rx_rule_manager, rx_rule_uninstall, get_gpu_fd_0000:04:00.0 and 3 more");
  EXPECT_EQ(findings.size(), 4u);  // with the prefix, the directory and the registry
  EXPECT_EQ(services_.questions, 0);
}

TEST_F(DoctorServices, ASilentOrClosingServerIsAskedOnce) {
  make_a3();
  for (const End end : {End::kClosed, End::kSilent}) {
    services_.queues_end = end;
    const Findings findings = check();
    EXPECT_EQ(finding_of(findings, "queues[0000:04:00.0]").verdict, Verdict::kWarn);
    EXPECT_EQ(findings.back().check, "queues[0000:04:00.0]");
  }
  EXPECT_EQ(services_.questions, 2);
}

// The plugin never opens it.
TEST_F(DoctorServices, A8_WithoutTheSocketForQueuesTheDoctorKnowsLessAndNothingFails) {
  make_a3();
  for (const End end : {End::kAbsent, End::kRefused, End::kDenied, End::kSilent, End::kFailed}) {
    serve("/run/tcpx/queue_ids_by_gpu", end);
    services_.queues_end = end;
    const Findings findings = check();
    EXPECT_EQ(finding_of(findings, "queues[0000:04:00.0]").verdict, Verdict::kWarn);
    EXPECT_EQ(finding_of(findings, "sockets").verdict, Verdict::kOk);
    EXPECT_EQ(worst_of({{"services", findings}}), Verdict::kWarn);
  }
}

TEST_F(DoctorServices, AGpuWithoutQueuesFails) {
  make_a3();
  serve("/run/tcpx/queue_ids_by_gpu", End::kAnswered, "\x22\x00"s);
  EXPECT_EQ(finding("queues[0000:04:00.0]").verdict, Verdict::kFail);
}

TEST_F(DoctorServices, AnAnswerOfAnotherProtocolIsSuspect) {
  make_a3();
  serve("/run/tcpx/queue_ids_by_gpu", End::kAnswered, "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(finding("queues[0000:04:00.0]").verdict, Verdict::kWarn);
}

TEST_F(DoctorServices, AMissingRegistryIsAWarning) {
  here_.file("/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "").directory("/run/tcpx");
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "socket[rxdm_application_registry]").verdict, Verdict::kWarn);
  EXPECT_EQ(finding_of(findings, "queues").verdict, Verdict::kFail);  // nothing shows a GPU
}

TEST_F(DoctorServices, GpusThatOnlyRxdmShowsAreAskedFor) {
  here_.file("/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "").file("/run/tcpx/rxdm_application_registry", "");
  serve("/run/tcpx/get_gpu_fd_0000:aa:00.0");
  serve("/run/tcpx/queue_ids_by_gpu", End::kAnswered, kQueues);
  EXPECT_EQ(finding("queues[0000:aa:00.0]").verdict, Verdict::kOk);
}

TEST(RxdmMessage, TheQuestionIsThatOfTheProtocol) {
  EXPECT_EQ(queue_query("0000:04:00.0"), "\x00\x10\x1a\x0e\x0a\x0c"s + "0000:04:00.0");
}

TEST(RxdmMessage, AnswersAreReadPackedOrNot) {
  const std::vector<int> both = {8, 300};
  EXPECT_EQ(queue_ids_in("\x22\x05\x08\x08\x08\xac\x02"s), both);
  EXPECT_EQ(queue_ids_in("\x22\x05\x0a\x03\x08\xac\x02"s), both);
  EXPECT_EQ(queue_ids_in("\x0a\x02no\x28\x07\x22\x02\x08\x08\x3d\x01\x02\x03\x04"s), std::vector<int>{8});  // others around it
  EXPECT_EQ(queue_ids_in("\x22\x00"s), std::vector<int>{});
}

TEST(RxdmMessage, WhatIsMalformedIsNoAnswer) {
  for (const std::string& message : {""s, "\x0a\x03Ok."s, "\x22"s, "\x22\x7f\x08"s, "\x22\x01\x08"s, "\x22\x02\x0a\x05"s,
                                     "\x23\x24"s, "\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x08"s, std::string(40, '\xff')}) {
    EXPECT_EQ(queue_ids_in(message), std::nullopt);
  }
}

/// A server in a thread that serves one client after another with `serve`, until it goes.
class Server {
 public:
  explicit Server(const std::string& path, std::function<void(int client)> serve)
      : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    thread_ = std::thread([this, serve = std::move(serve)] {
      for (;;) {
        const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) return;
        serve(client.get());
      }
    });
  }
  ~Server() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

class ServiceSourceTest : public ::testing::Test {
 protected:
  static constexpr std::chrono::seconds kLong{20};
  static Deadline soon() { return Deadline::after(kLong); }
  ServiceAnswer talk(const std::string& request, Duration limit = kLong) {
    return make_service_source(limit)->talk(path_, request);
  }
  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.file("rx");
};

TEST_F(ServiceSourceTest, ReadsOneFramedAnswer) {
  std::string asked(4, '\0');
  const std::string long_answer = "\x01\x2c"s + std::string(300, 'x');
  {
    const Server server(path_, [&](int client) {
      if (!recv_all(client, std::as_writable_bytes(std::span(asked)), soon()).is_ok()) return;  // only connects
      EXPECT_TRUE(send_all(client, std::as_bytes(std::span(long_answer)), soon()).is_ok());
    });
    const ServiceAnswer answer = talk("\x00\x02hi"s);
    EXPECT_EQ(answer.end, End::kAnswered);
    EXPECT_EQ(answer.message, std::string(300, 'x'));
    EXPECT_EQ(talk("").end, End::kConnected);
  }
  EXPECT_EQ(asked, "\x00\x02hi"s);
}

TEST_F(ServiceSourceTest, AServerThatClosesIsSeen) {
  std::string asked(4, '\0');
  const Server server(path_, [&](int client) {
    EXPECT_TRUE(recv_all(client, std::as_writable_bytes(std::span(asked)), soon()).is_ok());
    EXPECT_TRUE(send_all(client, std::as_bytes(std::span("\x01\x2chalf"sv)), soon()).is_ok());
  });
  EXPECT_EQ(talk("\x00\x02hi"s).end, End::kClosed);
}

TEST_F(ServiceSourceTest, AServerThatStaysSilentIsSeen) {
  char byte;
  const Server server(path_, [&](int client) {
    while (::recv(client, &byte, 1, 0) > 0) continue;
  });
  EXPECT_EQ(talk("\x00\x02hi"s, std::chrono::milliseconds(20)).end, End::kSilent);
}

TEST_F(ServiceSourceTest, ASocketThatNobodyListensOnIsStale) {
  {
    const Server server(path_, [](int) {});
  }
  EXPECT_EQ(talk("").end, End::kRefused);
}

TEST_F(ServiceSourceTest, WhatIsNotThereIsAbsent) {
  EXPECT_EQ(talk("").end, End::kAbsent);
}

TEST_F(ServiceSourceTest, APathThatFitsInNoAddressIsRefused) {
  EXPECT_EQ(make_service_source()->talk("/" + std::string(200, 'x'), "").end, End::kFailed);
}

}  // namespace
}  // namespace tcpx::doctor
