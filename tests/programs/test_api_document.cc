// docs/api.md against the public headers: every call of an endpoint and of the C interface stands in its tables, and what stands
// there is public. Its samples, and those of the tour in docs/cpp.md, are parts of programs that are compiled.
//
// A row names its subject in the first cell, calls in the second: as `declarations` does, but without parameters, which are the
// headers' affair.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/declarations.h"
#include "tests/support/documents.h"

namespace tcpx {
namespace {

using testing::code_spans, testing::declarations, testing::kRoot, testing::prose_lines, testing::read_file;
using Names = std::set<std::string>;
constexpr char kApi[] = "docs/api.md", kTour[] = "docs/cpp.md";
/// Macros with which the headers mark exports; nothing for applications.
const Names kNotForApplications = {"TCPX_API",
                                   "TCPX_CLASS_API",
                                   "TCPX_CLASS_INTERNAL",
                                   "TCPX_ASSIGN_OR_RETURN_OF(result, declaration, ...)",
                                   "TCPX_NAME_OF_LINE(name, line)",
                                   "TCPX_NAME_OF_LINE_2(name, line)"};

Names public_names() {
  Names names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / "include")) {
    if (entry.path().extension() == ".h") names.merge(declarations(read_file(entry.path())));
  }
  for (const std::string& name : kNotForApplications) names.erase(name);
  return names;
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells(1);
  for (size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '|' && row[i - 1] != '\\') {
      cells.emplace_back();
    } else {
      cells.back().push_back(row[i]);
    }
  }
  cells.pop_back();  // behind the last bar
  return cells;
}

struct Entry {
  std::string name;
  std::vector<std::string> cells;  // of its row
};

std::vector<Entry> entries_of(const std::string& text) {
  std::vector<Entry> entries;
  for (const std::string& line : prose_lines(text)) {
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> cells = cells_of(line);
    for (const std::string& name : code_spans(cells.front())) entries.push_back({name, cells});
  }
  return entries;
}

bool is_call(const std::string& name) { return name.find('(') != std::string::npos; }

/// Those of uccl::Endpoint have the name of the call below; values say all in their headers.
bool needs_entry(const std::string& name) { return is_call(name) && (name.starts_with("Endpoint::") || name.starts_with("tcpx_")); }

std::string without_parameters(const std::string& name) { return name.substr(0, name.find('(')); }

/// Everything wrong with the entries of a document about `names`.
std::vector<std::string> entry_faults(const std::vector<Entry>& entries, const Names& names) {
  std::vector<std::string> found;
  Names there, seen, missing;
  for (const std::string& name : names) {
    there.insert(without_parameters(name));
    if (needs_entry(name)) missing.insert(without_parameters(name));
  }
  for (const Entry& entry : entries) {
    missing.erase(entry.name);
    if (!seen.insert(entry.name).second) {
      found.push_back("two entries for " + entry.name);
    } else if (!there.contains(entry.name)) {
      found.push_back("nothing public is called " + entry.name);
    }
    const auto filled = std::count_if(entry.cells.begin(), entry.cells.end(),
                                      [](const std::string& cell) { return cell.find_first_not_of(' ') != std::string::npos; });
    if (filled != 2 || entry.cells.size() != 2)
      found.push_back("the row of " + entry.name + " has " + std::to_string(filled) + " filled cells of " +
                      std::to_string(entry.cells.size()));
  }
  for (const std::string& name : missing) found.push_back("no entry for " + name);
  return found;
}

/// Without the blanks at the beginning of lines.
std::string unindented(const std::string& text) {
  std::string result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const size_t first = line.find_first_not_of(' ');
    result += (first == std::string::npos ? "" : line.substr(first)) + "\n";
  }
  return result;
}

/// Fenced samples in one of `languages`.
std::vector<std::string> samples_of(const std::string& text, const Names& languages) {
  std::vector<std::string> samples;
  bool inside = false, wanted = false;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      wanted = inside && languages.contains(line.substr(3));
      if (wanted) samples.emplace_back();
    } else if (wanted) {
      samples.back() += line + "\n";
    }
  }
  return samples;
}

// The checkers see what they must
// ----------------------------------------------------------------------------------------------------------------

TEST(ApiChecker, DeclarationsOfClasses) {
  EXPECT_EQ(
      declarations(
          "namespace tcpx {\n"
          "class [[nodiscard]] A : public B {\n"
          "  int hidden();\n"
          " public:\n"
          "  A() = default;\n"
          "  explicit A(int x) : x_(x) {}\n"
          "  A(const A&) = delete;\n"
          "  ~A();\n"
          "  static std::tuple<int, X> two(std::optional<int> a = {}, const std::array<char, 4>& b = {}) const { return {}; }\n"
          "  T&& operator*() && { f({}); }\n"
          "  struct Inner { int y = 0, z[3]; };\n"
          "  using Alias = int;\n"
          "  static constexpr int kMost = 1 << 4;\n"
          "  class Later;\n"
          " private:\n"
          "  struct Mine { int q; };\n"
          "  int x_;\n"
          "};\n"
          "}\n"),
      (Names{"A", "A::A()", "A::A(x)", "A::~A()", "A::two(a, b)", "A::operator*()", "A::Inner", "A::Inner::y", "A::Inner::z",
             "A::Alias", "A::kMost"}));
}

TEST(ApiChecker, DeclarationsOfPlainThings) {
  EXPECT_EQ(
      declarations(
          "enum class E : int { kOne = 1, kTwo };\n"
          "enum class Id : long {};\n"
          "struct alignas(8) S { std::array<int, 3> a{}; X b = {}; std::function<void(int)> c; friend bool operator==(S, S); };\n"
          "static_assert(sizeof(S) == 8);\n"
          "template <class T>\nclass R {};\n"
          "inline constexpr int kList[] = {1, 2};\n"
          "API int call(int dev, void** out, char* const text);\n"
          "constexpr int body(int x) {\n  if (x) { return 1; }\n  return x;\n}\n"
          "namespace detail { int inside(); }\n"
          "namespace tcpx::other { int further(); }\n"),
      (Names{"other::further()", "E", "E::kOne", "E::kTwo", "Id", "S", "S::a", "S::b", "S::c", "R", "kList",
             "call(dev, out, text)", "body(x)"}));
}

TEST(ApiChecker, DeclarationsInC) {
  EXPECT_EQ(declarations("#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
                         "#define X_OK 0\n#define X_RUN(a, b) \\\n  do { a(); } while (b)\n"
                         "/* int no(void); */ int count(void);\n"
                         "struct p { size_t size; const char* name; };\n"
                         "#ifdef __cplusplus\n}\n#endif\n"),
            (Names{"X_OK", "X_RUN(a, b)", "count()", "p", "p::size", "p::name"}));
}

TEST(ApiChecker, FaultsOfEntriesAreFound) {
  const Names names = {"tcpx_f(x)", "Endpoint::g()", "uccl::Endpoint::g()", "S", "S::a"};
  const auto faults = [&](const std::string& rows) { return entry_faults(entries_of(rows), names); };
  const std::string calls = "| `tcpx_f`, `Endpoint::g` | does a \\| b |\n";
  EXPECT_TRUE(faults(calls).empty()) << "headers tell of types";
  EXPECT_TRUE(faults(calls + "| `S`, `S::a` | is |\n").empty());
  EXPECT_EQ(faults("| `S` | is |\n"), (std::vector<std::string>{"no entry for Endpoint::g", "no entry for tcpx_f"}));
  EXPECT_EQ(faults(calls + "| `S` | is |\n| `S` | is |\n"), (std::vector<std::string>{"two entries for S"}));
  EXPECT_EQ(faults(calls + "| `h` | is |\n"), (std::vector<std::string>{"nothing public is called h"}));
  EXPECT_EQ(faults("| `tcpx_f`, `Endpoint::g` | |\n").size(), 2u) << "nothing is said of either";
  EXPECT_EQ(faults(calls + "| `S` | is | a |\n").size(), 1u);
}

TEST(ApiChecker, SamplesAreRead) {
  EXPECT_EQ(samples_of("```cpp\na\n  b\n```\nc\n```sh\nd\n```\n", {"cpp"}), (std::vector<std::string>{"a\n  b\n"}));
  EXPECT_EQ(unindented("  a\n\n    b\n"), "a\n\nb\n");
}

// The tree
// ----------------------------------------------------------------------------------------------------------------

TEST(Api, EveryCallHasItsEntry) {
  const Names names = public_names();
  // A reader that sees nothing would find no fault.
  for (const char* known :
       {"Endpoint::wait(id, timeout)", "Status::code()", "Code::kCancelled", "kQueueDepth", "EndpointConfig::port",
        "tcpx_isend(send_comm, data, size, tag, mhandle, request)", "TCPX_E_PEER_GONE"}) {
    EXPECT_TRUE(names.contains(known)) << known;
  }
  EXPECT_FALSE(names.contains("Endpoint::impl()")) << "private";
  for (const std::string& fault : entry_faults(entries_of(read_file(kRoot / kApi)), names))
    ADD_FAILURE() << kApi << ": " << fault;
}

TEST(Api, SamplesArePartsOfProgramsThatAreCompiled) {
  std::string programs;
  for (const char* folder : {"examples", "tests/install/c", "tests/install/cxx"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kRoot / folder)) {
      const auto suffix = entry.path().extension();
      if (suffix == ".cc" || suffix == ".c") programs += unindented(read_file(entry.path()));
    }
  }
  programs += unindented(read_file(kRoot / "tests/c_api_c99.c"));
  for (const char* page : {kApi, kTour}) {
    const std::vector<std::string> samples = samples_of(read_file(kRoot / page), {"c", "cpp"});
    EXPECT_GE(samples.size(), 5u) << page;
    for (const std::string& sample : samples)
      EXPECT_NE(programs.find(unindented(sample)), std::string::npos) << page << ": no program has\n" << sample;
  }
}

}  // namespace
}  // namespace tcpx
