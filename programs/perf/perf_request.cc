#include "programs/perf/perf_request.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "measure/parameter_reader.h"
#include "measure/plain_text.h"
#include "net/soft/soft_table.h"

namespace tcpx::perf {
namespace {

constexpr char kProtocol[] = "perf protocol";
constexpr char kProtocolVersion[] = "6";

template <class Choice>
Choice choice(ParameterReader& reader, const std::string& name,
              std::initializer_list<std::pair<std::string_view, Choice>> words) {
  const std::string word = reader.text(name);
  for (const auto& [known, value] : words) {
    if (word == known) return value;
  }
  return reader.fail<Choice>(name, concat("is '", word, "', which is unknown"));
}

}  // namespace

void add_protocol(Parameters& mine) {
  mine[kProtocol] = kProtocolVersion;
}

Status check_protocol(const Parameters& theirs) {
  ParameterReader reader(theirs, "");
  const std::string version = reader.has(kProtocol) ? concat("protocol ", reader.text(kProtocol)) : "no protocol";
  if (version == concat("protocol ", kProtocolVersion)) return Status::ok();
  return {Code::kMismatch, "agree with the peer",
          concat("it speaks ", version, " of test_tcpx_perf, this end speaks ", kProtocolVersion,
                 "; run the same version at both ends")};
}

Parameters encode_request(const PerfOptions& options) {
  const double seconds = std::chrono::duration<double>(options.duration).count();
  Parameters request = {{"layer", name_of(options.layer)},
                        {"latency", options.mode == Pattern::kPingPong ? "1" : "0"},
                        {"bidirectional", options.mode == Pattern::kBothWays ? "1" : "0"},
                        {"min-bytes", std::to_string(options.sizes.min_bytes)},
                        {"max-bytes", std::to_string(options.sizes.max_bytes)},
                        {"factor", std::to_string(options.sizes.factor)},
                        {"iters", std::to_string(options.iterations)},
                        {"warmup", std::to_string(options.warm_up)},
                        {"duration", format_fixed(seconds, 3)},
                        {"channels", std::to_string(options.pipeline.channels)},
                        {"chunk", std::to_string(options.pipeline.chunk_bytes)},
                        {"longest-chunk", std::to_string(options.pipeline.longest_chunk_bytes)},
                        {"window", std::to_string(options.pipeline.recv_window)},
                        {"send-window", std::to_string(options.pipeline.send_window)},
                        {"memory", options.memory == MemoryType::kHost ? "host" : "cuda"},
                        {"local", options.same_host ? "auto" : "off"}};
  add_protocol(request);
  return request;
}

std::string contradiction(const PerfOptions& options) {
  if (options.sizes.min_bytes > options.sizes.max_bytes) return "-b: larger than -e";
  if (options.layer != Layer::kPipeline && options.mode == Pattern::kBothWays) {
    return concat("--bidirectional: not for --layer ", name_of(options.layer));
  }
  if (options.layer == Layer::kPlugin && options.sizes.max_bytes > MessagePlan::kMaxMessageBytes) {
    return "-e: --layer plugin moves at most 1G at once";
  }
  return options.layer == Layer::kRawTcp && options.memory != MemoryType::kHost ? "--memory: not for --layer tcp" : "";
}

// The server holds no more memory for all this than it has room for, which it tells the client next.
Result<std::string> take_request(const Parameters& request, PerfOptions& options) {
  TCPX_RETURN_IF_ERROR(check_protocol(request));
  constexpr std::string_view kOperation = "read the client's request";
  ParameterReader reader(request, kOperation);
  PerfOptions asked = options;
  asked.layer = choice<Layer>(reader, "layer",
                              {{name_of(Layer::kRawTcp), Layer::kRawTcp},
                               {name_of(Layer::kPlugin), Layer::kPlugin},
                               {name_of(Layer::kPipeline), Layer::kPipeline},
                               {name_of(Layer::kEndpoint), Layer::kEndpoint}});
  const bool latency = reader.flag("latency"), both_ways = reader.flag("bidirectional");
  if (latency && both_ways) reader.fail<bool>("latency", "excludes 'bidirectional'");
  asked.mode = latency ? Pattern::kPingPong : both_ways ? Pattern::kBothWays : Pattern::kOneWay;
  asked.sizes.min_bytes = reader.number<uint64_t>("min-bytes", 1, SizeSweep::kMaxBytes);
  asked.sizes.max_bytes = reader.number<uint64_t>("max-bytes", 1, SizeSweep::kMaxBytes);
  asked.sizes.factor = reader.number<uint32_t>("factor", 2, kMostFactor);
  asked.iterations = reader.number<uint32_t>("iters", 1, kMostTransfers);
  asked.warm_up = reader.number<uint32_t>("warmup", 0, kMostTransfers);
  asked.duration =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(reader.number<double>("duration", 0, kMostSeconds)));
  asked.pipeline.channels = reader.number<uint32_t>("channels", 0, kMaxChannels);
  asked.pipeline.chunk_bytes = reader.number<uint32_t>("chunk", 1, kMaxRequestBytes);
  asked.pipeline.longest_chunk_bytes = reader.number<uint32_t>("longest-chunk", 0, kMaxRequestBytes);
  asked.pipeline.recv_window = reader.number<uint32_t>("window", 0, soft::kRequests);
  asked.pipeline.send_window = reader.number<uint32_t>("send-window", 0, soft::kRequests);
  asked.memory = choice<MemoryType>(reader, "memory", {{"host", MemoryType::kHost}, {"cuda", MemoryType::kCuda}});
  asked.same_host = choice<bool>(reader, "local", {{"auto", true}, {"off", false}});
  TCPX_RETURN_IF_ERROR(reader.status());
  if (std::string wrong = contradiction(asked); !wrong.empty())
    return Status(Code::kProtocol, kOperation.data(), std::move(wrong));

  std::string overruled;
  const Parameters here = encode_request(options);
  for (const auto& [name, value] : here) {
    const std::string& theirs = request.at(name);
    if (!options.given.contains(name) || value == theirs) continue;
    overruled += concat(overruled.empty() ? "--" : ", --", name, " ", theirs, " (here ", value, ")");
  }
  options = std::move(asked);
  return overruled;
}

}  // namespace tcpx::perf
