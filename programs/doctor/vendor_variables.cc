// The variables of GPUDirect-TCPX that are not in our table: they configure its plugin and nothing of ours. And what it makes of
// values, whosever they are.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/text.h"
#include "programs/doctor/environment.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kPrefix = "NCCL_GPUDIRECTTCPX_";
// Behind the prefix, what it reads as numbers and what it reads as text (google/nccl-plugin-gpudirecttcpx @ 4b8ea7f,
// src/net_tcpx.cc, src/common.cc and others; the latency is of 91e8693). PORT_MAPPING is none: the function that reads it is
// never called.
constexpr std::array<std::string_view, 20> kNumbers = {
    "FLOW_STEERING_STRATEGY",
    "SOCKET_ENABLE",
    "CONNECTION_RETRY",
    "SPINWAIT_CONNECT",
    "RECV_SYNC",
    "FORCE_ACK",
    "TX_COMPLETION_NANOSLEEP",
    "REG_DMABUF_USE_INTERNAL_API",
    "CUDA_USE_PRIMARY_CTX",
    "NIC_N_RXQS",
    "TIMEOUT_THRESHOLD_NS",
    "TIMEOUT_FREQUENCY_NS",
    "REPORT_LIFECYCLE",
    "REPORT_NETWORK_LATENCY",
    "LOG_STATS_TO_STDOUT",
    "TELEMETRY_ENABLE_TASK_LEVEL_STATS",
    "TELEMETRY_ENABLE_REQUEST_LEVEL_STATS",
    "TELEMETRY_EXPORT_STATS_TO_FILE",
    "TELEMETRY_SAMPLING_FACTOR",
    "TELEMETRY_LOG_LINE_LIMIT",
};
constexpr std::array<std::string_view, 14> kTexts = {
    "SCHED_ALG",
    "TX_IRQ_BINDINGS",
    "RX_IRQ_BINDINGS",
    "WORKER_PIN_THREADS",
    "WORKER_SPRAY_COUNT",
    "WORKER_SPRAY_STRIDE",
    "CTRL_SOCKCOND",
    "SLOWNESS_SWITCH",
    "SLOWNESS_REPORT",
    "TELEMETRY_EXPORTER_PATH",
    "TELEMETRY_EXPORTER_CORE_INDEX",
    "TELEMETRY_FILE_LIFE",
    "TELEMETRY_FILE_REMOVE_FREQUENCY",
    "TELEMETRY_GARBAGE_COLLECTOR_INDEX",
};
// Numbers that it reads under other names, ours among them.
constexpr std::array<std::string_view, 8> kOtherNumbers = {
    "NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_NSOCKS_PERTHREAD",
    "NCCL_SOCKET_NTHREADS",    "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS",
    "NCCL_USE_DMA_BUF",        "NCCL_MIN_ZCOPY_SIZE",
    "NCCL_THREAD_SPIN_ENABLE", "NCCL_INLINE_THRESHOLD",
};

template <size_t n>
bool contains(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_number(std::string_view name) {
  return contains(kOtherNumbers, name) || (name.starts_with(kPrefix) && contains(kNumbers, name.substr(kPrefix.size())));
}

/// What people mean by "512K" and "0100", where that is clear.
std::optional<int64_t> meant_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(end, text.data() + text.size());
  if (unit.empty()) return number;
  const size_t power = std::string_view("KMGkmg").find(unit);
  if (unit.size() != 1 || power == unit.npos || number < 0 || number > INT32_MAX) return std::nullopt;
  return number << (power % 3 + 1) * 10;
}

}  // namespace

bool is_vendor_variable(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  const std::string_view suffix = name.substr(kPrefix.size());
  return contains(kNumbers, suffix) || contains(kTexts, suffix);
}

Findings check_vendor_variables(const Variables& variables) {
  Findings findings;
  // It reads numbers with strtoll(text, nullptr, 0): what is no digit ends them, and a 0 in front makes them octal.
  for (const auto& [name, value] : variables.all) {
    if (!is_number(name) || value.empty()) continue;
    char* end = nullptr;
    const int64_t read = std::strtoll(value.c_str(), &end, 0);
    const auto meant = meant_number(value);
    const bool hexadecimal = value.find_first_of("xX") != value.npos;
    if (*end == '\0' && (hexadecimal || meant == read)) continue;
    findings.push_back(warn(concat("number[", name, "]"), concat(value, ", of which GPUDirect-TCPX reads ", read),
                            "It takes the digits in front, octal ones behind a 0, and says nothing about the rest.",
                            meant ? concat("export ", name, "=", *meant) : concat("unset ", name)));
  }
  const VariableInfo& family = environment_info(Variable::kSocketFamily);
  if (variables.get(family.id) == "AF_INET6") {
    findings.push_back(
        fail("socket_family", concat(family.name, "=AF_INET6"),
             "GPUDirect-TCPX reads the addresses of a connection as IPv4, and RxDM steers no others: no connection "
             "is accepted.",
             concat("unset ", family.name)));
  }
  return findings;
}

}  // namespace tcpx::doctor
