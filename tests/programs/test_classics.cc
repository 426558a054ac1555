// The five classics: well-known mistakes, made here on purpose on the fake and the software plugin. The message to the user, a
// Status or a line of the log, must name each of them (include/tcpx/help.h).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "net/abi/nccl_net_common.h"
#include "net/plugin_log.h"
#include "programs/perf/perf_report.h"
#include "rx/rx_cmsg_parser.h"
#include "tcpx/help.h"
#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"
#include "tests/support/wait_until.h"
#include "transfer/handshake.h"
#include "transfer/local_machine.h"

namespace tcpx {
namespace {

using testing::allow_log;
using testing::logged;
using testing::PipelinePair;

bool names(const std::string& text, Hint hint) {
  return text.find(name_of(hint)) != std::string::npos;
}

/// The report that test_tcpx_perf would make of one transfer through the fake plugin.
Report measured(const std::string& unpack, uint32_t queries_until_copied) {
  constexpr size_t kBytes = 40000;
  PipelinePair p;
  p.unpacker.queries_needed = queries_until_copied;
  const TimePoint begin = p.clock.now();
  p.submit_send(0, kBytes);
  p.submit_recv(0, kBytes);
  EXPECT_TRUE(p.drive_to_end());
  const double us = std::chrono::duration<double, std::micro>(p.clock.now() - begin).count();
  const perf::PerfRow row{
      .bytes = kBytes, .time = {5, us, us, us}, .average_us = us, .gb_per_second = static_cast<double>(kBytes) / us / 1e3};
  const perf::TableHead head{.version = "1", .server = "s", .client = "c", .unpack = unpack};
  Report report = perf::make_perf_report(head);
  report.tables.front().rows.push_back(perf::report_row(head, row));
  return report;
}

TEST(Classics, AKernelSlowerThanDeviceCopiesIsNamed) {
  const Report kernel = measured("kernel", 20), d2d = measured("d2d", 2);
  const std::vector<std::string> notes = perf::unpack_notes(kernel, {{"earlier", d2d}});
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(names(notes[0], Hint::kUnpackSlow)) << notes[0];
  EXPECT_NE(notes[0].find("unpack kernel"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("d2d (earlier)"), std::string::npos) << notes[0];

  EXPECT_TRUE(perf::unpack_notes(d2d, {{"earlier", kernel}}).empty()) << "the faster one is in use";
  EXPECT_TRUE(perf::unpack_notes(kernel, {{"earlier", measured("kernel", 2)}}).empty()) << "no other way to unpack";
  EXPECT_TRUE(perf::unpack_notes(kernel, {{"earlier", measured("none", 1)}}).empty()) << "that one moved nothing";
  EXPECT_TRUE(perf::unpack_notes(kernel, {{"earlier", measured("d2d", 20)}}).empty()) << "as fast";
}

TEST(Classics, APostBeyondTheQueueIsNamedBySoftwarePluginAndAdapter) {
  set_log_level(LogLevel::kDebug);
  auto endpoint = LocalMachine::create("embedded");
  ASSERT_TRUE(endpoint.is_ok()) << endpoint.status().to_string();
  NetPlugin& plugin = *endpoint->plugin;
  const HandshakeWait wait{.deadline = Deadline::after(testing::kTestDeadline)};
  MemoryBuffer memory = endpoint->memory->allocate_mapped(0, 4096).value();
  DeviceHandleStorage device_handle;
  Listener listener = Listener::create(plugin, 0).value();
  Comm send = connect_comm(plugin, 0, listener.handle(), wait).value();
  Comm recv = listener.accept(device_handle, wait).value();
  const MemoryHandle from = send.register_memory(memory.host(), memory.size(), MemoryType::kHost).value();
  const MemoryHandle into = recv.register_memory(memory.host(), memory.size(), MemoryType::kHost).value();
  for (Comm* comm : {&send, &recv}) {
    const MemoryHandle handle = comm == &send ? from : into;
    for (uint32_t i = 0; i < plugin.queue_depth(); ++i) ASSERT_TRUE(comm->try_post(memory.host(), 64, 0, handle).is_ok()) << i;
    const Status status = comm->try_post(memory.host(), 64, 0, handle).status();
    EXPECT_EQ(status.native(), 3) << status.to_string();
    EXPECT_TRUE(names(status.to_string(), Hint::kTooManyRequests)) << status.to_string();
  }
  EXPECT_TRUE(logged("128 requests are outstanding: test the oldest" + name_in_detail(Hint::kTooManyRequests)));
  EXPECT_TRUE(logged("128 receives are posted: consume the oldest" + name_in_detail(Hint::kTooManyRequests)));
}

TEST(Classics, AWindowOfSeventeenIsNamed) {
  PipelinePair p;
  const PipelineOptions options{.limits = {.window = kQueueDepth + 1}};
  const auto refused = Pipeline::create(Comm(p.fake, p.fake.make_wire().first), {}, p.clock, options);
  EXPECT_TRUE(names(refused.status().to_string(), Hint::kTooManyRequests)) << refused.status().to_string();
}

TEST(Classics, WhatGpuDirectTcpxSaysAboutAFullQueueIsNamed) {
  allow_log("unable to allocate requests");
  plugin_logger()(abi::kNcclLogWarn, 0, "work_queue.cc", 1, "NET/%s : unable to allocate requests", "GPUDirectTCPX");
  EXPECT_TRUE(logged("plugin: NET/GPUDirectTCPX : unable to allocate requests" + name_in_detail(Hint::kTooManyRequests)));
}

/// Says "done" at once and copies when the pages have been given back.
class HastyUnpacker final : public Unpacker {
 public:
  const char* name() const override { return "hasty"; }
  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
    return UnpackTicket{++tickets_};
  }
  Result<bool> query(UnpackTicket) override { return true; }
  void copy() {
    for (const DescriptorBlock& block : blocks_) cpu_unpack(block);
  }

 private:
  std::vector<DescriptorBlock> blocks_;
  uint64_t tickets_ = 0;
};

TEST(Classics, BytesOfPagesConsumedEarlyAreNamed) {
  constexpr size_t kBytes = 8192;
  HastyUnpacker hasty;
  PipelinePair p;
  const auto [send_comm, recv_comm] = p.fake.make_wire();
  auto send = Pipeline::create(Comm(p.fake, send_comm), {}, p.clock).value();
  auto recv = Pipeline::create(Comm(p.fake, recv_comm), {.unpacker = &hasty, .pool = p.fake.pool()}, p.clock).value();
  const RegisteredMemory from = send->register_memory(p.source.device(), p.source.size(), MemoryType::kCuda).value();
  const RegisteredMemory into = recv->register_memory(p.target.device(), p.target.size(), MemoryType::kCuda).value();
  fill_pattern({p.source.host(), kBytes}, 1);
  ASSERT_TRUE(send->submit({.memory = from, .bytes = kBytes}).is_ok());
  ASSERT_TRUE(recv->submit({.memory = into, .bytes = kBytes}).is_ok());
  for (int i = 0; i < 100 && send->pending() + recv->pending() > 0; ++i) {
    send->progress();
    recv->progress();
  }
  ASSERT_EQ(recv->pending(), 0u) << "the pages are back";
  hasty.copy();
  const Status verified = verify_pattern(p.received(0, kBytes), 1);
  EXPECT_EQ(verified.code(), Code::kMismatch);
  EXPECT_TRUE(names(verified.to_string(), Hint::kConsumedEarly)) << verified.to_string();
}

TEST(Classics, AReceiveThatWaitsWithTheTagOfASendIsNamed) {
  // The sender means its one message for the second receive and gives it that one's tag; the first receive gets it.
  allow_log("nothing advanced for");
  PipelinePair p;
  fill_pattern({p.source.host(), 100}, 1);
  ASSERT_TRUE(p.send->submit({.memory = p.send_memory, .bytes = 100, .tag = 7 + static_cast<int>(kTagsPerTransfer)}).is_ok());
  const TransferId first = p.recv->submit({.memory = p.recv_memory, .offset = 0, .bytes = 100, .tag = 5}).value();
  const TransferId second = p.recv->submit({.memory = p.recv_memory, .offset = 4096, .bytes = 100, .tag = 7}).value();
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }, 40000));
  EXPECT_EQ(p.fake.tags(), (std::vector<int>{10007, 5, 10007})) << "send and second receive have equal tags";
  EXPECT_EQ(p.recv->poll(first).state, TransferState::kDone);
  const Status stuck = p.recv->poll(second).status;
  EXPECT_EQ(stuck.code(), Code::kTimeout);
  EXPECT_TRUE(names(stuck.to_string(), Hint::kTagsIgnored)) << stuck.to_string();
  EXPECT_TRUE(logged("the oldest of 1 receives waits for the next message" + name_in_detail(Hint::kTagsIgnored)));
  EXPECT_TRUE(logged("posted, 100 bytes, 30000 ms, tag 10007")) << "the flight record";
}

TEST(Classics, AMessageForAnotherReceiveIsNamed) {
  allow_log("100 were posted");
  PipelinePair p;
  p.submit_send(0, 200);
  const TransferId got = p.submit_recv(0, 100);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_TRUE(names(p.recv->poll(got).status.to_string(), Hint::kTagsIgnored));
}

TEST(Classics, ASenderThatDoesNotPostIsNoMatterOfTags) {
  allow_log("nothing advanced for");
  PipelinePair p;
  p.fake.answer_not_yet(testing::Call::kSend, 1000000);
  const TransferId sent = p.submit_send(0, 1);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }, 40000));
  EXPECT_FALSE(names(p.send->poll(sent).status.to_string(), Hint::kTagsIgnored));
}

TEST(Classics, AMessageWithoutControlMessagesIsNamed) {
  allow_log("scatter list of chunk 0 refused");
  PipelinePair p;
  p.fake.rewrite = [](uint64_t, ReceivedMessage& received, std::vector<Fragment>& list) {
    list.clear();
    received.fragment_count = 0;
  };
  p.submit_send(0, 100);
  const TransferId got = p.submit_recv(0, 100);
  ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  const Status status = p.recv->poll(got).status;
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_TRUE(names(status.to_string(), Hint::kNoControlMessage)) << status.to_string();
  EXPECT_TRUE(logged("bytes of a message of 100" + name_in_detail(Hint::kNoControlMessage)));
}

TEST(Classics, ReceivedBytesWithoutARecordAreNamed) {
  const ParsedCmsg parsed = parse_rx_cmsg({.control = {}, .received_bytes = 100});
  EXPECT_EQ(parsed.error, CmsgError::kNoRecord);
  EXPECT_TRUE(names(std::string(name_of(parsed.error)), Hint::kNoControlMessage));
}

TEST(Classics, WhatGpuDirectTcpxSaysAboutAMissingControlMessageIsNamed) {
  allow_log("rx no cmsg");
  plugin_logger()(abi::kNcclLogWarn, 0, "tcpx.h", 1, "rx no cmsg");
  EXPECT_TRUE(logged("plugin: rx no cmsg" + name_in_detail(Hint::kNoControlMessage)));
}

}  // namespace
}  // namespace tcpx
