// Verdicts on RxDM's sockets, and conversations over them.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <thread>

#include "base/socket_io.h"
#include "doctor/services.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using End = ServiceAnswer::End;
using enum Verdict;
using namespace std::literals;

constexpr char kPrefixVariable[] = "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX";
// UnixSocketProto {4 {1: 8, 1: 9}}
const std::string kQueues = "\x22\x04\x08\x08\x08\x09"s;

class DoctorServices : public testing::MachineTest<ServiceFacts> {
 protected:
  DoctorServices() : MachineTest(check_services) {}

  /// RxDM's files in `directory`, for two GPUs.
  void make_a3(const std::string& directory = "/run/tcpx") {
    here_.file("/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "");
    for (const std::string gpu : {"0000:04:00.0", "0000:0a:00.0"})
      here_.pci_device("/sys/devices/pci0000:00/" + gpu, "0x10de", "0x030200").file(directory + "/get_gpu_fd_" + gpu, "");
    here_.file(directory + "/rx_rule_manager", "").file(directory + "/rxdm_application_registry", "");
  }
  /// With healthy answers.
  ServiceFacts facts() override {
    ServiceFacts facts = service_facts(here_.machine());
    for (auto& [name, answer] : facts.sockets) answer.end = End::kConnected;
    facts.queues.assign(facts.gpus.size(), {.end = End::kAnswered, .message = kQueues, .detail = {}});
    return facts;
  }
};

TEST_F(DoctorServices, AHealthyA3IsWell) {
  make_a3();
  EXPECT_EQ(verdict("prefix"), kOk);
  here_.variable(kPrefixVariable, "/run/tcpx/");
  EXPECT_EQ(facts().sockets.size(), 6u);
  EXPECT_EQ(checks_.worst(facts()), kOk);
  expect({{"prefix", kOk},
          {"directory", kOk},
          {"sockets", kOk},
          {"socket[rxdm_application_registry]", kOk},
          {"queues[0000:04:00.0]", kOk},
          {"version", kNotApplicable}});
  EXPECT_EQ(finding("queues[0000:0a:00.0]").found, "receive queues 8, 9");
}

TEST_F(DoctorServices, APlainMachineNeedsNoRxdmAndAContainerItsDirectory) {
  EXPECT_EQ(check_services(facts()).size(), 1u);
  EXPECT_EQ(verdict("rxdm"), kNotApplicable);
  here_.file("/var/lib/tcpx/lib64/libnccl-net.so", "");
  EXPECT_EQ(verdict("directory"), kFail);
  EXPECT_NE(finding("directory").mend.find("docker run -v /run/tcpx:/run/tcpx"), std::string::npos);
}

TEST_F(DoctorServices, AVariableThatLeadsElsewhereFails) {
  make_a3();
  here_.directory("/tmp").variable(kPrefixVariable, "/tmp");
  expect({{"prefix", kFail}, {"sockets", kOk}});  // the rest is looked at where it is
  EXPECT_EQ(finding("prefix").mend, std::string("export ") + kPrefixVariable + "=/run/tcpx");
}

TEST_F(DoctorServices, SocketsAtThePluginsOwnDefaultAreFound) {
  make_a3("/tmp");
  EXPECT_EQ(verdict("prefix"), kFail);
  EXPECT_EQ(finding("prefix").mend, std::string("export ") + kPrefixVariable + "=/tmp");
}

TEST_F(DoctorServices, A5_ADirectoryWithTooLongANameFails) {
  const std::string directory = "/run/" + std::string(73, 'x');
  make_a3(directory);
  here_.variable(kPrefixVariable, directory);
  EXPECT_EQ(verdict("prefix"), kFail);
}

TEST_F(DoctorServices, EveryWayOfNotAnsweringIsToldOnce) {
  make_a3();
  for (const End end : {End::kAbsent, End::kRefused, End::kDenied, End::kClosed, End::kSilent, End::kFailed}) {
    ServiceFacts facts = this->facts();
    facts.sockets[0].second = facts.sockets[2].second = {.end = end, .message = {}, .detail = "a strange error"};
    EXPECT_EQ(checks_.verdict(facts, "socket[rx_rule_manager]"), kFail);
    EXPECT_TRUE(checks_.finding(facts, "sockets").found.starts_with("4 of 6 "));
    // A8: without the socket for queues, which the plugin never opens, the doctor knows less and nothing fails.
    facts = this->facts();
    facts.queues = {{.end = end, .message = {}, .detail = {}}};
    EXPECT_EQ(checks_.verdict(facts, "queues[0000:04:00.0]"), kWarn);
    EXPECT_EQ(checks_.worst(facts), kWarn);
    EXPECT_EQ(check_services(facts).back().check, "queues[0000:04:00.0]");
  }
  ServiceFacts ended = facts();
  for (auto& [name, answer] : ended.sockets) answer.end = End::kRefused;
  ended.queues.clear();
  EXPECT_EQ(check_services(ended).size(), 4u);  // with the prefix, the directory and the registry
  EXPECT_NE(checks_.finding(ended, "socket[rx_rule_manager]").found.find(" and 3 more"), std::string::npos);
}

TEST_F(DoctorServices, AnswersForQueuesAreJudged) {
  make_a3();
  ServiceFacts facts = this->facts();
  facts.queues[0].message = "\x22\x00"s;  // none
  facts.queues[1].message = "HTTP/1.1 400 Bad Request";
  checks_.expect(facts, {{"queues[0000:04:00.0]", kFail}, {"queues[0000:0a:00.0]", kWarn}});
}

TEST_F(DoctorServices, GpusAndTheRegistryAreMissed) {
  here_.file("/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "").directory("/run/tcpx");
  expect({{"socket[rxdm_application_registry]", kWarn}, {"queues", kFail}});
  here_.file("/run/tcpx/get_gpu_fd_0000:aa:00.0", "");  // only RxDM shows it
  EXPECT_EQ(verdict("queues[0000:aa:00.0]"), kOk);
}

TEST(RxdmMessage, TheQuestionIsThatOfTheProtocol) {
  EXPECT_EQ(queue_query("0000:04:00.0"), "\x00\x10\x1a\x0e\x0a\x0c"s + "0000:04:00.0");
}

TEST(RxdmMessage, AnswersAreReadPackedOrNotAndWhatIsMalformedIsNone) {
  for (const auto& [message, ids] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"\x22\x05\x08\x08\x08\xac\x02"s, {8, 300}},
           {"\x22\x05\x0a\x03\x08\xac\x02"s, {8, 300}},
           {"\x0a\x02no\x28\x07\x22\x02\x08\x08\x3d\x01\x02\x03\x04"s, {8}},  // others around it
           {"\x22\x00"s, {}}})
    EXPECT_EQ(queue_ids_in(message), ids);
  for (const std::string& message : {""s, "\x0a\x03Ok."s, "\x22"s, "\x22\x7f\x08"s, "\x22\x01\x08"s, "\x22\x02\x0a\x05"s,
                                     "\x23\x24"s, "\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x08"s, std::string(40, '\xff')})
    EXPECT_EQ(queue_ids_in(message), std::nullopt);
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

class ServiceTalk : public ::testing::Test {
 protected:
  static constexpr std::chrono::seconds kLong{20};
  static Deadline soon() { return Deadline::after(kLong); }
  ServiceAnswer talk(const std::string& request, Duration limit = kLong) { return doctor::talk(path_, request, limit); }
  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.file("rx");
};

TEST_F(ServiceTalk, ReadsOneFramedAnswer) {
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

TEST_F(ServiceTalk, AServerThatClosesIsSeen) {
  std::string asked(4, '\0');
  const Server server(path_, [&](int client) {
    EXPECT_TRUE(recv_all(client, std::as_writable_bytes(std::span(asked)), soon()).is_ok());
    EXPECT_TRUE(send_all(client, std::as_bytes(std::span("\x01\x2chalf"sv)), soon()).is_ok());
  });
  EXPECT_EQ(talk("\x00\x02hi"s).end, End::kClosed);
}

TEST_F(ServiceTalk, AServerThatStaysSilentIsSeen) {
  char byte;
  const Server server(path_, [&](int client) {
    while (::recv(client, &byte, 1, 0) > 0) continue;
  });
  EXPECT_EQ(talk("\x00\x02hi"s, std::chrono::milliseconds(20)).end, End::kSilent);
}

TEST_F(ServiceTalk, WhereNobodyListensThereIsNoAnswer) {
  EXPECT_EQ(talk("").end, End::kAbsent);
  {
    const Server server(path_, [](int) {});
  }
  EXPECT_EQ(talk("").end, End::kRefused);
  EXPECT_EQ(doctor::talk("/" + std::string(200, 'x'), "").end, End::kFailed) << "it fits in no address";
}

}  // namespace
}  // namespace tcpx::doctor
