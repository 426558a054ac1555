// The parts of tcpx_perf, each a main of its own: bench_endpoint, bench_soft_plugin, p2p_fullmesh, test_tcpx_perf.
#pragma once

namespace tcpx {

int endpoint_main(int argc, char** argv);
int soft_plugin_main(int argc, char** argv);
int mesh_main(int argc, char** argv);
int transfers_main(int argc, char** argv);

}  // namespace tcpx
