// What tests of the broker have: one for a played kernel, and connections to it that say what a client would not.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/socket_io.h"
#include "base/unix_socket.h"
#include "net/devmem/broker.h"
#include "net/devmem/broker_client.h"
#include "net/devmem/broker_messages.h"
#include "tests/devmem/steering_test.h"
#include "tests/support/netlink_answers.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

inline constexpr uint64_t kTestDmabufBytes = 64 * 1024;
inline constexpr uint32_t kTestDmabufId = 17;

/// A file that stands for a dma-buf: a played kernel takes any.
inline UniqueFd make_dmabuf(uint64_t bytes = kTestDmabufBytes) {
  UniqueFd file(::memfd_create("dmabuf", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

inline UniqueFd listen_at(const std::string& host) {
  auto listener = listen_tcp(resolve(host, 0)->front(), 1);
  EXPECT_TRUE(listener.is_ok()) << listener.status().to_string();
  return *std::move(listener);
}

/// A connection to the broker.
class RawClient {
 public:
  explicit RawClient(const std::string& socket) : fd_(connect_unix(socket, SOCK_SEQPACKET).value()) {}

  void send(const void* bytes, size_t count, int descriptor) {
    const auto data = std::span(static_cast<const std::byte*>(bytes), count);
    if (descriptor >= 0)
      EXPECT_TRUE(send_descriptor(fd_.get(), data, descriptor).is_ok());
    else
      EXPECT_EQ(::send(fd_.get(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  devmem::BrokerAnswer answer() {
    devmem::BrokerAnswer answer;
    EXPECT_TRUE(wait_for(fd_.get(), POLLIN, Deadline::after(kTestDeadline)).is_ok());
    EXPECT_EQ(::recv(fd_.get(), &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
    return answer;
  }
  devmem::BrokerAnswer ask(const devmem::BrokerQuestion& question, int descriptor = -1) {
    send(&question, sizeof question, descriptor);
    return answer();
  }
  devmem::BrokerAnswer bind(const std::string& interface = "lo") {
    devmem::BrokerQuestion question{.kind = devmem::BrokerQuestionKind::kBind, .bytes = kTestDmabufBytes};
    interface.copy(question.interface, sizeof question.interface);
    return ask(question, make_dmabuf().get());
  }
  devmem::BrokerAnswer lead(int listener) { return ask({.kind = devmem::BrokerQuestionKind::kLead}, listener); }
  bool has_ended() const {
    pollfd entry{fd_.get(), 0, 0};
    return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
  }

 private:
  ForeignFd fd_;
};

inline std::string text_of(const devmem::BrokerAnswer& answer) {
  return std::string(answer.text, answer.text_bytes);
}
inline Code code_of(const devmem::BrokerAnswer& answer) {
  return static_cast<Code>(answer.code);
}

class BrokerTest : public SteeringTest {
 protected:
  /// The NIC of SteeringTest, which the broker's thread asks while a test looks.
  class SharedNic final : public devmem::EthtoolCalls {
   public:
    explicit SharedNic(FakeNic& nic) : nic_(nic) {}
    int ethtool(const std::string& interface, void* request) override {
      const MutexLock lock(mutex_);
      return nic_.ethtool(interface, request);
    }
    std::vector<uint64_t> rule_queues() {
      const MutexLock lock(mutex_);
      std::vector<uint64_t> queues;
      for (const auto& [location, rule] : nic_.rules) queues.push_back(rule.fs.ring_cookie);
      return queues;
    }
    std::vector<uint32_t> table() {
      const MutexLock lock(mutex_);
      return nic_.tables[0];
    }

   private:
    Mutex mutex_;
    FakeNic& nic_;
  };

  std::string socket() const { return place.file("devmemd"); }
  devmem::BrokerConfig config() const {
    devmem::BrokerConfig config;
    config.socket = socket();
    config.interfaces = {"l?"};
    config.records = directory.path();
    return config;
  }
  Result<std::unique_ptr<devmem::Broker>> start(devmem::BrokerConfig config) {
    return devmem::Broker::start(std::move(config), {shared_nic, [this] { return netdev(); }});
  }
  void run_broker() { run_broker(config()); }
  void run_broker(devmem::BrokerConfig config) {
    auto started = start(std::move(config));
    ASSERT_TRUE(started.is_ok()) << started.status().to_string();
    broker = *std::move(started);
  }

  /// A kernel with `queues` queues, that takes every bind.
  Result<devmem::Netdev> netdev() {
    const MutexLock lock(kernels_mutex);
    NetlinkAnswers& kernel = kernels.emplace_back();
    kernel.family(0x21);
    for (uint32_t i = 0; i < queues; ++i) kernel.answer({});
    kernel.refuse(ENOENT);
    Bytes id;
    append_attribute(id, 4, bytes_of(kTestDmabufId));
    kernel.answer(id);
    return devmem::Netdev::over(kernel.socket());
  }
  /// Bindings that have not ended.
  size_t bindings() {
    const MutexLock lock(kernels_mutex);
    size_t count = 0;
    for (const NetlinkAnswers& kernel : kernels) count += kernel.is_closed() ? 0 : 1;
    return count;
  }
  Result<std::shared_ptr<devmem::QueueBinding>> bind() {
    return devmem::bind_by_broker(socket(), "lo", make_dmabuf().get(), kTestDmabufBytes);
  }
  /// Nothing of any client is left at NIC and kernel.
  bool is_undone() {
    return shared_nic.rule_queues().empty() && bindings() == 0 &&
           shared_nic.table() == std::vector<uint32_t>{0, 1, 2, 3, 0, 1, 2, 3};
  }

  TemporaryDirectory place;
  SharedNic shared_nic{nic};
  uint32_t queues = FakeNic::kQueues;
  Mutex kernels_mutex;
  std::list<NetlinkAnswers> kernels;
  std::unique_ptr<devmem::Broker> broker;
};

}  // namespace tcpx::testing
