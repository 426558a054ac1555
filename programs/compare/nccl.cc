#include "programs/compare/nccl.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/clock.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/words.h"

namespace tcpx {
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

/// Starts a Python program whose lines come in the order in which they were printed: both streams are one pipe.
Result<Listened> start(std::vector<std::string> words, EnvironmentOverrides variables) {
  variables["PYTHONUNBUFFERED"] = "1";
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

using nlohmann::json;

/// Thrown and caught in this file, as what the JSON library throws for anything missing or of another kind.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void expect(bool good, const char* what) {
  if (!good) throw Malformed(what);
}

uint64_t bytes_of(const std::string& text) {
  const uint64_t bytes = number_of<uint64_t>(text).value_or(0);
  expect(bytes > 0, "a size is no number");
  return bytes;
}

/// Sizes, each with [minimum, median, maximum].
MeasuredBy rows_of(const json& sizes, size_t samples, const std::string& mismatch) {
  MeasuredBy rows;
  for (const auto& [size, values] : sizes.items()) {
    expect(values.is_array() && values.size() == 3, "a value is no [minimum, median, maximum]");
    const auto least = values[0].get<double>(), median = values[1].get<double>(), most = values[2].get<double>();
    expect(0 <= least && least <= median && median <= most && std::isfinite(most), "a value is out of range or order");
    rows[bytes_of(size)] = {.summary = {samples, least, median, most}, .mismatch = mismatch};
  }
  return rows;
}

MeasuredRun run_of(const json& root) {
  const json& samples = root.at("samples");
  expect(samples.is_number_unsigned() && samples > 0, "no samples");
  const std::string mismatch = root.at("verified").get<bool>() ? "" : "bytes differ";
  MeasuredRun run{.name = root.at("label"),
                  .one_way = rows_of(root.at("gbps"), samples, mismatch),
                  .ping_pong = rows_of(root.at("half_round_trip_us"), samples, mismatch)};
  for (const auto& [size, seconds] : root.at("core_seconds_per_gb").items()) {
    const auto row = run.one_way.find(bytes_of(size));
    expect(row != run.one_way.end(), "a processor time is of what was not measured");
    row->second.gigabytes_per_core_second = 1 / seconds.get<double>();
    expect(seconds > 0 && std::isfinite(row->second.gigabytes_per_core_second), "a processor time is no number above zero");
  }
  return run;
}

}  // namespace

const std::vector<NcclSetting>& nccl_settings() {
  const auto with = [](std::string label, const char* threads, const char* sockets, const char* channels,
                       EnvironmentOverrides more = {}) {
    more.insert({{"NCCL_SOCKET_NTHREADS", threads},
                 {"NCCL_NSOCKS_PERTHREAD", sockets},
                 {"NCCL_NCHANNELS_PER_NET_PEER", channels},
                 {"NCCL_MIN_P2P_NCHANNELS", channels}});
    return NcclSetting{std::move(label), std::move(more)};
  };
  static const std::vector<NcclSetting> settings = {
      {"default", {}},
      with("2x2 sockets, 8 channels", "2", "2", "8"),
      with("the same, pieces of 512 KiB", "2", "2", "8", {{"NCCL_P2P_NET_CHUNKSIZE", "524288"}}),
      with("4x4 sockets, 4 channels", "4", "4", "4"),
      with("2x1 sockets, 32 channels, pieces of 1 MiB", "2", "1", "32", {{"NCCL_P2P_NET_CHUNKSIZE", "1048576"}}),
  };
  return settings;
}

Result<std::string> find_nccl(const NcclOptions& options, const std::atomic<bool>& stop) {
  const auto unsupported = [](std::string why) { return Status(Code::kUnsupported, "find NCCL", std::move(why)); };
  if (options.gpus.first == options.gpus.second) return unsupported("it needs two GPUs");
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

Result<MeasuredRun> run_nccl(const NcclSetting& setting, const NcclOptions& options, const std::atomic<bool>& stop) {
  TCPX_ASSIGN_OR_RETURN(const uint16_t port, free_port());
  std::vector<std::string> words = {"python3",
                                    "-c",
                                    options.script,
                                    "--gpus",
                                    concat(options.gpus.first, ",", options.gpus.second),
                                    "--sizes",
                                    joined(options.sizes, ","),
                                    "--ping-pong-sizes",
                                    joined(options.ping_pong_sizes, ","),
                                    "--milliseconds",
                                    concat(options.milliseconds)};
  EnvironmentOverrides variables = setting.variables;
  variables.insert({{"NCCL_NET", "Socket"},
                    {"NCCL_P2P_DISABLE", "1"},
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

std::string_view result_line(std::string_view output) {
  std::string_view found;
  while (!output.empty()) {
    const std::string_view line = output.substr(0, output.find('\n'));
    if (line.starts_with('{')) found = line;
    output.remove_prefix(std::min(output.size(), line.size() + 1));
  }
  return found;
}

Result<MeasuredRun> parse_nccl_result(std::string_view text) {
  try {
    return run_of(json::parse(text));
  } catch (const std::exception& error) {
    return Status(Code::kProtocol, "read result of bandwidth.py", error.what());
  }
}

}  // namespace tcpx
