#include "net/plugin_adapters.h"

#include "net/table_adapter.h"

namespace tcpx {

Status check_table(const abi::NetTable_v7& table) {
  return check_table_entries(table, abi::kNetPluginV7Symbol);
}
Status check_table(const abi::NetTable_v8& table) {
  return check_table_entries(table, abi::kNetPluginV8Symbol);
}

Result<std::shared_ptr<NetPlugin>> start_plugin(const abi::NetTable_v7& table) {
  return TableAdapter<abi::NetTable_v7>::start(table);
}
Result<std::shared_ptr<NetPlugin>> start_plugin(const abi::NetTable_v8& table) {
  return TableAdapter<abi::NetTable_v8>::start(table);
}

}  // namespace tcpx
