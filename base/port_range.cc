#include "base/port_range.h"

#include <charconv>

#include "base/text.h"

namespace tcpx {
namespace {

std::optional<uint16_t> parse_port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

Status bad_wish(std::string why) {
  return Status(Code::kBadConfig, "read environment", std::move(why));
}

}  // namespace

std::optional<PortRange> parse_port_range(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_port(text.substr(0, dash)), last = parse_port(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return PortRange{*first, *last};
}

Result<std::optional<ListeningPorts>> listening_ports(const std::function<std::string(Variable)>& value_of) {
  const VariableInfo& info = environment_info(Variable::kPortRange);
  if (const std::string text = value_of(info.id); !text.empty()) {
    TCPX_RETURN_IF_ERROR(environment_check(info, text));
    return std::optional(ListeningPorts{*parse_port_range(text), concat(info.name, "=", text)});
  }
  const char* const begin_name = environment_info(Variable::kPortBegin).name;
  const char* const end_name = environment_info(Variable::kPortEnd).name;
  const std::string begin = value_of(Variable::kPortBegin), end = value_of(Variable::kPortEnd);
  if (begin.empty() && end.empty()) return std::optional<ListeningPorts>();
  if (begin.empty() || end.empty()) {
    return bad_wish(concat(begin.empty() ? end_name : begin_name, " is set without ", begin.empty() ? begin_name : end_name));
  }
  const std::string wish = concat(begin_name, "=", begin, " ", end_name, "=", end);
  const auto range = parse_port_range(concat(begin, '-', end));
  if (!range) return bad_wish(concat(wish, ": expected ports from 1 to 65535, the first of them not above the last"));
  return std::optional(ListeningPorts{*range, wish});
}

}  // namespace tcpx
