// Documents against the tree: names in those of the root and of docs/ must exist, and generated text must be up to date.
//
// A code span that begins with one of our folders is a path, "Suite.Case" is a test. Paths of other projects carry the name of
// their repository, so they are not taken for ours.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "endpoint/notify_inbox.h"
#include "net/plugin_loader.h"
#include "net/soft/listener.h"
#include "net/soft/wire.h"
#include "secure/tls.h"
#include "tests/support/documents.h"
#include "transfer/bootstrap.h"
#include "wire/credit_windows.h"
#include "wire/frame.h"

namespace tcpx {
namespace {

namespace fs = std::filesystem;
using testing::all_matches, testing::code_spans, testing::documents, testing::kRoot, testing::prose_lines, testing::read_file;

constexpr char kMapping[] = "docs/TCPX_LOGIC_MAPPING.md";
constexpr int kTraps = 39;
/// Mostly tables of figures, so that every line of it counts as one of a table.
constexpr char kEvidence[] = "docs/gpu_evidence.md";
constexpr size_t kWidth = 160;

/// The path a code span names, from the root; "" for anything else. "./run.sh --flag" names run.sh.
std::string our_path(const std::string& span) {
  static const std::regex kPath(
      R"(^(\./)?((?:\.ci|base|cmake|device|docs|endpoint|examples|include|integrations|lanes|measure|net|programs|python|rx|scripts|tests|transfer|wire)/[A-Za-z0-9_./-]+)(?: .*)?$)");
  static const std::regex kRootFile(R"(^\./([A-Za-z0-9_.-]+)(?: .*)?$)");
  std::smatch match;
  if (std::regex_match(span, match, kPath)) return match[2];
  if (std::regex_match(span, match, kRootFile)) return match[1];
  return "";
}

/// A file, a folder, or a program that is built from a file of that name; the sources stand in a folder per layer, or per
/// program.
bool is_in_tree(const std::string& path) {
  if (fs::exists(kRoot / path) || fs::exists(kRoot / (path + ".cc"))) return true;
  const fs::path name = path;
  const std::string source = name.filename().string() + ".cc";
  const auto has_source = [&](const char* folder) {
    const auto entries = fs::directory_iterator(kRoot / folder);
    return std::any_of(begin(entries), end(entries), [&](const fs::directory_entry& entry) {
      return entry.path().filename() == source || fs::exists(entry.path() / source);
    });
  };
  return name.parent_path() == "tests" && (has_source("tests") || has_source("programs"));
}

bool is_test_name(const std::string& span) {
  static const std::regex kName(R"(^[A-Z]\w*\.[A-Z]\w*$)");
  return std::regex_match(span, kName);
}

std::set<std::string> tests_declared_in(const std::string& source) {
  static const std::regex kTest(R"(\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\))");
  std::set<std::string> names;
  for (std::sregex_iterator it(source.begin(), source.end(), kTest), end; it != end; ++it) {
    names.insert((*it)[1].str() + "." + (*it)[2].str());
  }
  return names;
}

std::set<std::string> all_tests() {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests")) {
    if (entry.path().extension() == ".cc") names.merge(tests_declared_in(read_file(entry.path())));
  }
  return names;
}

/// 9 and 10 for "Suite.Trap09_Trap10_Something".
std::set<int> traps_of(const std::string& test) {
  static const std::regex kTrap(R"(Trap(\d+)_)");
  std::set<int> traps;
  for (const std::string& number : all_matches(test, kTrap)) traps.insert(std::stoi(number));
  return traps;
}

/// What the list of traps says of each: is there a reason why no test shows it? An entry begins with " - **Trap 12.**" and gives
/// such a reason behind "*Tests:* none: ".
std::map<int, bool> trap_entries(const std::string& text) {
  static const std::regex kHead(R"(^ - \*\*Trap (\d+)\.\*\* .*$)");
  std::map<int, bool> entries;
  bool* says_why_not = nullptr;
  for (const std::string& line : prose_lines(text)) {
    std::smatch match;
    if (std::regex_match(line, match, kHead)) says_why_not = &entries[std::stoi(match[1])];
    if (line.empty()) says_why_not = nullptr;
    if (says_why_not != nullptr) *says_why_not |= line.find("*Tests:* none: ") != std::string::npos;
  }
  return entries;
}

/// Everything that list and tests say differently. Tests carry the numbers of their traps in their names.
std::vector<std::string> trap_differences(const std::map<int, bool>& entries, const std::set<std::string>& tests) {
  std::vector<std::string> found;
  std::set<int> shown;
  for (const std::string& test : tests) shown.merge(traps_of(test));
  for (int trap = 1; trap <= kTraps; ++trap) {
    const std::string name = "trap " + std::to_string(trap);
    const auto entry = entries.find(trap);
    if (entry == entries.end()) {
      found.push_back(name + " has no entry");
    } else if (shown.contains(trap) == entry->second) {
      found.push_back(name + " needs a test, or \"none: \" and why");
    }
  }
  for (const int trap : shown) {
    if (trap < 1 || trap > kTraps) found.push_back("a test shows trap " + std::to_string(trap) + ", which is none");
  }
  return found;
}

/// The parts that a page in another language has, too: its headings by level, its code in blocks without comments, and where it
/// leads.
struct Outline {
  std::vector<std::string> lines;
  std::multiset<std::string> links;
};

Outline outline_of(const std::string& text) {
  static const std::regex kLink(R"(\]\(([^)]+)\))"), kHeading("^(#+) .*$"), kComment(" +# .*$"), kChinese(R"(\.zh\.md)");
  Outline outline;
  for (const std::string& line : prose_lines(text)) {
    for (const std::string& heading : all_matches(line, kHeading)) outline.lines.push_back(heading);
    for (const std::string& link : all_matches(line, kLink)) outline.links.insert(std::regex_replace(link, kChinese, ".md"));
  }
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("    ")) outline.lines.push_back(std::regex_replace(line, kComment, ""));
  }
  return outline;
}

std::string output_of(const std::string& command) {
  std::string output;
  std::FILE* pipe = ::popen(command.c_str(), "re");
  EXPECT_NE(pipe, nullptr) << command;
  if (pipe == nullptr) return output;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  const int status = ::pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command;
  return output;
}

size_t characters_in(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

/// Lines that begin so, apart from blanks, and have more characters than a screen shows side by side.
std::vector<std::string> lines_too_wide(const std::string& text, const std::string& begin) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    if (line.compare(first, begin.size(), begin) == 0 && characters_in(line) > kWidth) found.push_back(line);
  }
  return found;
}

constexpr char kUpdate[] = "run scripts/update_env_doc.sh";

// The checkers see what they must
// ----------------------------------------------------------------------------------------------------------------

TEST(DocumentChecker, PathsAreToldFromOtherCode) {
  EXPECT_EQ(our_path("net/soft/wire.h"), "net/soft/wire.h");
  EXPECT_EQ(our_path("wire/messages.h"), "wire/messages.h");
  EXPECT_EQ(our_path("lanes/no_such_file.h"), "lanes/no_such_file.h");
  EXPECT_EQ(our_path("./run_tcpx_test.sh transfer"), "run_tcpx_test.sh");
  EXPECT_EQ(our_path("scripts/run_tests.sh --label host"), "scripts/run_tests.sh");
  EXPECT_EQ(our_path("torvalds/linux: net/core/devmem.c"), "");
  EXPECT_EQ(our_path("src/work_queue.h"), "");
  EXPECT_EQ(our_path("a / b"), "");
  EXPECT_TRUE(is_in_tree("tests/programs/test_documents.cc"));
  EXPECT_TRUE(is_in_tree("programs/env_doc")) << "a program";
  EXPECT_TRUE(is_in_tree("tests/test_documents")) << "a name of a test program";
  EXPECT_FALSE(is_in_tree("tests/test_no_such_test"));
  EXPECT_FALSE(is_in_tree("net/soft/no_such_file.h"));
}

TEST(DocumentChecker, CodeBlocksAreNotRead) {
  const std::string text = "a\n    b, a long line\n\n    code\n    code\n\n```\n[x](y)\n```\nc\n";
  EXPECT_EQ(prose_lines(text), (std::vector<std::string>{"a", "    b, a long line", "", "", "c"}));
}

TEST(DocumentChecker, TrapListIsHeldAgainstTheTests) {
  std::string list;
  for (int trap = 1; trap <= kTraps; ++trap)
    list += " - **Trap " + std::to_string(trap) + ".** a. *Ours:*\n   b. *Tests:* none: none needed.\n";
  EXPECT_TRUE(trap_differences(trap_entries(list), {}).empty());
  EXPECT_EQ(trap_differences(trap_entries(list), {"A.Trap02_Trap03_X"}).size(), 2u) << "once per entry";
  EXPECT_EQ(trap_differences(trap_entries(list), {"A.Trap40_X"}).size(), 1u);
  EXPECT_FALSE(trap_entries(" - **Trap 4.** a\n\n*Tests:* none: b\n")[4]) << "a blank line ends an entry";
  EXPECT_EQ(trap_differences({}, {}).size(), static_cast<size_t>(kTraps));
  auto entries = trap_entries(list);
  entries[4] = false;
  EXPECT_EQ(trap_differences(entries, {}).size(), 1u);
  EXPECT_TRUE(trap_differences(entries, {"A.Trap04_X"}).empty());
}

TEST(DocumentChecker, WideLinesAreFound) {
  const std::string cell(kWidth - 4, 'x'), wide = "| " + cell + "x |";
  EXPECT_TRUE(lines_too_wide("| " + cell + " |\n" + cell + cell + "\n", "|").empty());
  EXPECT_EQ(lines_too_wide("a\n" + wide + "\n  " + wide + "\n", "|"), (std::vector<std::string>{wide, "  " + wide}));
  EXPECT_EQ(lines_too_wide(cell + cell + "\n", "").size(), 1u);
  EXPECT_EQ(characters_in("| 表 |"), 5u);
}

TEST(DocumentChecker, TestNamesAreReadFromSources) {
  EXPECT_EQ(tests_declared_in("TEST(A, B) {\nTEST_P(\n    C, D) {\nEXPECT_TRUE(x, y)"), (std::set<std::string>{"A.B", "C.D"}));
  EXPECT_TRUE(is_test_name("SoftFaults.Trap14_X"));
  EXPECT_FALSE(is_test_name("CMakeLists.txt"));
  EXPECT_EQ(traps_of("A.Trap09_Trap10_X"), (std::set<int>{9, 10}));
}

// The tree
// ----------------------------------------------------------------------------------------------------------------

TEST(Documents, EveryPathAndTestNameExists) {
  const std::set<std::string> tests = all_tests();
  size_t paths = 0, named = 0;
  for (const std::string& document : documents()) {
    for (const std::string& line : prose_lines(read_file(kRoot / document))) {
      for (const std::string& span : code_spans(line)) {
        const std::string path = our_path(span);
        if (!path.empty()) {
          ++paths;
          EXPECT_TRUE(is_in_tree(path)) << document << ": " << span;
        } else if (is_test_name(span)) {
          ++named;
          EXPECT_TRUE(tests.contains(span)) << document << ": " << span;
        }
      }
    }
  }
  EXPECT_GT(paths, 0u);
  EXPECT_GT(named, 0u);
}

TEST(Documents, TrapListAndTestsAgree) {
  for (const std::string& difference : trap_differences(trap_entries(read_file(kRoot / kMapping)), all_tests())) {
    ADD_FAILURE() << kMapping << ": " << difference;
  }
}

TEST(Documents, A8_TheWalkThroughNamesThePlacesWhereThePluginIsLookedFor) {
  const std::string page = read_file(kRoot / "docs/deploy_a3.md");
  for (const std::string& path : PluginLoadOptions().installed_paths)
    EXPECT_NE(page.find("`" + path + "`"), std::string::npos) << path;
}

TEST(Documents, A8_SocketsPerCommAreCounted) {
  const std::string entry =
      " - sockets per comm: *TCPX* one control, up to 8 data; *software plugin* one control, up to " +
      std::to_string(soft::kMaxDataSockets) + " data (`kMaxDataSockets` in";
  EXPECT_NE(read_file(kRoot / kMapping).find(entry), std::string::npos) << kMapping << " needs: " << entry;
}

TEST(Documents, SampleOfTheReadmesIsTheOneThatIsCompiled) {
  const std::string source = read_file(kRoot / "examples/first_transfer.cc");
  const std::string from = "// README.md shows from here\n", to = "// to here\n";
  const size_t begin = source.find(from), end = source.find(to);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end);
  const std::string sample = source.substr(begin + from.size(), end - begin - from.size());
  for (const char* page : {"README.md", "README.zh.md"}) {
    EXPECT_NE(read_file(kRoot / page).find("```cpp\n" + sample + "```\n"), std::string::npos)
        << page << " shows another sample than examples/first_transfer.cc has";
  }
}

TEST(Documents, EnvironmentPageIsUpToDate) {
  const std::string expected = output_of(TCPX_ENV_DOC);
  ASSERT_NE(expected, "");
  EXPECT_TRUE(read_file(kRoot / "docs/env.md") == expected) << kUpdate;
}

TEST(Documents, TheChineseReadmeFollowsTheEnglishOne) {
  const Outline english = outline_of(read_file(kRoot / "README.md")), chinese = outline_of(read_file(kRoot / "README.zh.md"));
  EXPECT_EQ(english.lines, chinese.lines);
  EXPECT_EQ(english.links, chinese.links);
}

TEST(Documents, PagesThatAreReadFirstStayShort) {
  const std::map<std::string, long> most = {{"README.md", 130}, {"README.zh.md", 130}, {kEvidence, 150}, {kMapping, 250}};
  for (const auto& [page, lines] : most) {
    const std::string text = read_file(kRoot / page);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), lines) << page;
  }
}

TEST(Documents, TablesAreNotTooWide) {
  for (const std::string& document : documents()) {
    const std::string text = read_file(kRoot / document);
    for (const std::string& line : lines_too_wide(text, document == kEvidence ? "" : "|"))
      ADD_FAILURE() << document << ": " << line;
  }
}

// Bounds that the page on security tells are those of the code.
TEST(Documents, SecurityTellsTheBoundsOfTheCode) {
  const std::string page = read_file(kRoot / "docs/security.md");
  const auto in_units = [](uint64_t bytes, uint64_t unit, const char* name) {
    EXPECT_EQ(bytes % unit, 0u) << bytes << " is no number of " << name;
    return concat(bytes / unit, " ", name);
  };
  const auto kib = [&](uint64_t bytes) { return in_units(bytes, uint64_t{1} << 10, "KiB"); };
  const auto mib = [&](uint64_t bytes) { return in_units(bytes, uint64_t{1} << 20, "MiB"); };
  EXPECT_TRUE(std::has_single_bit(RecordCipher::kRecordsPerKey));
  for (const std::string& bound :
       {concat("by ", 8 * sizeof(SlotId), " random bits"),
        concat("at most 2^", std::countr_zero(RecordCipher::kRecordsPerKey), " records"),
        concat("| ", BootstrapServerOptions{}.max_waiting, " are watched"), concat("dropped after ", soft::kHelloBytes, " bytes"),
        concat("remembers ", soft::ListenerLimits{}.remembered, " connections"),
        concat("at most ", kib(kMaxSetUpPayloadBytes), " of payload while a connection is set up, then ", mib(kMaxPayloadBytes)),
        concat("| ", mib(kMaxHeldBytes), " a connection"),
        concat("at most ", mib(kMaxInboxShareBytes), " of one connection, ", mib(kMaxInboxBytes), " of all")})
    EXPECT_NE(page.find(bound), std::string::npos) << "docs/security.md does not say: " << bound;
}

}  // namespace
}  // namespace tcpx
