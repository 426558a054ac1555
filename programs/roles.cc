#include "programs/roles.h"

#include <algorithm>
#include <new>
#include <thread>

#include "base/text.h"
#include "transfer/bootstrap.h"

namespace tcpx::programs {
namespace {

// Time an end that failed gives the other to learn of it. The way to it may be what failed.
constexpr Duration kFarewellAfterFailure = std::chrono::seconds(1);

Status with_room(const std::function<Status()>& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return {Code::kSystem, "allocate memory", "no room"};
  }
}

}  // namespace

Status run_end(std::unique_ptr<ProgramEnd> end, bool peer_waits, Duration timeout, const Meet& meet) {
  Status mine = with_room([&] { return end->prepare(); });
  if (!mine.is_ok() && !peer_waits) return mine;
  Result<BootstrapChannel> channel = meet(*end);
  if (!channel.is_ok()) return mine.is_ok() ? channel.status() : mine;
  if (mine.is_ok()) mine = with_room([&] { return end->run(*channel); });
  end.reset();
  return channel->finish(mine, Deadline::after(mine.is_ok() ? timeout : std::min(timeout, kFarewellAfterFailure)));
}

Roles::Roles(CLI::App& app) {
  app.add_option("--port", port_, "bootstrap port (default UCCL_TCPX_BOOTSTRAP_PORT, else 12345; loopback: any free one)")
      ->check(CLI::Range(0, 65535));
  app.add_subcommand("server", "wait for a client")->fallthrough();
  client_ = app.add_subcommand("client", "connect to the server at HOST")->fallthrough();
  client_->add_option("HOST", host_, "name, IPv4 or IPv6 address of the server")->required();
  loopback_ = app.add_subcommand("loopback", "both ends in this process")->fallthrough();
  app.require_subcommand(1);
}

Status Roles::run(const std::function<std::unique_ptr<ProgramEnd>(bool is_server)>& make, uint16_t port, Duration timeout,
                  const std::atomic<bool>& stop) const {
  const auto connect = [&](const std::string& host, uint16_t to) {
    return run_end(make(false), true, timeout, [&](ProgramEnd& end) {
      end.say(concat("connecting to ", host, " port ", to));
      return bootstrap_connect(host, to, Deadline::after(timeout), &stop);
    });
  };
  if (is_client()) return connect(host_, port_.value_or(port));
  TCPX_ASSIGN_OR_RETURN(auto server, BootstrapServer::create({.port = port_.value_or(is_loopback() ? 0 : port),
                                                              .host = is_loopback() ? "127.0.0.1" : "",
                                                              .stop = &stop}));
  // No client may ever come, unless it is this process's own.
  const auto serve = [&] {
    return run_end(make(true), is_loopback(), timeout, [&](ProgramEnd& end) {
      end.say(concat("waiting for a client on port ", server->port()));
      return server->accept(Deadline::after(timeout));
    });
  };
  if (!is_loopback()) return serve();
  Status served;
  std::thread thread([&] { served = serve(); });
  const Status connected = connect("127.0.0.1", server->port());
  thread.join();
  return served.is_ok() ? connected : served;
}

}  // namespace tcpx::programs
