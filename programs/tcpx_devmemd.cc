// tcpx_devmemd: binds device memory to NICs' receive queues, and leads flows there, for processes without CAP_NET_ADMIN
// (net/devmem/broker.h). examples/devmemd has a unit of systemd.
#include <grp.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/environment.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "net/devmem/broker.h"
#include "programs/program.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::programs;  // NOLINT

Result<std::optional<gid_t>> group_named(const std::string& name) {
  if (name.empty()) return std::optional<gid_t>();
  char* end = nullptr;
  const unsigned long number = std::strtoul(name.c_str(), &end, 10);
  if (*end == '\0' && number < static_cast<gid_t>(-1)) return std::optional(static_cast<gid_t>(number));
  if (const group* const found = ::getgrnam(name.c_str()); found != nullptr) return std::optional(found->gr_gid);
  return Status(Code::kNotFound, "find the group", concat("there is no group ", name));
}

/// As many open files as the system lets it have. Rules take no more than half of them.
void limit_rules(devmem::BrokerConfig& config) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  config.rules = std::min<rlim_t>(config.rules, files.rlim_max / 2);
  config.rules_of_user = std::min(config.rules_of_user, config.rules / 2);
}

Status serve(devmem::BrokerConfig config, const std::string& group) {
  TCPX_RETURN_IF_ERROR(environment_check_all());
  TCPX_ASSIGN_OR_RETURN(config.group, group_named(group));
  limit_rules(config);
  const std::atomic<bool>& stop = stop_on_interrupt();
  TCPX_ASSIGN_OR_RETURN(const auto broker, devmem::Broker::start(std::move(config)));
  say("tcpx_devmemd", "ready");
  while (!stop) std::this_thread::sleep_for(kLookAtStop);
  return Status::ok();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Lets processes without CAP_NET_ADMIN receive by device-memory TCP: binds their memory to receive queues of NICs and leads the\n"
      "packets of their listeners there. All that it does for a process is undone when that ends, and all that it does when this ends;\n"
      "after a SIGKILL, when it starts again. It needs CAP_NET_ADMIN over the network namespace, in which its clients must be, and a\n"
      "/run/tcpx-devmem that only its user may write to.\n"
      "\n"
      "Root and its own user may ask, and with --group the members of a group. Each of them can take all queues but the first of the\n"
      "NICs, and read what comes to ports on which it listens; nobody gets the packets of others. Says who gets what on stderr.\n"
      "Exit code: 0 ended by SIGTERM or Ctrl-C, 1 failed, 2 usage.");
  devmem::BrokerConfig config;
  (void)environment_preset(Variable::kLogLevel, "info");
  config.socket = environment_text(Variable::kDevmemSocket);
  std::string group;
  app.add_option("--socket", config.socket,
                 concat("path of the Unix socket at which it listens (default UCCL_TCPX_DEVMEM_SOCKET, else ",
                        environment_info(Variable::kDevmemSocket).default_text, ")"));
  app.add_option("--group", group, "name or number of the group whose members may ask, which owns the socket");
  app.add_option("--interface", config.interfaces, "interfaces that it gives, as a shell pattern; may be repeated. Default: all");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  const Status status = serve(std::move(config), group);
  return status.is_ok() ? kExitPassed : failed(status);
}
