#include "net/plugin_adapters.h"
#include "net/table_adapter.h"

namespace tcpx {
namespace {

struct AbiV7 {
  using Table = abi::NetTable_v7;
  using Properties = abi::NetProperties_v7;
  static constexpr int kVersion = 7;
  static constexpr size_t kMaxRegisterBytes = INT_MAX;

  /// @param bytes at most kMaxRegisterBytes
  static int reg_mr(const Table& table, void* comm, void* data, size_t bytes, int type, void** mhandle) {
    return table.reg_mr(comm, data, static_cast<int>(bytes), type, mhandle);
  }
  static DeviceProperties convert(const Properties& properties) { return convert_common_properties(properties); }
};

}  // namespace

Status check_table(const abi::NetTable_v7& table) {
  return check_table_entries(table, abi::kNetPluginV7Symbol);
}

Result<std::shared_ptr<NetPlugin>> start_plugin(const abi::NetTable_v7& table) {
  return TableAdapter<AbiV7>::start(table);
}

}  // namespace tcpx
