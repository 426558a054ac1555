#include "programs/doctor/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/text.h"
#include "net/plugin_loader.h"
#include "programs/doctor/words.h"

namespace tcpx::doctor {

namespace fs = std::filesystem;

std::string FileTree::at(std::string_view path) const {
  return root_ + std::string(path);
}

bool FileTree::exists(std::string_view path) const {
  std::error_code error;
  return fs::exists(at(path), error);
}

std::optional<std::string> FileTree::read(std::string_view path, size_t most_bytes) const {
  std::error_code error;
  if (!fs::is_regular_file(at(path), error)) return std::nullopt;
  std::ifstream file(at(path), std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(most_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) return std::nullopt;
  text.resize(static_cast<size_t>(file.gcount()));
  text.erase(text.find_last_not_of(" \t\n") + 1);
  return text;
}

std::vector<std::string> FileTree::list(std::string_view path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(at(path), error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> FileTree::resolve(std::string_view path) const {
  std::error_code error;
  const fs::path root = root_.empty() ? fs::path() : fs::canonical(root_, error);
  if (error) return std::nullopt;
  const std::string real = fs::canonical(at(path), error).string();
  if (error || !real.starts_with(root.string())) return std::nullopt;
  return real.substr(root.string().size());
}

std::optional<std::string> Variables::get(std::string_view name) const {
  for (const auto& [known, value] : all) {
    if (known == name && !value.empty()) return value;
  }
  return std::nullopt;
}

const std::vector<std::string>& installed_plugin_paths() {
  static const std::vector<std::string> paths = PluginLoadOptions{}.installed_paths;
  return paths;
}

Expectation expected_path(const Machine& machine) {
  if (const auto named = machine.variables.get(Variable::kPluginPath)) {
    const bool software = *named == kEmbedded || named->ends_with("libnccl-net-tcpx-soft.so");
    return {!software, concat(environment_info(Variable::kPluginPath).name, "=", *named)};
  }
  for (const std::string& path : installed_plugin_paths()) {
    if (machine.files.exists(path)) return {true, concat("a plugin is installed at ", path)};
  }
  if (machine.files.exists(kRxdmDirectory)) return {true, concat("there is ", kRxdmDirectory, ", the directory of RxDM")};
  return {false, "no GPUDirect-TCPX plugin is named or installed"};
}

std::string default_interface(const FileTree& files) {
  for (const std::string& line : split(files.text("/proc/net/route"), "\n")) {
    const std::vector<std::string> fields = split(line, "\t ");
    if (fields.size() > 1 && fields[1] == "00000000") return fields[0];
  }
  return "";
}

std::vector<std::string> data_interfaces(const FileTree& files) {
  const std::string control = default_interface(files);
  std::vector<std::string> names;
  for (const std::string& name : files.list("/sys/class/net")) {
    const auto driver = files.resolve(concat("/sys/class/net/", name, "/device/driver"));
    if (driver && driver->ends_with("/gve") && name != control) names.push_back(name);
  }
  return names;
}

}  // namespace tcpx::doctor
