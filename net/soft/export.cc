// The one symbol of libnccl-net-tcpx-soft.so.
#include <atomic>

#include "base/log.h"
#include "net/soft/soft_table.h"
#include "secure/settings.h"

namespace {

using namespace tcpx;

constexpr unsigned long kNcclNetSubsystem = 16;  // NCCL_NET in NVIDIA/nccl: src/include/nccl_common.h
std::atomic<abi::NcclLogger> host_logger{nullptr};

int host_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return abi::kNcclLogTrace;
    case LogLevel::kInfo:
    case LogLevel::kNotice:
    case LogLevel::kOff:
      return abi::kNcclLogInfo;
    case LogLevel::kWarning:
    case LogLevel::kError:
      return abi::kNcclLogWarn;
  }
  return abi::kNcclLogInfo;
}

void to_host(LogLevel level, std::string_view text, void*) {
  host_logger.load()(host_level(level), kNcclNetSubsystem, "tcpx-soft", 0, "%.*s", static_cast<int>(text.size()), text.data());
}

// Loaded as a library, the plugin logs through the logger of its loader.
int init_with_logger(abi::NcclLogger logger) {
  if (logger != nullptr && host_logger.exchange(logger) == nullptr) set_log_sink(&to_host, nullptr);
  // Who loads this file tells handles in clear, and ends with certificates have no other keys than those that handles give.
  const auto security = SecuritySettings::from_environment();
  if (security.is_ok() && security->protection == Protection::kEncrypt && security->credential == Credential::kCertificate) {
    log(LogLevel::kError, "tcpx-soft: UCCL_TCPX_SECURITY=encrypt needs a secret here, not a certificate: set ",
        name_of_variables(Credential::kSecret));
    return abi::kNcclInternalError;
  }
  return soft::net_table().init(logger);
}

abi::NetTable_v7 exported_table() {
  abi::NetTable_v7 table = soft::net_table();
  table.init = init_with_logger;
  return table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tcpx::abi::NetTable_v7 ncclNetPlugin_v7 = exported_table();
