#include "programs/compare/nccl_runs.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/compare/nccl_result.h"

namespace tcpx::bench {
namespace {

constexpr Duration kImportLimit = std::chrono::seconds(90);
constexpr Duration kRunLimit = std::chrono::seconds(180);
constexpr size_t kMostOutput = 1u << 20;
constexpr int kLookMs = 100;  // longest delay until a Ctrl-C is seen

/// A program whose output is collected.
struct Listened {
  Child process;
  UniqueFd output_end;
  std::string output;
};

Result<Listened> start(std::vector<std::string> words, const EnvironmentOverrides& variables) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("make pipe", errno);
  Listened listened{.process = {}, .output_end = UniqueFd(ends[0]), .output = ""};
  const UniqueFd input_end(ends[1]);
  Result<Child> started =
      Child::start(std::move(words), variables, {{input_end.get(), STDOUT_FILENO}, {input_end.get(), STDERR_FILENO}});
  if (!started.is_ok()) return started.status();
  listened.process = std::move(started).value();
  return listened;
}

/// Plain text of at most `limit` bytes: it may come from any library.
std::string last_line(std::string_view output) {
  constexpr size_t kLimit = 200;
  while (!output.empty() && output.back() == '\n') output.remove_suffix(1);
  std::string line(output.substr(output.rfind('\n') + 1).substr(0, kLimit));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

/// Collects what all of `programs` print until they have ended. @return kSystem when one of them failed, with its last line.
Status finish(std::span<Listened> programs, Deadline deadline, const std::atomic<bool>& stop) {
  const auto is_open = [](const Listened& program) { return static_cast<bool>(program.output_end); };
  while (std::any_of(programs.begin(), programs.end(), is_open)) {
    if (stop) return Status(Code::kCancelled, "measure", "interrupted");
    if (deadline.expired()) return Status(Code::kTimeout, "measure NCCL", "did not end in time");
    for (Listened& program : programs) {
      pollfd wait{.fd = program.output_end.get(), .events = POLLIN, .revents = 0};
      if (!program.output_end || ::poll(&wait, 1, kLookMs) <= 0) continue;
      std::array<char, 65536> bytes;
      const ssize_t n = ::read(program.output_end.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n > 0 && program.output.size() < kMostOutput) program.output.append(bytes.data(), static_cast<size_t>(n));
      if (n > 0) continue;
      program.output_end.reset();
      if (const int code = program.process.wait(); code != 0) {
        return Status(Code::kSystem, "measure NCCL", concat(describe_exit(code), ": ", last_line(program.output)));
      }
    }
  }
  return Status::ok();
}

/// A port that nobody uses just now.
Result<uint16_t> free_port() {
  TCPX_ASSIGN_OR_RETURN(const UniqueFd listener, listen_tcp(SocketAddress::loopback(0), 1));
  TCPX_ASSIGN_OR_RETURN(const SocketAddress address, local_address(listener.get()));
  return address.port();
}

std::string joined(const std::vector<uint64_t>& values) {
  std::string text;
  for (const uint64_t value : values) text += concat(text.empty() ? "" : ",", value);
  return text;
}

}  // namespace

const std::vector<NcclSetting>& nccl_settings() {
  static const std::vector<NcclSetting> settings = {
      {"default", {{"NCCL_NET", "Socket"}}},
      {"2x2 sockets, 8 channels",
       {{"NCCL_NET", "Socket"},
        {"NCCL_SOCKET_NTHREADS", "2"},
        {"NCCL_NSOCKS_PERTHREAD", "2"},
        {"NCCL_NCHANNELS_PER_NET_PEER", "8"},
        {"NCCL_MIN_P2P_NCHANNELS", "8"}}},
      {"the same, pieces of 512 KiB",
       {{"NCCL_NET", "Socket"},
        {"NCCL_SOCKET_NTHREADS", "2"},
        {"NCCL_NSOCKS_PERTHREAD", "2"},
        {"NCCL_NCHANNELS_PER_NET_PEER", "8"},
        {"NCCL_MIN_P2P_NCHANNELS", "8"},
        {"NCCL_P2P_NET_CHUNKSIZE", "524288"}}},
      {"4x4 sockets, 4 channels",
       {{"NCCL_NET", "Socket"},
        {"NCCL_SOCKET_NTHREADS", "4"},
        {"NCCL_NSOCKS_PERTHREAD", "4"},
        {"NCCL_NCHANNELS_PER_NET_PEER", "4"},
        {"NCCL_MIN_P2P_NCHANNELS", "4"}}},
  };
  return settings;
}

Result<std::string> find_nccl(const NcclOptions& options, const std::atomic<bool>& stop) {
  const auto unsupported = [](std::string why) { return Status(Code::kUnsupported, "find NCCL", std::move(why)); };
  if (options.gpus.first == options.gpus.second) return unsupported("it needs two GPUs");
  if (::access(options.script.c_str(), R_OK) != 0) return unsupported(concat("cannot read ", options.script));
  Result<Listened> python =
      start({"python3", "-c",
             "import torch, torch.distributed as d\n"
             "assert d.is_nccl_available(), 'PyTorch has no NCCL'\n"
             "print('NCCL', '.'.join(map(str, torch.cuda.nccl.version())) + ',', 'PyTorch', torch.__version__)"},
            {});
  if (!python.is_ok()) return unsupported("no python3");
  const Status finished = finish({&*python, 1}, Deadline::after(kImportLimit), stop);
  if (!finished.is_ok()) return unsupported(concat("no PyTorch with NCCL: ", finished.detail()));
  return last_line(python->output);
}

Result<NcclRun> run_nccl(const NcclSetting& setting, const NcclOptions& options, const std::atomic<bool>& stop) {
  TCPX_ASSIGN_OR_RETURN(const uint16_t port, free_port());
  std::vector<std::string> words = {"python3",
                                    options.script,
                                    "--gpus",
                                    concat(options.gpus.first, ",", options.gpus.second),
                                    "--sizes",
                                    joined(options.sizes),
                                    "--ping-pong-sizes",
                                    joined(options.ping_pong_sizes),
                                    "--milliseconds",
                                    concat(options.milliseconds)};
  EnvironmentOverrides variables = setting.variables;
  variables.insert({{"NCCL_P2P_DISABLE", "1"},
                    {"NCCL_SHM_DISABLE", "1"},
                    {"NCCL_SOCKET_IFNAME", "lo"},
                    {"NCCL_DEBUG", "WARN"},
                    {"TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false"},
                    {"LABEL", setting.label},
                    {"WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", concat(port)}});
  std::vector<Listened> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    variables["RANK"] = concat(rank);
    TCPX_ASSIGN_OR_RETURN(Listened started, start(words, variables));
    ranks.push_back(std::move(started));
  }
  TCPX_RETURN_IF_ERROR(finish(ranks, Deadline::after(kRunLimit), stop));
  return parse_nccl_result(result_line(ranks.back().output));
}

}  // namespace tcpx::bench
