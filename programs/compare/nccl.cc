#include "programs/compare/nccl.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"

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

using nlohmann::json;

Status malformed(const std::string& what) {
  return Status(Code::kProtocol, "read result of bandwidth.py", what);
}

Result<uint64_t> bytes_of(const std::string& text) {
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error == std::errc() && end == text.data() + text.size() && bytes > 0) return bytes;
  return malformed(concat("a size is \"", text, "\""));
}

Result<Summary> summary_of(const json& values, size_t samples) {
  if (!values.is_array() || values.size() != 3) return malformed("a value is no [minimum, median, maximum]");
  double numbers[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!values[i].is_number()) return malformed("a value is no number");
    numbers[i] = values[i].get<double>();
    if (!std::isfinite(numbers[i]) || numbers[i] < 0) return malformed("a value is out of range");
  }
  if (numbers[0] > numbers[1] || numbers[1] > numbers[2]) return malformed("minimum, median, maximum are out of order");
  return Summary{.count = samples, .min = numbers[0], .median = numbers[1], .max = numbers[2]};
}

/// The object `root[key]` of sizes and summaries.
Result<MeasuredBy> rows_of(const json& root, const char* key, size_t samples, const std::string& mismatch) {
  const auto found = root.find(key);
  if (found == root.end() || !found->is_object()) return malformed(concat("no ", key));
  MeasuredBy rows;
  for (const auto& [size, values] : found->items()) {
    TCPX_ASSIGN_OR_RETURN(const uint64_t bytes, bytes_of(size));
    TCPX_ASSIGN_OR_RETURN(const Summary summary, summary_of(values, samples));
    rows[bytes] = {.summary = summary, .gigabytes_per_core_second = 0, .mismatch = mismatch};
  }
  return rows;
}

/// Adds the processor time to the rows that have one.
Status add_core_seconds(const json& root, MeasuredBy& rows) {
  const auto found = root.find("core_seconds_per_gb");
  if (found == root.end() || !found->is_object()) return malformed("no core_seconds_per_gb");
  for (const auto& [size, value] : found->items()) {
    TCPX_ASSIGN_OR_RETURN(const uint64_t bytes, bytes_of(size));
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      return malformed("a processor time is no number above zero");
    }
    const auto row = rows.find(bytes);
    if (row == rows.end()) return malformed(concat("a processor time for ", bytes, " bytes, which were not measured"));
    row->second.gigabytes_per_core_second = 1 / value.get<double>();
  }
  return Status::ok();
}

}  // namespace

const std::vector<NcclSetting>& nccl_settings() {
  const auto with = [](std::string label, const char* threads_and_sockets, const char* channels, EnvironmentOverrides more = {}) {
    more.insert({{"NCCL_SOCKET_NTHREADS", threads_and_sockets},
                 {"NCCL_NSOCKS_PERTHREAD", threads_and_sockets},
                 {"NCCL_NCHANNELS_PER_NET_PEER", channels},
                 {"NCCL_MIN_P2P_NCHANNELS", channels}});
    return NcclSetting{std::move(label), std::move(more)};
  };
  static const std::vector<NcclSetting> settings = {
      {"default", {}},
      with("2x2 sockets, 8 channels", "2", "8"),
      with("the same, pieces of 512 KiB", "2", "8", {{"NCCL_P2P_NET_CHUNKSIZE", "524288"}}),
      with("4x4 sockets, 4 channels", "4", "4"),
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

Result<MeasuredRun> run_nccl(const NcclSetting& setting, const NcclOptions& options, const std::atomic<bool>& stop) {
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
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) return malformed("it is no JSON object");
  const auto label = root.find("label"), verified = root.find("verified"), samples = root.find("samples");
  if (label == root.end() || !label->is_string()) return malformed("no label");
  if (verified == root.end() || !verified->is_boolean()) return malformed("no verified");
  if (samples == root.end() || !samples->is_number_unsigned() || samples->get<uint64_t>() == 0) return malformed("no samples");
  const std::string mismatch = verified->get<bool>() ? "" : "bytes differ";
  TCPX_ASSIGN_OR_RETURN(MeasuredBy one_way, rows_of(root, "gbps", samples->get<uint64_t>(), mismatch));
  TCPX_RETURN_IF_ERROR(add_core_seconds(root, one_way));
  TCPX_ASSIGN_OR_RETURN(MeasuredBy ping_pong, rows_of(root, "half_round_trip_us", samples->get<uint64_t>(), mismatch));
  return MeasuredRun{.name = label->get<std::string>(), .one_way = std::move(one_way), .ping_pong = std::move(ping_pong)};
}

}  // namespace tcpx
