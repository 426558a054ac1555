// Permitted includes, and a few rules that every file of the tree keeps. The table is the law; the cases below it show that the
// checker sees what it must, then turn it on the tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/code_lines.h"

namespace tcpx {
namespace {

using testing::code_lines;
namespace fs = std::filesystem;

/// Files whose path starts with `files` may include project headers that start with one of `may` and none that starts with one of
/// `never`. The longest matching row counts; a file without a row is an error.
struct Layer {
  std::string_view files;
  std::vector<std::string_view> may;
  std::vector<std::string_view> never;
};

const std::vector<std::string_view> kAnything = {""};

const std::vector<Layer>& layers() {
  static const std::vector<Layer> table = {
      {"include/", {"tcpx/", "tcpx_interface.h"}, {}},
      {"base/", {"tcpx/", "base/"}, {}},
      {"net/", {"tcpx/", "base/", "net/"}, {}},
      {"net/soft/",
       {"tcpx/", "base/", "net/", "secure/proof.h", "secure/record_cipher.h", "secure/record_reader.h", "secure/record_writer.h",
        "secure/settings.h"},
       {}},
      {"net/devmem/", {"tcpx/", "base/", "net/devmem/", "rx/rx_cmsg_parser.h"}, {}},
      {"rx/", {"tcpx/", "base/", "rx/"}, {"base/log.h"}},
      {"device/", {"tcpx/", "base/", "rx/rx_descriptor.h", "rx/unpacker.h", "device/"}, {}},
      {"transfer/", {"tcpx/", "base/", "net/net_plugin.h", "rx/", "secure/settings.h", "secure/tls.h", "wire/", "transfer/"}, {}},
      {"transfer/local_machine.cc", kAnything, {}},  // wires the real parts
      {"secure/", {"tcpx/", "base/", "secure/"}, {}},
      {"wire/", {"tcpx/", "base/", "secure/tls.h", "wire/"}, {}},
      {"lanes/", {"tcpx/", "base/", "wire/", "lanes/"}, {"lanes/net/", "lanes/pull/", "lanes/ring/"}},
      {"lanes/lanes.", {"tcpx/", "base/", "wire/", "lanes/"}, {}},  // has one of each
      {"lanes/net/", {"tcpx/", "base/", "transfer/", "wire/", "lanes/"}, {"lanes/pull/", "lanes/ring/"}},
      {"lanes/pull/", {"tcpx/", "base/", "wire/", "lanes/"}, {"lanes/net/", "lanes/ring/"}},
      {"lanes/ring/", {"tcpx/", "base/", "wire/", "lanes/"}, {"lanes/net/", "lanes/pull/"}},
      {"endpoint/",
       {"tcpx/", "base/", "net/net_plugin.h", "rx/", "secure/settings.h", "secure/tls.h", "transfer/", "wire/", "lanes/",
        "endpoint/"},
       {"lanes/net/", "lanes/pull/", "lanes/ring/"}},
      {"endpoint/default_parts.cc", kAnything, {}},  // wires the real parts
      {"measure/",
       {"tcpx/", "base/", "device/", "net/net_plugin.h", "net/plugin_loader.h", "rx/", "transfer/", "wire/", "lanes/",
        "endpoint/", "measure/"},
       {}},
      {"measure/ends/plugin", {"tcpx/", "base/", "net/", "rx/", "measure/"}, {}},  // drives a plugin's table by itself
      // The loader's header, and the headers that it includes in turn.
      {"tcpx_impl.cc", {"tcpx/", "tcpx_interface.h", "net/plugin_loader.h", "net/net_plugin.h", "base/memory_ops.h"}, {}},
      {"examples/", {"tcpx/"}, {}},  // as an application sees it
      {"integrations/nixl/", {"tcpx/", "base/", "integrations/nixl/"}, {}},
      {"python/", {"tcpx/", "base/", "python/"}, {}},
      // The self-test runs a second process as test_tcpx_perf does.
      {"doctor/",
       {"tcpx/", "base/", "net/", "secure/certificate.h", "secure/secret.h", "secure/settings.h", "transfer/device_placement.h",
        "measure/", "programs/", "doctor/"},
       {}},
      {"programs/", kAnything, {"tests/", "doctor/"}},
      {"tests/", kAnything, {}},
  };
  return table;
}

bool starts_with_one_of(std::string_view text, const std::vector<std::string_view>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) { return text.starts_with(prefix); });
}

const Layer* layer_of(std::string_view path) {
  const Layer* best = nullptr;
  for (const Layer& layer : layers()) {
    if (path.starts_with(layer.files) && (best == nullptr || layer.files.size() > best->files.size())) best = &layer;
  }
  return best;
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// "#  include <x>" -> {"include", "<x>"}; two empty parts for any other line.
std::pair<std::string_view, std::string_view> directive_of(std::string_view line) {
  line = trim(line);
  if (!line.starts_with('#')) return {};
  line = trim(line.substr(1));
  const size_t end = std::min(line.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), line.size());
  return {line.substr(0, end), trim(line.substr(end))};
}

bool in_word(char c) {
  return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// Of its own, where the user's range of ports would not hold.
bool makes_listener(std::string_view line) {
  constexpr std::string_view kCall = "::listen(";
  for (size_t at = line.find(kCall); at != line.npos; at = line.find(kCall, at + 1)) {
    if (at == 0 || !in_word(line[at - 1])) return true;
  }
  return false;
}

bool reads_environment(std::string_view line) {
  for (size_t i = 0; i < line.size();) {
    size_t end = i;
    while (end < line.size() && in_word(line[end])) ++end;
    const std::string_view word = line.substr(i, end - i);
    if (word == "getenv" || word == "secure_getenv") return true;
    i = std::max(end, i + 1);
  }
  return false;
}

bool is_cuda(std::string_view header) {
  return starts_with_one_of(header, {"cuda", "cub/", "thrust/", "nvtx", "nvml", "cooperative_groups", "device_launch_parameters",
                                     "driver_types.h", "vector_types.h"});
}

/// Everything wrong with one file. `path` counts from the root; `project_files` tells project headers in <> from system headers.
std::vector<std::string> violations(const std::string& path, std::string_view text,
                                    const std::set<std::string>& project_files = {}) {
  const Layer* layer = layer_of(path);
  if (layer == nullptr) return {path + ": no row in the layer table"};
  std::vector<std::string> found;
  bool pragma_once = false;
  const std::vector<std::string> lines = code_lines(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto wrong = [&](const std::string& what) { found.push_back(path + ":" + std::to_string(i + 1) + ": " + what); };
    if (path != "base/environment.cc" && reads_environment(lines[i])) wrong("reads the environment");

    if (path != "base/socket_io.cc" && path != "base/unix_socket.cc" && !path.starts_with("tests/") && makes_listener(lines[i])) wrong("listens by itself");

    const auto [name, operand] = directive_of(lines[i]);
    pragma_once = pragma_once || (name == "pragma" && operand == "once");
    if (name != "include" && name != "include_next" && name != "import") continue;
    const bool quoted = operand.starts_with('"');
    if (operand.size() < 3 || !(quoted || operand.starts_with('<')) || operand.back() != (quoted ? '"' : '>')) {
      wrong("an include that cannot be checked");
      continue;
    }
    const std::string header(operand.substr(1, operand.size() - 2));
    const bool ours = quoted || project_files.contains(header) || project_files.contains("include/" + header);
    if (header.find("../") != std::string::npos) wrong("includes by a way up: " + header);
    if ((header.starts_with("spdlog/") || header.starts_with("fmt/")) && path != "base/log.cc")
      wrong("the log library: " + header);
    if (header.starts_with("openssl/") && !path.starts_with("secure/") && !path.starts_with("tests/"))
      wrong("OpenSSL outside secure/: " + header);
    if (is_cuda(header)) {
      // NVTX is headers alone and calls no CUDA.
      const bool traces = path == "base/trace_range.cc" && header == "nvtx3/nvToolsExt.h";
      if (!path.starts_with("device/") && !path.starts_with("programs/unpack/") && !traces)
        wrong("CUDA outside device/ and programs/unpack/: " + header);
    } else if (ours && (!starts_with_one_of(header, layer->may) || starts_with_one_of(header, layer->never))) {
      wrong(std::string(layer->files) + " must not include " + header);
    }
  }
  if ((path.ends_with(".h") || path.ends_with(".cuh")) && !pragma_once) found.push_back(path + ": no #pragma once");
  return found;
}

/// Paths of all sources below `root`, which is the project; hidden folders and build trees are left out.
std::set<std::string> sources(const fs::path& root) {
  static const std::set<std::string> kSuffixes = {".h", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cu"};
  std::set<std::string> paths;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool build_tree = name.starts_with("build") || fs::exists(it->path() / "CMakeCache.txt");
      if (name.starts_with(".") || build_tree) it.disable_recursion_pending();
    } else if (kSuffixes.contains(it->path().extension().string())) {
      paths.insert(it->path().lexically_relative(root).generic_string());
    }
  }
  return paths;
}

// Planted lines
// ------------------------------------------------------------------------------------------------------------------

void expect_clean(const std::string& path, std::string_view text) {
  for (const std::string& line : violations(path, text)) ADD_FAILURE() << line;
}

void expect_found(const std::string& path, std::string_view text, const std::string& what) {
  const std::vector<std::string> found = violations(path, text);
  ASSERT_EQ(found.size(), 1u) << path << " " << text;
  EXPECT_NE(found[0].find(what), std::string::npos) << found[0];
}

TEST(LayerChecker, EveryForbiddenEdgeIsFound) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> forbidden = {
      {"include/tcpx/x.cc", {"base/text.h", "net/net_plugin.h", "x.h"}},
      {"base/x.cc",
       {"net/net_plugin.h", "rx/unpacker.h", "device/x.h", "transfer/x.h", "measure/pattern.h", "tests/support/x.h"}},
      {"net/x.cc", {"rx/rx_descriptor.h", "secure/proof.h", "device/x.h", "transfer/x.h", "measure/pattern.h"}},
      {"net/soft/x.cc", {"rx/rx_descriptor.h", "secure/tls.h", "device/x.h", "transfer/x.h", "measure/pattern.h"}},
      {"net/devmem/x.cc", {"rx/rx_descriptor.h", "secure/proof.h", "device/x.h", "transfer/x.h"}},
      {"rx/x.cc", {"net/net_plugin.h", "device/x.h", "transfer/x.h", "base/log.h"}},
      {"device/x.cu", {"net/net_plugin.h", "transfer/x.h", "rx/rx_cmsg_parser.h", "measure/pattern.h"}},
      {"transfer/x.cc",
       {"net/abi/nccl_net_v7.h", "net/plugin_loader.h", "net/soft/soft_table.h", "device/x.h", "measure/pattern.h"}},
      {"secure/x.cc", {"wire/x.h", "transfer/x.h", "net/net_plugin.h"}},
      {"measure/x.cc", {"net/abi/nccl_net_v7.h", "net/soft/soft_table.h", "programs/x.h", "tests/support/x.h"}},
      {"python/src/x.cc", {"net/net_plugin.h", "endpoint/link.h", "tests/support/x.h"}},
      {"doctor/x.cc", {"endpoint/link.h", "device/x.h", "tests/support/x.h"}},
      {"programs/x.cc", {"doctor/x.h", "tests/support/x.h"}},
      {"examples/x.cc", {"base/text.h", "wire/messages.h", "measure/pattern.h", "tcpx_interface.h"}},
      {"tcpx_impl.cc", {"transfer/x.h", "net/abi/tcpx_request.h", "net/soft/soft_table.h", "base/log.h", "rx/unpacker.h"}},
  };
  for (const auto& [path, headers] : forbidden) {
    for (const std::string& header : headers) expect_found(path, "#include \"" + header + "\"\n", "must not include " + header);
  }
}

TEST(LayerChecker, DisguisedIncludesAreFound) {
  expect_found("rx/x.cc", "  #  include \"net/net_plugin.h\" // why not\n", "x.cc:1: rx/ must not include");
  expect_found("rx/x.cc", "/* a\n b */ #include \"net/net_plugin.h\"\n", "x.cc:2: rx/ must not include");
  expect_found("rx/x.cc", "#include HEADER\n", "cannot be checked");
  expect_found("tests/x.cc", "#include \"tests/../net/net_plugin.h\"\n", "way up");
  expect_found("somewhere/x.cc", "int x;\n", "no row");
  const std::vector<std::string> in_angles = violations("rx/x.cc", "#include <net/net_plugin.h>\n", {"net/net_plugin.h"});
  ASSERT_EQ(in_angles.size(), 1u);
}

TEST(LayerChecker, ForeignLibrariesStayWhereTheyBelong) {
  for (const std::string header :
       {"<cuda.h>", "<cuda_runtime.h>", "\"cuda_runtime_api.h\"", "<cuda/std/atomic>", "<cub/cub.cuh>"}) {
    for (const std::string path : {"net/x.cc", "tests/x.cc", "transfer/local_machine.cc", "base/x.cc"}) {
      expect_found(path, "#include " + header + "\n", "CUDA outside device/");
    }
  }
  expect_clean("base/trace_range.cc", "#include <nvtx3/nvToolsExt.h>\n");
  expect_found("base/trace_range.cc", "#include <cuda.h>\n", "CUDA outside device/");
  expect_found("endpoint/link.cc", "#include <nvtx3/nvToolsExt.h>\n", "CUDA outside device/");
  expect_clean("secure/openssl.h", "#pragma once\n#include <openssl/ssl.h>\n");
  expect_found("wire/x.cc", "#include <openssl/ssl.h>\n", "OpenSSL outside secure/");
  expect_clean("base/log.cc", "#include <spdlog/spdlog.h>\n");
  expect_found("net/x.cc", "#include <spdlog/spdlog.h>\n", "log library");
  expect_found("base/log.h", "#pragma once\n#include <fmt/format.h>\n", "log library");
}

TEST(LayerChecker, EnvironmentReadsAreFoundOutsideOneFile) {
  const std::string reads = "const char* x = std::getenv(\"HOME\");\n";
  expect_clean("base/environment.cc", reads);
  expect_found("base/log.cc", reads, "log.cc:1: reads the environment");
  expect_found("tests/x.cc", "auto x = 1'000; auto y = ::secure_getenv(name);\n", "reads the environment");
  expect_found("net/x.cc", "char c = '\"'; auto read = &getenv;\n", "reads the environment");
  expect_clean("net/x.cc",
               "// getenv is not called\n/* nor\n getenv here */ int x;\nconst char* y = \"getenv(\";\nsetenv(a, b, 1);\n");
}

TEST(LayerChecker, ListenersComeFromOneFile) {
  const std::string listens = "if (::listen(fd, 1) != 0) return;\n";
  expect_clean("base/socket_io.cc", listens);
  expect_clean("base/unix_socket.cc", listens);
  expect_clean("tests/x.cc", listens);
  expect_found("net/soft/x.cc", listens, "x.cc:1: listens by itself");
  expect_clean("measure/ends/plugin.cc", "Result<Handle> PluginEnd::listen() {\nplugin.listen(0, handle);\n// ::listen(\n");
}

TEST(LayerChecker, HeadersNeedPragmaOnce) {
  expect_clean("rx/x.h", "// essay\n#pragma once\n");
  expect_found("rx/x.h", "#ifndef X\n#define X\n#endif\n", "no #pragma once");
  expect_found("device/x.cuh", "// #pragma once\n", "no #pragma once");
  expect_clean("rx/x.cc", "int x;\n");
}

// The tree
// -----------------------------------------------------------------------------------------------------------------------

TEST(Layers, TheTreeKeepsTheTable) {
  const fs::path root = TCPX_SOURCE_DIR;
  const std::set<std::string> paths = sources(root);
  for (const std::string& path : paths) {
    std::ifstream file(root / path, std::ios::binary);
    ASSERT_TRUE(file) << path;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const std::string& line : violations(path, text, paths)) ADD_FAILURE() << line;
  }
  // A wrong root would be clean as well.
  EXPECT_GE(paths.size(), 40u);
  for (const char* known : {"include/tcpx/status.h", "base/environment.cc", "net/net_plugin.h", "rx/rx_descriptor.cc",
                            "measure/pattern.cc", "tests/programs/test_layers.cc"}) {
    EXPECT_TRUE(paths.contains(known)) << known;
  }
}

/// Classes of public names that a header defines, templates and enumerations too.
std::vector<std::string> classes_of(const std::string& header) {
  static const std::regex kDefinition(
      R"(^(?:class|struct|enum class) (?:TCPX_\w+(?:\([^)]*\)+)? |\[\[\w+\]\] |alignas\(\w+\) )*(\w+)(?: final)?(?: : .*)? \{)");
  std::vector<std::string> names;
  for (const std::string& line : code_lines(header)) {
    std::smatch match;
    if (std::regex_search(line, match, kDefinition)) names.push_back(match[1]);
  }
  return names;
}

TEST(Names, ClassesAreSeen) {
  EXPECT_EQ(classes_of("class A {\nstruct B final : C {\nenum class D : int {\nclass E;\nstruct alignas(8) F {\n"
                       "class TCPX_CLASS_API G {\n  struct Inner {\nclass [[nodiscard]] H {\n// class I {\n"
                       "class TCPX_THREAD_ANNOTATION(capability(\"mutex\")) J {\n"),
            (std::vector<std::string>{"A", "B", "D", "F", "G", "H", "J"}));
}

TEST(Names, EachClassIsDefinedOnce) {
  std::map<std::string, std::string> defined_in;
  for (const std::string& path : sources(TCPX_SOURCE_DIR)) {
    if (!path.ends_with(".h") || path.starts_with("tests/") || path == "include/tcpx/uccl.h") continue;  // names of another's
    std::ifstream file(fs::path(TCPX_SOURCE_DIR) / path, std::ios::binary);
    for (const std::string& name : classes_of(std::string{std::istreambuf_iterator<char>(file), {}})) {
      const auto [first, is_new] = defined_in.emplace(name, path);
      EXPECT_TRUE(is_new) << name << " means one thing in " << first->second << " and another in " << path;
    }
  }
  EXPECT_GT(defined_in.size(), 200u) << "is that the tree?";
}

}  // namespace
}  // namespace tcpx
