#include "net/vendor_plugin.h"

#include <algorithm>
#include <string>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"

namespace tcpx {

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

int64_t vendor_data_sockets(int64_t each, int64_t threads) {
  return std::clamp<int64_t>(each, 1, kMostVendorSockets / threads) * threads;
}

Result<MessageCut> vendor_message_cut() {
  TCPX_ASSIGN_OR_RETURN(const auto piece, environment_integer(Variable::kDynamicChunkSize));
  TCPX_ASSIGN_OR_RETURN(const auto each, environment_integer(Variable::kNsocksPerThread));
  TCPX_ASSIGN_OR_RETURN(const auto threads, environment_integer(Variable::kSocketNthreads));
  if (threads > kMostVendorSockets) {
    return Status(Code::kBadConfig, "read environment",
                  concat(environment_info(Variable::kSocketNthreads).name, "=", threads, ": GPUDirect-TCPX takes at most ",
                         kMostVendorSockets));
  }
  // The plugin's default is 1; that of the table is the software plugin's.
  return MessageCut{.piece_bytes = static_cast<uint32_t>(piece),
                    .sockets = static_cast<uint32_t>(vendor_data_sockets(each, threads))};
}

}  // namespace tcpx
