// What a client of test_tcpx_perf asks for: a server takes it whole, bounded, or not at all.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "programs/perf/perf_request.h"

namespace tcpx::perf {
namespace {

PerfOptions unlike_the_defaults() {
  PerfOptions options;
  options.layer = Layer::kPipeline;
  options.mode = Pattern::kBothWays;
  options.sizes = {.min_bytes = 3, .max_bytes = SizeSweep::kMaxBytes, .factor = 5};
  options.iterations = 7;
  options.warm_up = 0;
  options.duration = std::chrono::milliseconds(1500);
  options.pipeline.channels = 4;
  options.pipeline.chunk_bytes = 65537;
  options.pipeline.longest_chunk_bytes = 1u << 20;
  options.pipeline.recv_window = 9;
  options.pipeline.send_window = 11;
  options.memory = MemoryType::kHost;
  options.same_host = false;
  return options;
}

PerfOptions example() {
  PerfOptions options;
  options.sizes = {.min_bytes = 1024, .max_bytes = 4096};
  return options;
}

/// Status of a server that is asked for what `example` is, but with these fields.
Status take_with(const Parameters& changes) {
  Parameters request = encode_request(example());
  for (const auto& [name, value] : changes) request[name] = value;
  PerfOptions options = unlike_the_defaults();
  const Parameters before = encode_request(options);
  const Status status = take_request(request, options).status();
  EXPECT_TRUE(status.is_ok() || encode_request(options) == before) << "an error changes nothing";
  return status;
}

TEST(PerfRequest, AServerDoesAllThatTheClientSays) {
  for (const PerfOptions& asked : {unlike_the_defaults(), example()}) {
    const Parameters request = encode_request(asked);
    PerfOptions options;
    options.role = PerfRole::kServer;
    options.port = 1;
    const auto overruled = take_request(request, options);
    ASSERT_TRUE(overruled.is_ok()) << overruled.status().to_string();
    EXPECT_EQ(*overruled, "");
    EXPECT_EQ(encode_request(options), request);
    EXPECT_EQ(options.sizes.max_bytes, asked.sizes.max_bytes);
    EXPECT_EQ(options.duration, asked.duration);
    EXPECT_EQ(options.mode, asked.mode);
    EXPECT_EQ(options.memory, asked.memory);
    EXPECT_TRUE(options.role == PerfRole::kServer && options.port == 1) << "the server's own";
  }
}

TEST(PerfRequest, AServerSaysWhatItWasGivenInVain) {
  PerfOptions options = unlike_the_defaults();
  options.given = {"min-bytes", "iters", "bidirectional", "memory", "local", "chunk"};
  PerfOptions asked = example();
  asked.iterations = options.iterations;
  EXPECT_EQ(
      take_request(encode_request(asked), options).value(),
      "--bidirectional 0 (here 1), --chunk 524288 (here 65537), --local auto (here off), --memory cuda (here host), --min-bytes "
      "1024 (here 3)");
}

TEST(PerfRequest, WhatIsOutOfRangeIsRefused) {
  ASSERT_TRUE(take_with({}).is_ok()) << take_with({}).to_string();
  const std::vector<std::pair<std::string, std::string>> wrong = {{"min-bytes", "0"},
                                                                  {"min-bytes", "4097"},
                                                                  {"max-bytes", "1099511627777"},
                                                                  {"max-bytes", "-1"},
                                                                  {"factor", "1"},
                                                                  {"factor", "1048577"},
                                                                  {"iters", "0"},
                                                                  {"iters", "1000001"},
                                                                  {"warmup", "1000001"},
                                                                  {"duration", "86400001"},
                                                                  {"channels", "17"},
                                                                  {"chunk", "0"},
                                                                  {"chunk", "4194305"},
                                                                  {"window", "129"},
                                                                  {"send-window", "129"},
                                                                  {"longest-chunk", "4194305"},
                                                                  {"layer", "sockets"},
                                                                  {"memory", "disk"},
                                                                  {"local", "on"},
                                                                  {"latency", "2"},
                                                                  {"bidirectional", ""}};
  for (const auto& [name, value] : wrong) {
    const Status status = take_with({{name, value}});
    EXPECT_EQ(status.code(), Code::kProtocol) << name << " " << value;
    EXPECT_NE(status.detail().find(name == "min-bytes" && value == "4097" ? "-b" : name), std::string::npos)
        << status.to_string();
  }
}

TEST(PerfRequest, WhatNoClientAsksForTogetherIsRefused) {
  EXPECT_TRUE(take_with({{"layer", "plugin"}, {"max-bytes", "1073741824"}}).is_ok());
  EXPECT_EQ(take_with({{"layer", "plugin"}, {"max-bytes", "1073741825"}}).code(), Code::kProtocol);
  EXPECT_TRUE(take_with({{"layer", "pipeline"}, {"bidirectional", "1"}}).is_ok());
  EXPECT_EQ(take_with({{"layer", "endpoint"}, {"bidirectional", "1"}}).code(), Code::kProtocol);
  EXPECT_EQ(take_with({{"latency", "1"}, {"bidirectional", "1"}}).code(), Code::kProtocol);
  EXPECT_EQ(take_with({{"layer", "tcp"}, {"memory", "cuda"}}).code(), Code::kProtocol);
}

TEST(PerfRequest, EachFieldMustBeThere) {
  for (const auto& [name, value] : encode_request(example())) {
    Parameters request = encode_request(example());
    request.erase(name);
    PerfOptions options;
    EXPECT_FALSE(take_request(request, options).is_ok()) << name;
  }
}

TEST(PerfRequest, APeerOfAnotherVersionIsToldApart) {
  // Servers and clients of protocol 5 compared what each had been given.
  const Status old = take_with({{"perf protocol", "5"}, {"first size", "1024"}});
  EXPECT_EQ(old.to_string(),
            "TCPX_E_MISMATCH: agree with the peer: it speaks protocol 5 of test_tcpx_perf, this end speaks 6; run the "
            "same version at both ends");
  const Status other = check_protocol({{"bytes", "1"}});
  EXPECT_EQ(other.detail(), "it speaks no protocol of test_tcpx_perf, this end speaks 6; run the same version at both ends");
}

}  // namespace
}  // namespace tcpx::perf
