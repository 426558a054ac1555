#include "net/vendor_plugin.h"

#include <algorithm>
#include <string>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

// google/nccl-plugin-gpudirecttcpx, 4b8ea7f: src/common.h. Beyond it the plugin keeps the threads and cuts the sockets of each.
constexpr int64_t kMostDataSockets = 8;

}  // namespace

bool is_vendor_plugin(std::string_view name) {
  return name.starts_with("GPUDirectTCPX_");
}

Status preset_vendor_environment() {
  std::string set;
  for (const Variable id : {Variable::kDynamicChunkSize, Variable::kFlowSteeringWaitUs, Variable::kUnixClientPrefix}) {
    const VariableInfo& info = environment_info(id);
    TCPX_RETURN_IF_ERROR(environment_check(info, environment_text(id)));
    const std::string value = info.kind == VariableKind::kInteger ? std::to_string(info.default_integer) : info.default_text;
    if (environment_preset(id, value)) set += concat(set.empty() ? "" : ", ", info.name, "=", value);
  }
  if (!set.empty()) log(LogLevel::kInfo, "set for the net plugin, because nobody did: ", set);
  return Status::ok();
}

Result<MessageCut> vendor_message_cut() {
  const auto piece = environment_integer(Variable::kDynamicChunkSize);
  if (!piece.is_ok()) return piece.status();
  const auto each = environment_integer(Variable::kNsocksPerThread);
  if (!each.is_ok()) return each.status();
  const auto threads = environment_integer(Variable::kSocketNthreads);
  if (!threads.is_ok()) return threads.status();
  if (*threads > kMostDataSockets) {
    return Status(Code::kBadConfig, "read environment",
                  concat(environment_info(Variable::kSocketNthreads).name, "=", *threads, ": GPUDirect-TCPX takes at most ",
                         kMostDataSockets));
  }
  // Unset, the plugin has 1; the table's default is the software plugin's.
  const int64_t sockets_each = std::clamp<int64_t>(*each, 1, kMostDataSockets / *threads);
  return MessageCut{.piece_bytes = static_cast<uint32_t>(*piece), .sockets = static_cast<uint32_t>(sockets_each * *threads)};
}

}  // namespace tcpx
