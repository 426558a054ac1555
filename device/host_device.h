// Marks functions that both the host and kernels call.
#pragma once

#if defined(__CUDACC__)
#define TCPX_HOST_DEVICE __host__ __device__
#else
#define TCPX_HOST_DEVICE
#endif
