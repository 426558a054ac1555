// test_connection: brings a connection up through the net plugin and down again, and says every step.
//
// The server listens on a device and ships the handle over the bootstrap connection; the client connects with it, the server
// accepts. Nothing is transferred: this is the program to run first when two machines do not talk.
#include <CLI/CLI.hpp>
#include <thread>

#include "base/environment.h"
#include "base/text.h"
#include "net/plugin_loader.h"
#include "programs/program.h"
#include "transfer/bootstrap.h"
#include "transfer/handshake.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::programs;  // NOLINT

struct Setup {
  NetPlugin& plugin;
  int dev;
  std::string device_name;
  Duration timeout;
  const std::atomic<bool>& stop;
  Deadline deadline() const { return Deadline::after(timeout); }
};

/// Both ends must run this program over the same plugin.
Status compare(const Setup& setup, BootstrapChannel& channel) {
  constexpr std::string_view kMustMatch[] = {"program", "plugin"};
  return channel
      .exchange_parameters({{"program", "test_connection"}, {"plugin", setup.plugin.name()}}, kMustMatch, setup.deadline())
      .status();
}

/// When both comms are up each end closes its own: nobody closes under a peer that is still connecting.
Status part(const Setup& setup, BootstrapChannel& channel, Comm comm, const std::string& who) {
  TCPX_RETURN_IF_ERROR(channel.barrier(setup.deadline()));
  say(who, "both ends are connected");
  TCPX_RETURN_IF_ERROR(comm.close());
  say(who, "closed the comm");
  return Status::ok();
}

Status serve(const Setup& setup, BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(compare(setup, channel));
  TCPX_ASSIGN_OR_RETURN(auto listener, Listener::create(setup.plugin, setup.dev));
  say("server", concat("listening on device ", setup.dev, " (", setup.device_name, ")"));
  TCPX_RETURN_IF_ERROR(channel.send_handles({&listener.handle(), 1}, setup.deadline()));
  say("server", "sent the connection handle, 128 bytes");
  DeviceHandleStorage device_handle;
  TCPX_ASSIGN_OR_RETURN(auto comm, listener.accept(device_handle, {setup.deadline(), &channel, &setup.stop}));
  say("server", "accepted: the receiving comm is up");
  TCPX_RETURN_IF_ERROR(part(setup, channel, std::move(comm), "server"));
  return listener.close();
}

Status connect(const Setup& setup, BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(compare(setup, channel));
  TCPX_ASSIGN_OR_RETURN(const auto handles, channel.receive_handles(1, setup.deadline()));
  say("client", "got the connection handle, 128 bytes");
  TCPX_ASSIGN_OR_RETURN(auto comm,
                        connect_comm(setup.plugin, setup.dev, handles.front(), {setup.deadline(), &channel, &setup.stop}));
  say("client", concat("connected from device ", setup.dev, " (", setup.device_name, "): the sending comm is up"));
  return part(setup, channel, std::move(comm), "client");
}

Status run_server(const Setup& setup, BootstrapServer& server) {
  say("server", concat("waiting for a client on port ", server.port()));
  TCPX_ASSIGN_OR_RETURN(auto channel, server.accept(setup.deadline()));
  say("server", concat("client ", channel.peer().to_string(), ", build ", channel.peer_build()));
  return channel.finish(serve(setup, channel), setup.deadline());
}

Status run_client(const Setup& setup, const std::string& host, uint16_t port) {
  say("client", concat("looking for the server at ", host, " port ", port));
  TCPX_ASSIGN_OR_RETURN(auto channel, bootstrap_connect(host, port, setup.deadline(), &setup.stop));
  say("client", concat("server ", channel.peer().to_string(), ", build ", channel.peer_build()));
  return channel.finish(connect(setup, channel), setup.deadline());
}

Status run_loopback(const Setup& setup, BootstrapServer& server) {
  Status client_status;
  std::thread client([&] { client_status = run_client(setup, "127.0.0.1", server.port()); });
  Status server_status = run_server(setup, server);
  client.join();
  return server_status.is_ok() ? client_status : server_status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Connects two ends through the net plugin and takes the connection down again.\n"
      "Exit code: 0 passed, 1 failed, 2 usage, 77 skipped.");
  int dev = 0;
  std::optional<uint16_t> port;
  std::string host;
  app.add_option("--dev", dev, "network device, as test_device_discovery numbers them (default 0)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--port", port, "bootstrap port (default UCCL_TCPX_BOOTSTRAP_PORT, else 12345; loopback: any free one)");
  app.add_subcommand("server", "wait for a client")->fallthrough();
  CLI::App* client = app.add_subcommand("client", "connect to the server at HOST")->fallthrough();
  client->add_option("HOST", host, "name, IPv4 or IPv6 address of the server")->required();
  CLI::App* loopback = app.add_subcommand("loopback", "both ends in this process")->fallthrough();
  app.require_subcommand(1);
  app.footer("Examples:\n  test_connection loopback\n  test_connection server --dev 1\n  test_connection client 10.0.0.2");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;

  const auto settings = program_settings();
  if (!settings.is_ok()) return failed(settings.status());
  if (loopback->parsed()) environment_preset(Variable::kSocketIfname, "=lo");
  const auto loaded = PluginLoader::load();
  if (!loaded.is_ok()) return failed(loaded.status());
  NetPlugin& plugin = *loaded->plugin;
  const auto count = plugin.device_count();
  if (!count.is_ok()) return failed(count.status());
  if (*count == 0) return skipped(concat("net plugin ", plugin.name(), " offers no network device"));
  const auto properties = plugin.properties(dev);
  if (!properties.is_ok()) return failed(properties.status());
  const Setup setup{plugin, dev, properties->name, settings->timeout, stop_on_interrupt()};

  if (client->parsed()) {
    const Status status = run_client(setup, host, port.value_or(settings->port));
    return status.is_ok() ? passed("connected and parted in order") : failed(status);
  }
  const uint16_t server_port = port.value_or(loopback->parsed() ? 0 : settings->port);
  const std::string server_host = loopback->parsed() ? "127.0.0.1" : "";
  const auto server = BootstrapServer::create({.port = server_port, .host = server_host, .stop = &setup.stop});
  if (!server.is_ok()) return failed(server.status());
  const Status status = loopback->parsed() ? run_loopback(setup, **server) : run_server(setup, **server);
  return status.is_ok() ? passed("connected and parted in order") : failed(status);
}
