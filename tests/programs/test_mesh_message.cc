#include "programs/mesh/mesh_message.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tcpx::mesh {
namespace {

RankDescription example_description() {
  return {.rank = 3,
          .size = 4,
          .host = "host-b",
          .memory = "GPU 1",
          .version = "0.1.0",
          .port = 4711,
          .options = {{"size", "1 MiB"}}};
}

Command example_task() {
  return {.kind = Command::Kind::kTask, .task = {.round = 7, .send_to = Task::Receiver{2, "10.0.0.2", 1234}, .receive_from = 1}};
}

RoundReport example_report() {
  return {.sent = Result<PairResult>(Status(Code::kPeerGone, "send", "connection reset")),
          .received = Result<PairResult>(PairResult{12.345678901234567, true})};
}

TEST(MeshMessage, DescriptionsArriveAsTheyWere) {
  const auto description = decode_description(encode_description(example_description()));
  ASSERT_TRUE(description.is_ok()) << description.status().to_string();
  EXPECT_EQ(encode_description(*description), encode_description(example_description()));
  EXPECT_EQ(description->rank, 3);
  EXPECT_EQ(description->host, "host-b");
  EXPECT_EQ(description->port, 4711);
  EXPECT_EQ(description->options, (Parameters{{"size", "1 MiB"}}));
}

TEST(MeshMessage, TasksArriveAsTheyWere) {
  const auto command = decode_command(encode_command(example_task()));
  ASSERT_TRUE(command.is_ok()) << command.status().to_string();
  EXPECT_EQ(command->task.round, 7);
  ASSERT_TRUE(command->task.send_to && command->task.receive_from);
  EXPECT_EQ(command->task.send_to->rank, 2);
  EXPECT_EQ(command->task.send_to->host, "10.0.0.2");
  EXPECT_EQ(command->task.send_to->port, 1234);
  EXPECT_EQ(*command->task.receive_from, 1);
  const auto idle = decode_command(encode_command({.kind = Command::Kind::kTask, .task = {.round = 1}}));
  ASSERT_TRUE(idle.is_ok());
  EXPECT_FALSE(idle->task.send_to || idle->task.receive_from);
  for (const auto kind : {Command::Kind::kGo, Command::Kind::kEnd}) {
    const auto plain = decode_command(encode_command({.kind = kind}));
    ASSERT_TRUE(plain.is_ok());
    EXPECT_EQ(plain->kind, kind);
  }
}

TEST(MeshMessage, ReportsKeepResultsAndErrors) {
  const auto report = decode_report(encode_report(example_report()));
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  ASSERT_TRUE(report->sent && report->received);
  EXPECT_EQ(report->sent->status().code(), Code::kPeerGone);
  EXPECT_EQ(report->sent->status().detail(), "send: connection reset");
  ASSERT_TRUE(report->received->is_ok());
  EXPECT_EQ((*report->received)->gigabytes_per_second, 12.345678901234567) << "every digit";
  EXPECT_TRUE((*report->received)->verified);
  const auto empty = decode_report({});
  ASSERT_TRUE(empty.is_ok());
  EXPECT_FALSE(empty->sent || empty->received);
}

TEST(MeshMessage, ALongErrorStillFits) {
  const RoundReport report{.sent = Result<PairResult>(Status(Code::kSystem, "send", std::string(5000, 'x')))};
  EXPECT_TRUE(encode_parameters(encode_report(report)).is_ok());
}

TEST(MeshMessage, WhatDoesNotAddUpIsNamed) {
  using Decode = Status (*)(const Parameters&);
  struct Kind {
    Parameters good;
    Decode decode;
    std::vector<std::pair<std::string, std::string>> bad;  // field and value; "" for a missing one
  };
  const std::vector<Kind> kinds = {{encode_description(example_description()),
                                    [](const Parameters& p) { return decode_description(p).status(); },
                                    {{"rank", ""},
                                     {"rank", "-1"},
                                     {"rank", "256"},
                                     {"rank", "1 "},
                                     {"size", "1"},
                                     {"size", "99999999999"},
                                     {"host", ""},
                                     {"port", "0"},
                                     {"port", "65536"},
                                     {"version", ""}}},
                                   {encode_command(example_task()),
                                    [](const Parameters& p) { return decode_command(p).status(); },
                                    {{"command", ""},
                                     {"command", "stop"},
                                     {"round", "-1"},
                                     {"send to", "x"},
                                     {"host", ""},
                                     {"port", ""},
                                     {"receive from", "999"}}},
                                   {encode_report(example_report()),
                                    [](const Parameters& p) { return decode_report(p).status(); },
                                    {{"receive rate", "nan"},
                                     {"receive rate", "inf"},
                                     {"receive rate", "-1"},
                                     {"receive verified", "2"},
                                     {"send code", std::to_string(static_cast<int>(kLastCode) + 1)},
                                     {"send code", "x"},
                                     {"send error", ""}}}};
  for (const Kind& kind : kinds) {
    EXPECT_TRUE(kind.decode(kind.good).is_ok());
    for (const auto& [field, value] : kind.bad) {
      Parameters bad = kind.good;
      bad.erase(field);
      if (!value.empty()) bad[field] = value;
      const Status status = kind.decode(bad);
      EXPECT_EQ(status.code(), Code::kProtocol) << field << " = " << value;
      EXPECT_EQ(status.detail().find("'" + field + "'"), 0u) << status.detail();
    }
  }
}

TEST(MeshMessage, ForeignTextIsFitForALog) {
  Parameters parameters = encode_description(example_description());
  parameters["host"] = "a\nb\x1b[31m";
  EXPECT_EQ(decode_description(parameters)->host, "a.b.[31m");
}

}  // namespace
}  // namespace tcpx::mesh
