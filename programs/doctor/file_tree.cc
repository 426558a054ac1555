#include "programs/doctor/file_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace tcpx::doctor {
namespace {

namespace fs = std::filesystem;

}  // namespace

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

}  // namespace tcpx::doctor
