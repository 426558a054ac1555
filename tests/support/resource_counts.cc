#include "tests/support/resource_counts.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "tests/support/open_counts.h"
#include "tests/support/wait_until.h"

namespace tcpx::soft {
// Weak: only some test programs have the software plugin in them.
[[gnu::weak]] int64_t held_registrations();
}  // namespace tcpx::soft

namespace tcpx::testing {
namespace {

using Held = std::map<std::string, int64_t>;

struct Case {
  ResourceCounts before;
  std::vector<std::string> allowed, always_allowed;
  std::vector<std::pair<std::string, std::function<int64_t()>>> probes;
};
Case& current() {
  static Case& instance = *new Case;
  return instance;
}

// A descriptor or thread may go while the directory is read.
template <class Visit>
void for_each_entry(const char* directory, Visit visit) {
  std::error_code gone;
  for (std::filesystem::directory_iterator entry(directory, gone), end; !gone && entry != end; entry.increment(gone))
    visit(*entry);
}

void add_descriptors(Held& held) {
  for_each_entry("/proc/self/fd", [&](const std::filesystem::directory_entry& entry) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    // Not the directory that is being read.
    if (gone || target.ends_with("/fd")) return;
    held[concat("descriptor ", entry.path().filename().string(), " (", target, ")")] = 1;
  });
}

void add_threads(Held& held) {
  for_each_entry("/proc/self/task", [&](const std::filesystem::directory_entry& entry) {
    std::string name;
    // Without a name: it has ended in this moment.
    if (std::getline(std::ifstream(entry.path() / "comm"), name) && !name.starts_with("cuda"))  // the driver's stay
      held[concat("thread ", entry.path().filename().string(), " (", name, ")")] = 1;
  });
}

// Memory that is shared, or whose file is gone. The driver of a GPU keeps such mappings of its own.
bool is_shared(std::string_view name) {
  if (name.find("nvidia") != name.npos || name.starts_with("/dev/zero")) return false;
  return name.starts_with("/memfd:") || name.starts_with("/dev/shm/") || name.starts_with("/SYSV") ||
         name.ends_with(" (deleted)");
}

// By bytes, because a part of a mapping can stay. Source: proc(5), /proc/pid/maps.
void add_mappings(Held& held) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t name = line.find('/');
    if (name == line.npos || !is_shared(std::string_view(line).substr(name))) continue;
    std::istringstream range(line);
    uint64_t begin = 0, end = 0;
    char dash = 0;
    if (range >> std::hex >> begin >> dash >> end)
      held["mapped bytes of " + line.substr(name)] += static_cast<int64_t>(end - begin);
  }
}

// Other processes make files there at the same time: ours have our number in their names.
void add_shared_files(Held& held) {
  const std::string number = std::to_string(::getpid());
  for_each_entry("/dev/shm", [&](const std::filesystem::directory_entry& entry) {
    if (entry.path().filename().string().find(number) != std::string::npos) held[entry.path().string()] = 1;
  });
}

void add_counted(Held& held) {
  for (const auto& [kind, count] : OpenCounts::instance().all()) held[kind] = count;
  if (soft::held_registrations != nullptr) held["registrations with the software plugin"] = soft::held_registrations();
}

}  // namespace

void allow_left(const std::string& part) {
  current().allowed.push_back(part);
}

bool allow_left_always(const std::string& part) {
  current().always_allowed.push_back(part);
  return true;
}

void count_also(const std::string& name, std::function<int64_t()> count) {
  current().probes.emplace_back(name, [count, before = count()] { return count() - before; });
}

ResourceCounts ResourceCounts::now() {
  ResourceCounts counts;
  add_descriptors(counts.held_);
  add_threads(counts.held_);
  add_mappings(counts.held_);
  add_shared_files(counts.held_);
  add_counted(counts.held_);
  return counts;
}

std::vector<std::string> ResourceCounts::more_than(const ResourceCounts& before) const {
  std::vector<std::string> more;
  for (const auto& [name, count] : held_) {
    const auto found = before.held_.find(name);
    const int64_t had = found == before.held_.end() ? 0 : found->second;
    if (count > had) more.push_back(count == 1 ? name : concat(count - had, " ", name));
  }
  return more;
}

void ResourceCounts::start() {
  current().allowed = current().always_allowed;
  current().before = now();
}

std::vector<std::string> ResourceCounts::stop() {
  Case& test = current();
  std::vector<std::string> left;
  (void)wait_until(
      [&] {
        left = now().more_than(test.before);
        for (const auto& [name, count] : test.probes) {
          if (const int64_t open = count(); open > 0) left.push_back(concat(open, " ", name));
        }
        std::erase_if(left, [&](const std::string& name) {
          return std::any_of(test.allowed.begin(), test.allowed.end(),
                             [&](const std::string& part) { return name.find(part) != std::string::npos; });
        });
        return left.empty();
      },
      kTestDeadline / 4);
  test.probes.clear();
  return left;
}

}  // namespace tcpx::testing
