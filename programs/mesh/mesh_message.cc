#include "programs/mesh/mesh_message.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/text.h"

namespace tcpx::mesh {
namespace {

constexpr std::string_view kOptionPrefix = "option ";

Status malformed(const std::string& name, const std::string& what) {
  return {Code::kProtocol, "read mesh message", concat("'", name, "' ", what)};
}

/// The fields of one message; the first that is wrong makes `status()` say so, and all later ones are empty.
class Fields {
 public:
  explicit Fields(const Parameters& parameters) : parameters_(parameters) {}

  bool has(const std::string& name) const { return parameters_.contains(name); }
  std::string text(const std::string& name) {
    const auto found = parameters_.find(name);
    if (found == parameters_.end()) return fail<std::string>(name, "is missing");
    return printable(std::as_bytes(std::span(found->second)), kMaxParameterBytes);
  }
  int integer(const std::string& name, int least, int most) {
    const int value = number<int>(name);
    if (status_.is_ok() && (value < least || value > most)) return fail<int>(name, concat("is ", value));
    return value;
  }
  int rank(const std::string& name) { return integer(name, 0, kMostRanks - 1); }
  uint16_t port(const std::string& name) { return static_cast<uint16_t>(integer(name, 1, 65535)); }
  bool flag(const std::string& name) { return integer(name, 0, 1) == 1; }
  double rate(const std::string& name) {
    const auto value = number<double>(name);
    if (status_.is_ok() && !(value >= 0 && std::isfinite(value))) return fail<double>(name, "is no rate");
    return value;
  }
  const Status& status() const { return status_; }

 private:
  template <class T>
  T fail(const std::string& name, const std::string& what) {
    if (status_.is_ok()) status_ = malformed(name, what);
    return T{};
  }
  template <class T>
  T number(const std::string& name) {
    const std::string digits = text(name);
    if (!status_.is_ok()) return T{};
    T value{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return fail<T>(name, concat("is '", digits, "', no number in range"));
    }
    return value;
  }

  const Parameters& parameters_;
  Status status_;
};

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

std::optional<Result<PairResult>> decode_part(Fields& fields, const std::string& part) {
  if (!fields.has(part + " code")) return std::nullopt;
  const auto code = static_cast<Code>(fields.integer(part + " code", 0, static_cast<int>(kLastCode)));
  if (code == Code::kOk) return PairResult{fields.rate(part + " rate"), fields.flag(part + " verified")};
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
  Fields fields(parameters);
  RankDescription description;
  description.rank = fields.rank("rank");
  description.size = fields.integer("size", 2, kMostRanks);
  description.host = fields.text("host");
  description.memory = fields.text("memory");
  description.version = fields.text("version");
  description.port = fields.port("port");
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
  Fields fields(parameters);
  const std::string kind = fields.text("command");
  Command command;
  if (kind == "task") {
    command.kind = Command::Kind::kTask;
    command.task.round = fields.integer("round", 0, std::numeric_limits<int>::max());
    if (fields.has("send to")) {
      command.task.send_to = Task::Receiver{fields.rank("send to"), fields.text("host"), fields.port("port")};
    }
    if (fields.has("receive from")) command.task.receive_from = fields.rank("receive from");
  } else if (kind == "go") {
    command.kind = Command::Kind::kGo;
  } else if (kind != "end" && fields.status().is_ok()) {
    return malformed("command", concat("is '", kind, "'"));
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
  Fields fields(parameters);
  RoundReport report;
  report.sent = decode_part(fields, "send");
  report.received = decode_part(fields, "receive");
  TCPX_RETURN_IF_ERROR(fields.status());
  return report;
}

}  // namespace tcpx::mesh
