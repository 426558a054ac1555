// bench_endpoint and bench_soft_plugin: what moves between two processes of this machine, beside raw TCP, NCCL and each other.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "measure/message_plan.h"
#include "programs/command_line.h"
#include "programs/compare/runs.h"
#include "programs/perf/parts.h"
#include "transfer/peer_messages.h"

namespace tcpx {
namespace {

constexpr int kMostChannelCounts = 4;  // more lines are no chart

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

void declare_options(CLI::App& app, SoftRunOptions& options) {
  app.add_option("--sizes", options.sizes, "bytes of the messages (default 8,4K,64K,512K,1M,4M,16M,64M)")
      ->delimiter(',')
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{1}, MessagePlan::kMaxMessageBytes));
  app.add_option("--sockets", options.sockets, "data sockets (default 1,4,8,16, as far as the plugin can)")
      ->delimiter(',')
      ->check(CLI::Range(1u, 64u));
  app.add_option("--channels", options.channels,
                 "of the pipeline, which share the data sockets (default 1; 1,4 on a machine of 16 cores or more)")
      ->delimiter(',')
      ->expected(1, kMostChannelCounts)
      ->check(CLI::Range(1u, kMaxChannels));
  app.add_option("--memory", options.memory, "host, gpu (default: host, and gpu where there is one)")
      ->delimiter(',')
      ->transform(one_of<MemoryType>({{"host", MemoryType::kHost}, {"gpu", MemoryType::kCuda}}));
  app.add_option("--request-bytes", options.request_bytes, "most bytes of one request (default 4M)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{1}, uint64_t{kMaxRequestBytes}));
  app.add_flag("--no-pipeline", options.without_pipeline, "the plugin alone");
  app.add_option("--unpack", options.unpack,
                 "kernel, d2d, host: how the pipeline unpacks, side by side (default: all, where there is a GPU)")
      ->delimiter(',')
      ->check(CLI::IsMember({"kernel", "d2d", "host"}));
  app.add_flag("--long", options.long_transfers, "transfers of 1 to 32768 chunks of 512K, too, as far as there is memory");
  app.add_option("--plugin", options.plugin, "library to measure instead of the plugin of this build")->type_name("FILE");
  add_chart_answer(app, "--chart");
}

/// Many peers take many sockets. The ends inherit it.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int endpoint_main(int argc, char** argv) {
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

int soft_plugin_main(int argc, char** argv) {
  SoftRunOptions options;
  CLI::App app(
      "Measures how fast the software plugin moves messages between two processes of this machine, from host to host memory and\n"
      "from GPU to GPU, driven bare and by the transfer pipeline, beside raw TCP and NCCL's own socket transport. What arrives is\n"
      "compared.\n"
      "Variables that tune the plugin are obeyed, but for the two that --sockets sets.\n"
      "Exit code: 0 done, 1 failed or wrong bytes, 2 usage.");
  declare_options(app, options);
  app.footer("Example:\n  bench_soft_plugin --json soft.json");
  return comparison_main(app, argc, argv, 200, [&](Comparison& comparison) { return run_soft(options, comparison); });
}

}  // namespace tcpx
