#include "programs/perf/perf_request.h"

#include <initializer_list>
#include <string_view>
#include <type_traits>
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

/// Calls `visit` with the name of each number, its place, and the least and the most that it may be.
template <class Visit>
void each_number(Measurement& asked, Visit visit) {
  visit("min-bytes", asked.sizes.min_bytes, 1, SizeSweep::kMaxBytes);
  visit("max-bytes", asked.sizes.max_bytes, 1, SizeSweep::kMaxBytes);
  visit("factor", asked.sizes.factor, 2, kMostFactor);
  visit("iters", asked.iterations, 1, kMostTransfers);
  visit("warmup", asked.warm_up, 0, kMostTransfers);
  visit("channels", asked.pipeline.channels, 0, kMaxChannels);
  visit("chunk", asked.pipeline.chunk_bytes, 1, kMaxRequestBytes);
  visit("longest-chunk", asked.pipeline.longest_chunk_bytes, 0, kMaxRequestBytes);
  visit("window", asked.pipeline.recv_window, 0, soft::kRequests);
  visit("send-window", asked.pipeline.send_window, 0, soft::kRequests);
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

Parameters encode_request(const Measurement& asked) {
  const double seconds = std::chrono::duration<double>(asked.duration).count();
  Parameters request = {{"layer", name_of(asked.layer)},
                        {"latency", asked.mode == Pattern::kPingPong ? "1" : "0"},
                        {"bidirectional", asked.mode == Pattern::kBothWays ? "1" : "0"},
                        {"duration", format_fixed(seconds, 3)},
                        {"memory", asked.memory == MemoryType::kHost ? "host" : "cuda"},
                        {"local", asked.same_host ? "auto" : "off"}};
  Measurement numbers = asked;
  each_number(numbers, [&](const char* name, auto& value, auto, auto) { request[name] = std::to_string(value); });
  add_protocol(request);
  return request;
}

std::string contradiction(const Measurement& asked) {
  if (asked.sizes.min_bytes > asked.sizes.max_bytes) return "-b: larger than -e";
  if (asked.layer != Layer::kPipeline && asked.mode == Pattern::kBothWays) {
    return concat("--bidirectional: not for --layer ", name_of(asked.layer));
  }
  if (asked.layer == Layer::kPlugin && asked.sizes.max_bytes > MessagePlan::kMaxMessageBytes) {
    return "-e: --layer plugin moves at most 1G at once";
  }
  return asked.layer == Layer::kRawTcp && asked.memory != MemoryType::kHost ? "--memory: not for --layer tcp" : "";
}

// The server holds no more memory for all this than it has room for, which it tells the client next.
Result<std::string> take_request(const Parameters& request, PerfOptions& options) {
  TCPX_RETURN_IF_ERROR(check_protocol(request));
  constexpr std::string_view kOperation = "read the client's request";
  ParameterReader reader(request, kOperation);
  Measurement asked = options;
  asked.layer = choice<Layer>(reader, "layer",
                              {{name_of(Layer::kRawTcp), Layer::kRawTcp},
                               {name_of(Layer::kPlugin), Layer::kPlugin},
                               {name_of(Layer::kPipeline), Layer::kPipeline},
                               {name_of(Layer::kEndpoint), Layer::kEndpoint}});
  const bool latency = reader.flag("latency"), both_ways = reader.flag("bidirectional");
  if (latency && both_ways) reader.fail<bool>("latency", "excludes 'bidirectional'");
  asked.mode = latency ? Pattern::kPingPong : both_ways ? Pattern::kBothWays : Pattern::kOneWay;
  each_number(asked, [&](const char* name, auto& value, auto least, auto most) {
    using Number = std::remove_reference_t<decltype(value)>;
    value = reader.number<Number>(name, static_cast<Number>(least), static_cast<Number>(most));
  });
  asked.duration =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(reader.number<double>("duration", 0, kMostSeconds)));
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
  static_cast<Measurement&>(options) = asked;
  return overruled;
}

}  // namespace tcpx::perf
