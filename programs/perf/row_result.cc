#include "programs/perf/row_result.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "measure/parameter_reader.h"
#include "measure/plain_text.h"

namespace tcpx::perf {
namespace {

constexpr std::string_view kNic = "nic ";
constexpr char kFirstWrong[] = "first wrong";

struct Field {
  const char* name;
  uint64_t EndRow::*value;
};
constexpr Field kFields[] = {{"count", &EndRow::count},         {"total ns", &EndRow::total_ns}, {"min ns", &EndRow::min_ns},
                             {"median ns", &EndRow::median_ns}, {"max ns", &EndRow::max_ns},     {"busy ns", &EndRow::busy_ns},
                             {"cpu ns", &EndRow::cpu_ns},       {"wrong", &EndRow::wrong},       {"p99 ns", &EndRow::p99_ns},
                             {"p99.9 ns", &EndRow::p999_ns}};

double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double average_ns(const EndRow& row) {
  return ratio(row.total_ns, row.count);
}

/// Bytes per nanosecond are GB/s.
double rate(uint64_t bytes, const EndRow& row) {
  const double average = average_ns(row);
  return average > 0 ? static_cast<double>(bytes) / average : 0;
}

}  // namespace

const char* title_of(Pattern mode) {
  return mode == Pattern::kOneWay ? "One way" : mode == Pattern::kBothWays ? "Both ways" : "Half a round trip";
}

const char* name_of(Layer layer) {
  constexpr const char* kNames[] = {"plugin", "pipeline", "tcp", "endpoint"};  // in the order of EndSetup::Kind
  return kNames[static_cast<size_t>(layer)];
}

void set_times(EndRow& row, std::vector<uint64_t> samples_ns) {
  row.count = samples_ns.size();
  row.total_ns = row.min_ns = row.median_ns = row.max_ns = row.p99_ns = row.p999_ns = 0;
  if (samples_ns.empty()) return;
  std::sort(samples_ns.begin(), samples_ns.end());
  for (const uint64_t sample : samples_ns) row.total_ns += sample;
  const size_t middle = samples_ns.size() / 2;
  row.min_ns = samples_ns.front();
  row.max_ns = samples_ns.back();
  // The least value that is no less than 99 % (99.9 %) of them.
  const size_t count = samples_ns.size();
  if (count >= kSamplesOfP99) row.p99_ns = samples_ns[(count * 99 + 99) / 100 - 1];
  if (count >= kSamplesOfP999) row.p999_ns = samples_ns[(count * 999 + 999) / 1000 - 1];
  row.median_ns = samples_ns.size() % 2 == 1 ? samples_ns[middle] : (samples_ns[middle - 1] + samples_ns[middle]) / 2;
}

Parameters encode_row(const EndRow& row) {
  Parameters parameters;
  for (const Field& field : kFields) parameters[field.name] = std::to_string(row.*field.value);
  parameters["verified"] = std::to_string(row.verified ? 1 : 0);
  parameters[kFirstWrong] = row.first_wrong;
  for (const auto& [nic, bytes] : row.nics) parameters[concat(kNic, nic)] = std::to_string(bytes);
  return parameters;
}

Result<EndRow> decode_row(const Parameters& parameters) {
  ParameterReader reader(parameters, "read the peer's results");
  EndRow row;
  for (const Field& field : kFields) row.*field.value = reader.number<uint64_t>(field.name);
  row.verified = reader.flag("verified");
  row.first_wrong = reader.text(kFirstWrong);
  for (const auto& [name, value] : parameters) {
    if (!name.starts_with(kNic)) continue;
    if (!is_plain_text(name)) reader.fail<bool>("a name of a NIC", "is not plain text");
    row.nics[name.substr(kNic.size())] = reader.number<uint64_t>(name);
  }
  TCPX_RETURN_IF_ERROR(reader.status());
  return row;
}

PerfRow make_row(Pattern mode, uint64_t bytes, const EndRow& server, const EndRow& client) {
  const bool servers = mode == Pattern::kOneWay || (mode == Pattern::kBothWays && average_ns(server) >= average_ns(client));
  const EndRow& timed = servers ? server : client;
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  PerfRow row;
  row.bytes = bytes;
  row.time = {static_cast<size_t>(timed.count), us(timed.min_ns), us(timed.median_ns), us(timed.max_ns)};
  if (timed.count >= kSamplesOfP99) row.p99 = us(timed.p99_ns);
  if (timed.count >= kSamplesOfP999) row.p999 = us(timed.p999_ns);
  row.average_us = average_ns(timed) / 1e3;
  row.gb_per_second = mode == Pattern::kBothWays ? rate(bytes, server) + rate(bytes, client) : rate(bytes, timed);
  for (const auto& [nic, nic_bytes] : server.nics) row.nics[nic] = ratio(nic_bytes, server.busy_ns);
  row.server_cpu = 100 * ratio(server.cpu_ns, server.busy_ns);
  row.client_cpu = 100 * ratio(client.cpu_ns, client.busy_ns);
  row.wrong = server.wrong + client.wrong;
  row.first_wrong = server.first_wrong.empty() ? client.first_wrong : server.first_wrong;
  row.verified = server.verified && client.verified;
  return row;
}

}  // namespace tcpx::perf
