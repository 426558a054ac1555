#include "programs/mesh/mesh_message.h"

#include <charconv>
#include <string_view>

#include "base/text.h"
#include "measure/parameter_reader.h"

namespace tcpx::mesh {
namespace {

constexpr std::string_view kOptionPrefix = "option ";

constexpr std::string_view kRead = "read mesh message";

int rank_in(ParameterReader& fields, const std::string& name) {
  return fields.number<int>(name, 0, kMostRanks - 1);
}

uint16_t port_in(ParameterReader& fields, const std::string& name) {
  return fields.number<uint16_t>(name, 1);
}

std::string exact_text(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return {digits, end};
}

void encode_part(Parameters& parameters, const std::string& part, const std::optional<Result<PairResult>>& result) {
  if (!result) return;
  const Status& status = result->status();
  parameters[part + " code"] = concat(static_cast<int>(status.code()));
  if (status.is_ok()) {
    parameters[part + " rate"] = exact_text((*result)->gigabytes_per_second);
    parameters[part + " verified"] = concat((*result)->verified ? 1 : 0);
  } else {
    parameters[part + " error"] = concat(status.operation(), ": ", status.detail()).substr(0, kMaxParameterBytes);
  }
}

std::optional<Result<PairResult>> decode_part(ParameterReader& fields, const std::string& part) {
  if (!fields.has(part + " code")) return std::nullopt;
  const auto code = static_cast<Code>(fields.number<int>(part + " code", 0, static_cast<int>(kLastCode)));
  if (code == Code::kOk) return PairResult{fields.number<double>(part + " rate"), fields.flag(part + " verified")};
  return Status(code, "reported", fields.text(part + " error"));
}

}  // namespace

Parameters encode_description(const RankDescription& description) {
  Parameters parameters = {{"rank", concat(description.rank)}, {"size", concat(description.size)},
                           {"host", description.host},         {"memory", description.memory},
                           {"version", description.version},   {"port", concat(description.port)}};
  for (const auto& [name, value] : description.options) parameters[concat(kOptionPrefix, name)] = value;
  return parameters;
}

Result<RankDescription> decode_description(const Parameters& parameters) {
  ParameterReader fields(parameters, kRead);
  RankDescription description;
  description.rank = rank_in(fields, "rank");
  description.size = fields.number<int>("size", 2, kMostRanks);
  description.host = fields.text("host");
  description.memory = fields.text("memory");
  description.version = fields.text("version");
  description.port = port_in(fields, "port");
  for (const auto& [name, value] : parameters) {
    if (name.starts_with(kOptionPrefix)) description.options[name.substr(kOptionPrefix.size())] = fields.text(name);
  }
  TCPX_RETURN_IF_ERROR(fields.status());
  return description;
}

Parameters encode_command(const Command& command) {
  switch (command.kind) {
    case Command::Kind::kGo:
      return {{"command", "go"}};
    case Command::Kind::kEnd:
      return {{"command", "end"}};
    case Command::Kind::kTask:
      break;
  }
  const Task& task = command.task;
  Parameters parameters = {{"command", "task"}, {"round", concat(task.round)}};
  if (task.send_to) {
    parameters["send to"] = concat(task.send_to->rank);
    parameters["host"] = task.send_to->host;
    parameters["port"] = concat(task.send_to->port);
  }
  if (task.receive_from) parameters["receive from"] = concat(*task.receive_from);
  return parameters;
}

Result<Command> decode_command(const Parameters& parameters) {
  ParameterReader fields(parameters, kRead);
  const std::string kind = fields.text("command");
  Command command;
  if (kind == "task") {
    command.kind = Command::Kind::kTask;
    command.task.round = fields.number<int>("round");
    if (fields.has("send to")) {
      command.task.send_to = Task::Receiver{rank_in(fields, "send to"), fields.text("host"), port_in(fields, "port")};
    }
    if (fields.has("receive from")) command.task.receive_from = rank_in(fields, "receive from");
  } else if (kind == "go") {
    command.kind = Command::Kind::kGo;
  } else if (kind != "end") {
    fields.fail<Command>("command", concat("is '", kind, "'"));
  }
  TCPX_RETURN_IF_ERROR(fields.status());
  return command;
}

Parameters encode_report(const RoundReport& report) {
  Parameters parameters;
  encode_part(parameters, "send", report.sent);
  encode_part(parameters, "receive", report.received);
  return parameters;
}

Result<RoundReport> decode_report(const Parameters& parameters) {
  ParameterReader fields(parameters, kRead);
  RoundReport report;
  report.sent = decode_part(fields, "send");
  report.received = decode_part(fields, "receive");
  TCPX_RETURN_IF_ERROR(fields.status());
  return report;
}

}  // namespace tcpx::mesh
