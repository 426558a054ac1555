// tcpx_perf: everything that measures transfers between processes. The name by which it is started chooses the part, or its first
// word does; without either it measures by size.
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text.h"
#include "measure/end_process.h"
#include "programs/perf/parts.h"

namespace {

struct Part {
  std::string_view name, word;
  int (*main)(int argc, char** argv);
};
constexpr Part kParts[] = {{"p2p_fullmesh", "mesh", tcpx::mesh_main},
                           {"bench_endpoint", "endpoint", tcpx::endpoint_main},
                           {"bench_soft_plugin", "plugin", tcpx::soft_plugin_main}};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == tcpx::kEndArgument) return tcpx::run_end(std::atoi(argv[2]));
  const std::string_view path = argc > 0 ? argv[0] : "", name = path.substr(path.rfind('/') + 1);
  for (const Part& part : kParts) {
    if (name == part.name) return part.main(argc, argv);
    if (argc < 2 || name == "test_tcpx_perf" || argv[1] != part.word) continue;
    std::string both = tcpx::concat("tcpx_perf ", part.word);  // what its help calls it
    argv[1] = both.data();
    return part.main(argc - 1, argv + 1);
  }
  return tcpx::transfers_main(argc, argv);
}
