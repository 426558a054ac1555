// bench_endpoint: how fast endpoints of two processes of this machine move memory, beside the bare transfer pipeline and NCCL.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <map>

#include "programs/command_line.h"
#include "programs/compare/endpoint_runs.h"

namespace {

using namespace tcpx;  // NOLINT: a program, not a header

void declare_options(CLI::App& app, EndpointRunOptions& options) {
  app.add_option("--only", options.only, "bulk, vector, latency, small, one, local, peers, memory (default all)")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kEndpointSections), std::end(kEndpointSections))));
  static const std::map<std::string, bool> ways{{"auto", true}, {"off", false}};
  app.add_option("--local", options.same_host,
                 "off (default): over TCP, as between hosts; auto: as the library does on one host. The section local has both")
      ->transform(one_of(ways));
  app.add_option("--peers", options.peers, "of the sections peers and memory (default 64)")->check(CLI::Range(1u, 1024u));
}

/// Many peers take many sockets. The ends inherit it.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  EndpointRunOptions options;
  CLI::App app(
      "Measures how fast endpoints of two processes of this machine move memory, GPU to GPU where there are any: long messages\n"
      "beside the bare transfer pipeline, vectors beside contiguous memory, latency beside NCCL, small messages, the path of one\n"
      "host beside TCP, many peers, and what a connection costs. What arrives is compared.\n"
      "Variables that tune endpoints and plugin are obeyed (docs/env.md), UCCL_TCPX_NUM_CHANNELS first of all.\n"
      "Exit code: 0 done, 1 failed or wrong bytes, 2 usage.");
  declare_options(app, options);
  app.footer("Example:\n  UCCL_TCPX_NUM_CHANNELS=4 bench_endpoint --gpus 0,1 --json endpoint.json");
  return comparison_main(app, argc, argv, 500, [&](Comparison& comparison) {
    allow_many_descriptors();
    return run_endpoint(options, comparison);
  });
}
