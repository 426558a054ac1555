// One end of a connection over all the machine's NICs, for the scenarios of tests/netns: a stream of transfers, four in flight,
// every byte verified, told line by line so that a script can act in the middle.
//
//   rails_peer {server|client HOST} [--port P] [--bytes B] [--transfers N]
//
// "transfer N verified" on the server, and at its end "rate: R MB/s" from the first post to the last verified byte.
#include <CLI/CLI.hpp>
#include <vector>

#include "base/text.h"
#include "perf/pattern.h"
#include "tests/support/program.h"
#include "transfer/bootstrap.h"
#include "transfer/connection_setup.h"
#include "transfer/default_endpoint.h"
#include "transfer/run.h"

namespace {

using namespace tcpx;           // NOLINT: a program, not a header
using namespace tcpx::testing;  // NOLINT

constexpr size_t kInFlight = 4;

struct Options {
  bool server = false;
  std::string host;
  uint16_t port = 0;
  size_t bytes = 16 << 20;
  uint64_t transfers = 8;
  Duration timeout{};
};

/// Transfer n lives in slot n modulo kInFlight, with pattern n.
class Peer {
 public:
  Peer(DefaultEndpoint& endpoint, const Options& options) : endpoint_(endpoint), options_(options) {}

  Status run(BootstrapChannel& channel) {
    TCPX_RETURN_IF_ERROR(open(channel));
    std::vector<MemoryBuffer> buffers;
    std::vector<RegisteredMemory> registered;
    for (size_t i = 0; i < kInFlight; ++i) {
      auto buffer = endpoint_.memory->allocate_mapped(0, options_.bytes);
      if (!buffer.is_ok()) return buffer.status();
      auto memory = connection_->register_memory(buffer->host(), options_.bytes, MemoryType::kHost);
      if (!memory.is_ok()) return memory.status();
      buffers.push_back(std::move(*buffer));
      registered.push_back(*memory);
    }
    const Status streamed = stream(channel, buffers, registered);
    connection_.reset();  // before the memory
    return streamed;
  }

 private:
  Deadline deadline() const { return Deadline::after(options_.timeout); }

  Status open(BootstrapChannel& channel) {
    const auto settings = PipelineSettings::from_environment();
    if (!settings.is_ok()) return settings.status();
    const auto devices = endpoint_.channel_devices(0, settings->channels);
    if (!devices.is_ok()) return devices.status();
    const HandshakeWait wait{.deadline = deadline(), .peer = &channel};
    const auto direction = options_.server ? Direction::kRecv : Direction::kSend;
    auto connection = options_.server ? open_receiver(*endpoint_.plugin, *devices, {}, settings->options(direction), wait)
                                      : open_sender(*endpoint_.plugin, *devices, settings->options(direction), wait);
    if (!connection.is_ok()) return connection.status();
    connection_ = std::move(*connection);
    return Status::ok();
  }

  Status stream(BootstrapChannel& channel, const std::vector<MemoryBuffer>& buffers,
                const std::vector<RegisteredMemory>& registered) {
    TCPX_RETURN_IF_ERROR(channel.barrier(deadline()));
    const TimePoint begin = Clock::steady().now();
    std::vector<TransferId> ids(kInFlight);
    for (uint64_t n = 0; n < options_.transfers + kInFlight; ++n) {
      const size_t slot = n % kInFlight;
      const std::span<std::byte> data(buffers[slot].host(), options_.bytes);
      if (n >= kInFlight) {
        const auto done = run_until_done(*connection_, ids[slot], {.deadline = deadline()});
        if (!done.is_ok()) return done.status();
        if (options_.server) {
          TCPX_RETURN_IF_ERROR(verify_pattern(data, n - kInFlight));
          say("server", concat("transfer ", n - kInFlight + 1, " verified"));
          std::fill(data.begin(), data.end(), std::byte{0xEE});
        }
      }
      if (n >= options_.transfers) continue;
      if (!options_.server) fill_pattern(data, n);
      const auto id = connection_->submit({.memory = registered[slot], .bytes = options_.bytes});
      if (!id.is_ok()) return id.status();
      ids[slot] = *id;
    }
    const double seconds = std::chrono::duration<double>(Clock::steady().now() - begin).count();
    const double megabytes = static_cast<double>(options_.bytes * options_.transfers) / 1e6;
    say(options_.server ? "server" : "client", concat("rate: ", static_cast<uint64_t>(megabytes / seconds), " MB/s"));
    TCPX_RETURN_IF_ERROR(channel.barrier(deadline()));
    return connection_->close();
  }

  DefaultEndpoint& endpoint_;
  const Options& options_;
  std::unique_ptr<Connection> connection_;
};

Result<BootstrapChannel> meet(const Options& options) {
  if (!options.server) return bootstrap_connect(options.host, options.port, Deadline::after(options.timeout), nullptr);
  auto server = BootstrapServer::create({.port = options.port});
  if (!server.is_ok()) return server.status();
  say("server", concat("waiting for a client on port ", (*server)->port()));
  return (*server)->accept(Deadline::after(options.timeout));
}

Status run(const Options& options) {
  auto endpoint = DefaultEndpoint::create();
  if (!endpoint.is_ok()) return endpoint.status();
  auto channel = meet(options);
  if (!channel.is_ok()) return channel.status();
  return channel->finish(Peer(*endpoint, options).run(*channel), Deadline::after(options.timeout));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("One end of a stream of transfers over all NICs.");
  app.fallthrough();
  app.require_subcommand(1);
  app.add_option("--port", options.port);
  app.add_option("--bytes", options.bytes)->check(CLI::Range(1u, 1u << 30));
  app.add_option("--transfers", options.transfers)->check(CLI::Range(1u, 1000000u));
  app.add_subcommand("server");
  app.add_subcommand("client")->add_option("HOST", options.host)->required();
  int exit_code = 0;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  options.server = app.got_subcommand("server");
  const auto settings = program_settings();
  if (!settings.is_ok()) return failed(settings.status());
  options.timeout = settings->timeout;
  const Status status = run(options);
  return status.is_ok() ? passed("every byte is where it belongs") : failed(status);
}
