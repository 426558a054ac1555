#include <cstdint>

#include "net/plugin_adapters.h"
#include "net/table_adapter.h"

namespace tcpx {
namespace {

struct AbiV8 {
  using Table = abi::NetTable_v8;
  using Properties = abi::NetProperties_v8;
  static constexpr int kVersion = 8;
  static constexpr size_t kMaxRegisterBytes = SIZE_MAX;

  static int reg_mr(const Table& table, void* comm, void* data, size_t bytes, int type, void** mhandle) {
    return table.reg_mr(comm, data, bytes, type, mhandle);
  }
  /// `reg_is_global` has no counterpart: we register per comm, which is right for both values.
  static DeviceProperties convert(const Properties& properties) { return convert_common_properties(properties); }
};

}  // namespace

Status check_table(const abi::NetTable_v8& table) {
  return check_table_entries(table, abi::kNetPluginV8Symbol);
}

Result<std::shared_ptr<NetPlugin>> start_plugin(const abi::NetTable_v8& table) {
  return TableAdapter<AbiV8>::start(table);
}

}  // namespace tcpx
