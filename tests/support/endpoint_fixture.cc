#include "tests/support/endpoint_fixture.h"

#include <algorithm>
#include <future>

#include "base/text.h"
#include "device/unpacker_factory.h"
#include "net/plugin_loader.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/same_bytes.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

constexpr std::byte kGuardByte{0xa5};
constexpr std::byte kClearByte{0xee};
constexpr std::chrono::milliseconds kLong{20'000};

std::shared_ptr<NetPlugin> make_plugin(PluginKind kind) {
  switch (kind) {
    case PluginKind::kFake: {
      FakeNetPlugin::Options options;
      options.page_count = 4096;
      options.shuffle_fragments = options.ragged_fragments = true;
      options.max_delay_tests = 2;
      auto fake = std::make_unique<FakeNetPlugin>(options);
      fake->answer_not_yet(Call::kConnect, 3);
      fake->answer_not_yet(Call::kAccept, 3);
      fake->answer_not_yet(Call::kSend, 5);
      fake->answer_not_yet(Call::kRecv, 5);
      return std::make_shared<LockedNetPlugin>(std::move(fake));
    }
    case PluginKind::kLinked:
    case PluginKind::kLibrary:
    case PluginKind::kFaulty:
      break;
  }
  auto loaded = PluginLoader::load({.path = kind == PluginKind::kLibrary ? TCPX_SOFT_PLUGIN : kEmbedded});
  if (!loaded.is_ok()) {
    ADD_FAILURE() << loaded.status().to_string();
    return nullptr;
  }
  // The registry of plugins keeps the one below forever.
  if (kind == PluginKind::kFaulty) {
    const FaultPolicy policy{.seed = 7, .delay_percent = 40};
    return std::make_shared<LockedNetPlugin>(std::make_unique<FaultyNetPlugin>(*loaded->plugin, policy));
  }
  return loaded->plugin;
}

}  // namespace

std::string name_of(const EndpointSetup& setup) {
  static constexpr const char* kPlugins[] = {"Linked", "Library", "Fake", "Faulty"};
  return concat(kPlugins[static_cast<size_t>(setup.plugin)], setup.memory == MemoryType::kCuda ? "Cuda" : "Host",
                setup.driver == Driver::kOutside ? "Driven" : "", setup.channels == 1 ? "" : "Channels3",
                setup.same_host ? "SameHost" : "", setup.hidden ? "Hidden" : "", setup.checksums ? "Checksums" : "");
}

std::vector<EndpointSetup> all_setups() {
  std::vector<EndpointSetup> setups = few_setups();
  setups.push_back({.memory = MemoryType::kCuda, .same_host = true});
  setups.push_back({.memory = MemoryType::kCuda, .same_host = true, .hidden = true});
  setups.push_back({.channels = 3});
  setups.push_back({.channels = 3, .checksums = true});
  setups.push_back({.same_host = true, .checksums = true});
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // Other plugins and drivers take the same ways, at other times.
  setups.push_back({.plugin = PluginKind::kLibrary, .memory = MemoryType::kHost});
  setups.push_back({.plugin = PluginKind::kFaulty, .memory = MemoryType::kCuda});
  setups.push_back({.driver = Driver::kOutside, .same_host = true});
  setups.push_back({.plugin = PluginKind::kFake, .memory = MemoryType::kCuda, .driver = Driver::kOutside, .channels = 3});
#endif
  return setups;
}

std::vector<EndpointSetup> few_setups() {
  return {{.memory = MemoryType::kHost},
          {.memory = MemoryType::kCuda},
          {.memory = MemoryType::kCuda, .driver = Driver::kOutside},
          {.memory = MemoryType::kHost, .same_host = true},
          {.memory = MemoryType::kHost, .same_host = true, .hidden = true},
          {.plugin = PluginKind::kFake, .memory = MemoryType::kCuda}};
}

std::vector<EndpointSetup> on_one_host(std::vector<EndpointSetup> setups) {
  for (EndpointSetup& setup : setups) setup.same_host = true;
  std::vector<EndpointSetup> once;
  for (const EndpointSetup& setup : setups) {
    const bool known =
        std::any_of(once.begin(), once.end(), [&](const EndpointSetup& other) { return name_of(other) == name_of(setup); });
    if (!known) once.push_back(setup);
  }
  return once;
}

GuardedBuffer::GuardedBuffer(size_t bytes) : bytes_(bytes + 2 * kGuard, kGuardByte) {
  clear();
}

void GuardedBuffer::clear() {
  std::fill_n(data(), size(), kClearByte);
}

bool GuardedBuffer::is_clear() const {
  return all_are(std::span(bytes_).subspan(kGuard, size()), kClearByte);
}

bool GuardedBuffer::guards_intact() const {
  return all_are(std::span(bytes_).first(kGuard), kGuardByte) && all_are(std::span(bytes_).last(kGuard), kGuardByte);
}

void EndpointTest::set_up(const EndpointSetup& setup) {
  setup_ = setup;
  if (setup.memory == MemoryType::kCuda && setup.plugin != PluginKind::kFake && make_machine_memory_ops()->has_gpu())
    GTEST_SKIP() << "the bounce pool is GPU memory here: covered by the gpu tests";
  plugin_ = make_plugin(setup.plugin);
  ASSERT_NE(plugin_, nullptr);
}

Side EndpointTest::make(EndpointConfig config) {
  EndpointParts parts;
  // The fake's pool is host memory everywhere.
  const bool fake = setup_.plugin == PluginKind::kFake;
  parts.memory = memory_ != nullptr ? memory_ : fake ? make_host_memory_ops() : make_machine_memory_ops();
  parts.plugin = plugin_;
  parts.unpacker = make_unpacker(fake ? UnpackKind::kHost : UnpackKind::kAuto, 0, *parts.memory).value();
  parts.lane = parts.memory->make_copy_lane(0).value();
  parts.devices = ChannelDevices(setup_.channels, 0);
  parts.settings.channels = setup_.channels;
  if (fake) parts.settings.chunk_bytes = 64 << 10;
  parts.addresses = {SocketAddress::loopback(0)};
  parts.path = "test";
  parts.reads_peers = !setup_.hidden;
  config.listen_address = config.public_address = "127.0.0.1";
  config.same_host &= setup_.same_host;
  config.progress_thread = setup_.driver == Driver::kThreads;
  if (!config.inline_bytes) config.inline_bytes = kInline;
  EXPECT_TRUE(environment_set(Variable::kChecksum, setup_.checksums ? "on" : "").is_ok());
  auto made = EndpointMaker::make(std::move(parts), config);
  EXPECT_TRUE(environment_set(Variable::kChecksum, "").is_ok());
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  Side side;
  if (!made.is_ok()) return side;
  side.endpoint = std::move(*made);
  if (setup_.driver == Driver::kOutside) side.drive();
  return side;
}

void EndpointTest::make_pair(const EndpointConfig& a, const EndpointConfig& b) {
  a_ = make(a);
  b_ = make(b);
  ASSERT_NE(a_.endpoint, nullptr);
  ASSERT_NE(b_.endpoint, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(a_, b_));
}

void EndpointTest::connect(Side& from, Side& to) {
  const auto address = Endpoint::read_metadata(to->get_metadata());
  ASSERT_TRUE(address.is_ok()) << address.status().to_string();
  auto accepted = std::async(std::launch::async, [&] { return to->accept(kLong); });
  const auto connected = from->connect(address->ip, address->gpu_idx, address->port, kLong);
  const auto other = accepted.get();
  ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
  ASSERT_TRUE(other.is_ok()) << other.status().to_string();
  from.conn = *connected;
  to.conn = other->conn;
}

MemoryId EndpointTest::reg(const Side& side, std::span<const std::byte> memory) {
  const auto id = side->register_memory(memory.data(), memory.size(), setup_.memory);
  EXPECT_TRUE(id.is_ok()) << id.status().to_string();
  return id.is_ok() ? *id : MemoryId{};
}

LocalRange EndpointTest::range(const Side& side, std::span<std::byte> memory) {
  return {reg(side, memory), memory.data(), memory.size()};
}

bool EndpointTest::has_heard(const Side& to, const Side& from, ConnId conn_of_from) {
  return from->notify(conn_of_from, {.name = "heard", .msg = {}}).is_ok() && to->wait_notifs(kLong).size() == 1;
}

::testing::AssertionResult EndpointTest::done(const Side& side, const Result<OperationId>& id) {
  if (!id.is_ok()) return ::testing::AssertionFailure() << "not started: " << id.status().to_string();
  const Status status = side->wait(*id, kLong);
  if (status.is_ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.to_string() << "; " << side->flight_record();
}

::testing::AssertionResult EndpointTest::fails(const Side& side, const Result<OperationId>& id, Code code) {
  if (!id.is_ok()) return ::testing::AssertionFailure() << "not started: " << id.status().to_string();
  const Status status = side->wait(*id, kLong);
  if (status.code() == code && side->poll(*id).state == OperationState::kUnknown) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.to_string() << "; " << side->flight_record();
}

}  // namespace tcpx::testing
