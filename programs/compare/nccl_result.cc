#include "programs/compare/nccl_result.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tcpx::bench {
namespace {

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

std::string_view result_line(std::string_view output) {
  std::string_view found;
  while (!output.empty()) {
    const std::string_view line = output.substr(0, output.find('\n'));
    if (line.starts_with('{')) found = line;
    output.remove_prefix(std::min(output.size(), line.size() + 1));
  }
  return found;
}

Result<NcclRun> parse_nccl_result(std::string_view text) {
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
  return NcclRun{.label = label->get<std::string>(), .one_way = std::move(one_way), .ping_pong = std::move(ping_pong)};
}

}  // namespace tcpx::bench
