#include "programs/perf/row_table.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "measure/plain_text.h"

namespace tcpx::perf {
namespace {

// Characters of the columns, the blank in front included.
constexpr size_t kSize = 13, kCount = 8, kTime = 11, kRate = 9, kCpu = 8, kWrong = 12;
constexpr size_t kNicRate = 6;

std::string right(std::string_view text, size_t width) {
  return concat(std::string(width > text.size() ? width - text.size() : 1, ' '), text);
}

/// The rates of all NICs in one column, "5.21+5.18".
size_t nic_width(size_t nics) {
  return std::max<size_t>(14, nics * (kNicRate + 1) + 1);
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? std::string_view() : separator).append(word);
  return text;
}

std::string what_is_sent(PerfMode mode) {
  switch (mode) {
    case PerfMode::kOneWay:
      return "one way, client to server, transfers back to back; times as the server sees them";
    case PerfMode::kBidirectional:
      return "both ways at once, transfers back to back; times of the slower direction, rates of both together";
    case PerfMode::kLatency:
      return "one transfer at a time, there and back; times are half of a round trip as the client sees it";
  }
  return "";
}

std::string over_what(const TableHead& head) {
  const std::string chunks = concat(" of ", head.chunk_bytes, " bytes");
  switch (head.layer) {
    case Layer::kTcp:
      return concat("layer tcp: ", head.channels, head.channels == 1 ? " stream" : " streams", ", calls", chunks,
                    "; times are averages of a round");
    case Layer::kPlugin:
      return concat("layer plugin: one comm, requests", chunks, "; times are averages of a round");
    case Layer::kPipeline:
      return concat(head.channels, head.channels == 1 ? " channel" : " channels", " over ", join(head.nics, ", "), "; chunks",
                    chunks);
    case Layer::kEndpoint:
      return "layer endpoint: sends and receives; times are averages of a round";
  }
  return "";
}

const char* what_is_compared(const TableHead& head) {
  if (!head.verified) return "UNVERIFIED: nothing is unpacked, nothing compared";
  return head.layer == Layer::kTcp ? "the last transfer of each round is compared, outside the timed part"
                                   : "every byte of every transfer is compared, outside the timed part";
}

std::string how_often(const TableHead& head) {
  const std::string warm_up = concat(head.warm_up, " transfers to warm up, then ");
  if (head.duration <= Duration::zero()) return concat(warm_up, head.iterations, " timed ones of each size");
  const double seconds = std::chrono::duration<double>(head.duration).count();
  return concat(warm_up, "timed ones for ", format_measured(seconds), " s of each size");
}

/// Text of a time; "-" where it is not known: too few transfers.
std::string time_text(const std::optional<double>& us) {
  return us ? format_measured(*us) : "-";
}

std::string time_csv(const std::optional<double>& us) {
  return us ? format_fixed(*us, 3) : "";
}

/// Latency has its tail in the table, too.
std::string tail_columns(PerfMode mode, std::string_view p99, std::string_view p999) {
  return mode == PerfMode::kLatency ? right(p99, kTime) + right(p999, kTime) : "";
}

}  // namespace

std::string table_head(const TableHead& head) {
  std::string text = concat("# test_tcpx_perf ", head.version, ": ", what_is_sent(head.mode), "\n# server: ", head.server,
                            "\n# client: ", head.client, "\n# ", over_what(head), "; ", how_often(head),
                            "\n# GB/s: bytes / average time, 1 GB = 1e9 bytes; by NIC: of the server; CPU: 100 % is one core\n# ",
                            what_is_compared(head),
                            head.mode != PerfMode::kLatency
                                ? ""
                                : concat("\n# p50 is the median; p99 needs ", kSamplesOfP99, " transfers of a size, p99.9 ",
                                         kSamplesOfP999, " (-n): \"-\" where there were fewer"),
                            "\n#\n");
  const bool latency = head.mode == PerfMode::kLatency;
  text += concat("#", right("size", kSize - 1), right("count", kCount), right("min", kTime),
                 right(latency ? "p50" : "median", kTime), tail_columns(head.mode, "p99", "p99.9"), right("max", kTime),
                 right("average", kTime), right("rate", kRate), right("by NIC", nic_width(head.nics.size())),
                 right("server", kCpu), right("client", kCpu), right("wrong", kWrong), "\n");
  text += concat("#", right("(B)", kSize - 1), right("", kCount), right("(us)", kTime), right("(us)", kTime),
                 tail_columns(head.mode, "(us)", "(us)"), right("(us)", kTime), right("(us)", kTime), right("(GB/s)", kRate),
                 right("(GB/s)", nic_width(head.nics.size())), right("(CPU %)", kCpu), right("(CPU %)", kCpu),
                 right("(B)", kWrong), "\n");
  return text;
}

std::string table_line(const PerfRow& row) {
  std::vector<std::string> nics;
  for (const NicRate& nic : row.nics) nics.push_back(format_measured(nic.gb_per_second));
  return concat(right(std::to_string(row.bytes), kSize), right(std::to_string(row.time.count), kCount),
                right(format_measured(row.time.min), kTime), right(format_measured(row.time.median), kTime),
                tail_columns(row.mode, time_text(row.p99), time_text(row.p999)), right(format_measured(row.time.max), kTime),
                right(format_measured(row.average_us), kTime), right(format_measured(row.gb_per_second), kRate),
                right(join(nics, "+"), nic_width(row.nics.size())), right(format_fixed(row.server_cpu, 0), kCpu),
                right(format_fixed(row.client_cpu, 0), kCpu),
                right(row.verified ? std::to_string(row.wrong) : "unverified", kWrong), "\n");
}

std::string last_line(const PerfRow& row) {
  return concat("[PERF] Avg: ", format_fixed(row.average_us / 1e3, 3), " ms, BW: ", format_fixed(row.gb_per_second, 2), " GB/s (",
                format_bytes(static_cast<double>(row.bytes)), ", the last size", row.verified ? "" : ", unverified", ")");
}

std::string csv_head(const std::vector<std::string>& nics) {
  std::string text = "bytes,count,min_us,p50_us,p99_us,p99.9_us,max_us,average_us,gb_per_second";
  for (const std::string& nic : nics) text += concat(",gb_per_second_", nic);
  text += ",server_cpu_percent,client_cpu_percent,wrong_bytes\n";
  return text;
}

std::string csv_line(const PerfRow& row) {
  std::string text = concat(row.bytes, ',', row.time.count);
  for (const std::optional<double>& us : {std::optional(row.time.min), std::optional(row.time.median), row.p99, row.p999,
                                          std::optional(row.time.max), std::optional(row.average_us)}) {
    text += concat(',', time_csv(us));
  }
  text += concat(',', format_fixed(row.gb_per_second, 6));
  for (const NicRate& nic : row.nics) text += concat(',', format_fixed(nic.gb_per_second, 6));
  return text + concat(',', format_fixed(row.server_cpu, 1), ',', format_fixed(row.client_cpu, 1), ',',
                       row.verified ? std::to_string(row.wrong) : "unverified", '\n');
}

}  // namespace tcpx::perf
