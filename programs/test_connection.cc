// test_connection: brings a connection up through the net plugin and down again, and says every step.
//
// The server listens on a device and ships the handle over the bootstrap connection; the client connects with it, the server
// accepts. Nothing is transferred: this is the program to run first when two machines do not talk.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "net/plugin_loader.h"
#include "programs/program.h"
#include "programs/roles.h"
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

class ConnectionEnd final : public ProgramEnd {
 public:
  ConnectionEnd(bool is_server, const Setup& setup) : is_server_(is_server), setup_(setup) {}

  void say(const std::string& text) override { programs::say(is_server_ ? "server" : "client", text); }
  Status run(BootstrapChannel& channel) override {
    say(concat(is_server_ ? "client " : "server ", channel.peer().to_string(), ", build ", channel.peer_build()));
    // Both ends must run this program over the same plugin.
    constexpr std::string_view kMustMatch[] = {"program", "plugin"};
    TCPX_RETURN_IF_ERROR(channel
                             .exchange_parameters({{"program", "test_connection"}, {"plugin", setup_.plugin.name()}}, kMustMatch,
                                                  setup_.deadline())
                             .status());
    return is_server_ ? serve(channel) : connect(channel);
  }

 private:
  Status serve(BootstrapChannel& channel) {
    TCPX_ASSIGN_OR_RETURN(auto listener, Listener::create(setup_.plugin, setup_.dev));
    say(concat("listening on device ", setup_.dev, " (", setup_.device_name, ")"));
    TCPX_RETURN_IF_ERROR(channel.send_handles({&listener.handle(), 1}, setup_.deadline()));
    say("sent the connection handle, 128 bytes");
    DeviceHandleStorage device_handle;
    TCPX_ASSIGN_OR_RETURN(auto comm, listener.accept(device_handle, {setup_.deadline(), &channel, &setup_.stop}));
    say("accepted: the receiving comm is up");
    TCPX_RETURN_IF_ERROR(part(channel, std::move(comm)));
    return listener.close();
  }

  Status connect(BootstrapChannel& channel) {
    TCPX_ASSIGN_OR_RETURN(const auto handles, channel.receive_handles(1, setup_.deadline()));
    say("got the connection handle, 128 bytes");
    TCPX_ASSIGN_OR_RETURN(auto comm,
                          connect_comm(setup_.plugin, setup_.dev, handles.front(), {setup_.deadline(), &channel, &setup_.stop}));
    say(concat("connected from device ", setup_.dev, " (", setup_.device_name, "): the sending comm is up"));
    return part(channel, std::move(comm));
  }

  /// When both comms are up each end closes its own: nobody closes under a peer that is still connecting.
  Status part(BootstrapChannel& channel, Comm comm) {
    TCPX_RETURN_IF_ERROR(channel.barrier(setup_.deadline()));
    say("both ends are connected");
    TCPX_RETURN_IF_ERROR(comm.close());
    say("closed the comm");
    return Status::ok();
  }

  const bool is_server_;
  const Setup& setup_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Connects two ends through the net plugin and takes the connection down again.\n"
      "Exit code: 0 passed, 1 failed, 2 usage, 77 skipped.");
  int dev = 0;
  app.add_option("--dev", dev, "network device, as test_device_discovery numbers them (default 0)")
      ->check(CLI::NonNegativeNumber);
  Roles roles(app);
  app.footer("Examples:\n  test_connection loopback\n  test_connection server --dev 1\n  test_connection client 10.0.0.2");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;

  const auto settings = program_settings();
  if (!settings.is_ok()) return failed(settings.status());
  if (roles.is_loopback()) environment_preset(Variable::kSocketIfname, "=lo");
  const auto loaded = PluginLoader::load();
  if (!loaded.is_ok()) return failed(loaded.status());
  NetPlugin& plugin = *loaded->plugin;
  const auto count = plugin.device_count();
  if (!count.is_ok()) return failed(count.status());
  if (*count == 0) return skipped(concat("net plugin ", plugin.name(), " offers no network device"));
  const auto properties = plugin.properties(dev);
  if (!properties.is_ok()) return failed(properties.status());
  const Setup setup{plugin, dev, properties->name, settings->timeout, stop_on_interrupt()};

  const auto make = [&](bool is_server) { return std::make_unique<ConnectionEnd>(is_server, setup); };
  const Status status = roles.run(make, settings->port, setup.timeout, setup.stop);
  return status.is_ok() ? passed("connected and parted in order") : failed(status);
}
