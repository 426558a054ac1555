#include "transfer/default_endpoint.h"

#include "device/unpacker_factory.h"
#include "net/plugin_loader.h"

namespace tcpx {

Result<DefaultEndpoint> DefaultEndpoint::create(const std::string& plugin_path) {
  PluginLoadOptions options;
  options.path = plugin_path;
  auto loaded = PluginLoader::load(options);
  if (!loaded.is_ok()) return loaded.status();
  return DefaultEndpoint{
      .memory = make_machine_memory_ops(), .plugin = std::move(loaded->plugin), .plugin_path = std::move(loaded->source.path)};
}

Result<std::unique_ptr<Unpacker>> DefaultEndpoint::make_unpacker(UnpackKind kind, int device) {
  return tcpx::make_unpacker(kind, device, *memory);
}

}  // namespace tcpx
