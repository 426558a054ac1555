#include "base/memory_ops.h"
namespace tcpx { std::unique_ptr<MemoryOps> make_machine_memory_ops() { return make_host_memory_ops(); } }
