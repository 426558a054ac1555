/* tcpx-p2p, C interface: the calls of a net plugin (NCCL's ncclNetPlugin table), whichever plugin this machine has.
 *
 * Order of calls. Receiving side: tcpx_listen, ship the 128-byte handle to the peer by any means, tcpx_accept_v5 until there is a
 * comm, tcpx_reg_mr, then per message tcpx_irecv, tcpx_test until done, gather the fragments, tcpx_irecv_consumed. Sending side:
 * tcpx_connect_v5 until there is a comm, tcpx_reg_mr, then per message tcpx_isend, tcpx_test until done. Both: tcpx_dereg_mr,
 * close.
 *
 * Return values. 0: done, or "not yet" where documented. Positive: the plugin's own code, unchanged (ncclResult_t: 1 CUDA, 2
 * system error or closed by the peer, 3 internal, refused, unaligned or busy, 4 invalid argument). Negative: ours, TCPX_E_...
 * below. tcpx_last_error() has the text. Outputs are written only when a call returns 0.
 *
 * Rules. The n-th send meets the n-th receive; tags match nothing. At most 16 requests per comm; a receive holds its place until
 * it is consumed. Test only the oldest unfinished request of a comm. Set the GPU current before listen, connect, accept and
 * reg_mr.
 *
 * Pointers. Comms, requests and memory handles are the plugin's own pointers, opaque here; pass only those that a call returned
 * and that are still open. All pointers are host addresses, except `data`, which is of the type of its registration. Unless a
 * call says otherwise a pointer must not be NULL; a NULL is TCPX_E_INVALID_ARGUMENT.
 *
 * Threads. Any thread may call. Calls on one comm and its requests: one thread at a time. Different comms: at the same time.
 * No exception leaves these functions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TCPX_API __attribute__((visibility("default")))
#else
#define TCPX_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TCPX_HANDLE_BYTES 128       /* connection handle made by tcpx_listen */
#define TCPX_DEVICE_HANDLE_BYTES 32 /* ncclNetDeviceHandle_v7_t written by tcpx_accept_v5 */

#define TCPX_PTR_HOST 1 /* memory types of tcpx_reg_mr; bits of ptr_support */
#define TCPX_PTR_CUDA 2
#define TCPX_PTR_DMABUF 4 /* only a bit of ptr_support */

#define TCPX_NET_DEVICE_HOST 0   /* net_device_type: data arrives in the buffer */
#define TCPX_NET_DEVICE_UNPACK 1 /* data arrives in a bounce pool, with a scatter list */
#define TCPX_NET_DEVICE_UNKNOWN (-1)

#define TCPX_OK 0
#define TCPX_E_INVALID_ARGUMENT (-1) /* the caller passed something no call of this kind accepts */
#define TCPX_E_NOT_FOUND (-2)        /* a named file does not exist */
#define TCPX_E_UNSUPPORTED (-3)      /* this machine, build or plugin cannot do it */
#define TCPX_E_BAD_CONFIG (-4)       /* an environment variable is malformed or out of range */
#define TCPX_E_TIMEOUT (-5)          /* a deadline passed */
#define TCPX_E_PEER_GONE (-6)        /* the other end closed, died or cannot be reached */
#define TCPX_E_PROTOCOL (-7)         /* the other end, a kernel record or a plugin structure broke the agreed format */
#define TCPX_E_PLUGIN (-8)           /* the plugin misbehaved without a code of its own */
#define TCPX_E_CUDA (-9)             /* a CUDA call of ours failed */
#define TCPX_E_SYSTEM (-10)          /* a system call of ours failed */
#define TCPX_E_EXHAUSTED (-11)       /* a queue is full, or descriptors, memory or ports are used up */
#define TCPX_E_MISMATCH (-12)        /* bytes differ from what they must be */
#define TCPX_E_INTERNAL (-13)        /* a defect of this library, or no memory */
#define TCPX_E_CANCELLED (-14)       /* given up by the caller, here or at the other end */
#define TCPX_E_CORRUPT (-15)         /* bytes arrived other than they were sent */

/* One network device. Strings stay valid until the process ends. */
struct tcpx_net_properties {
  size_t struct_size;   /* set by the caller: sizeof(struct tcpx_net_properties) */
  const char* name;     /* interface name; "" when the plugin gives none */
  const char* pci_path; /* path below /sys; NULL when the plugin knows none */
  uint64_t guid;
  int ptr_support; /* TCPX_PTR_... */
  int speed;       /* Mbit/s */
  int port;
  float latency; /* us; 0 when unknown */
  int max_comms;
  int max_recvs;          /* receives that one irecv can post; this interface uses 1 */
  int net_device_type;    /* TCPX_NET_DEVICE_... */
  int net_device_version; /* UNPACK: 7 */
};

/* Loads the plugin that all other calls use, for the life of the process; one line on stderr names it.
 * path: a shared library, or "embedded" for the software plugin inside this one. NULL or "": the plugin in use when there is one,
 *   else UCCL_TCPX_PLUGIN_PATH, else where GPUDirect-TCPX is installed, else "embedded".
 * Loading the plugin in use again, by any path of its file, returns 0. Naming another one returns TCPX_E_INVALID_ARGUMENT and
 * runs none of its code: a comm does not tell its plugin. A plugin that is named or installed and cannot be used is an error
 * (TCPX_E_NOT_FOUND: no such file; TCPX_E_UNSUPPORTED: no library, or without a complete table we know; positive: its init
 * failed), and so is a malformed variable of the log (TCPX_E_BAD_CONFIG); there is no silent fall-back. */
TCPX_API int tcpx_load_plugin(const char* path);

/* Number of network devices. Loads the default plugin when none is loaded; the other calls do not, and return
 * TCPX_E_INVALID_ARGUMENT then. */
TCPX_API int tcpx_get_device_count(void);

/* Properties of device `dev`, 0 ... count - 1. `properties->struct_size` must be set. */
TCPX_API int tcpx_get_properties(int dev, struct tcpx_net_properties* properties);

/* Listens on device `dev`. With GPUDirect-TCPX it must be the NIC below the PCIe switch of the GPU that will receive, which must
 * be the current one: payload that comes over another NIC ends the process.
 * handle: 128 bytes, written; the connector needs all of them. Use one pristine copy of it per connection.
 * listen_comm: written; close it with tcpx_close_listen. */
TCPX_API int tcpx_listen(int dev, void* handle, void** listen_comm);

/* Connects device `dev` to a listener. 0 with *send_comm NULL: not yet, call again with the same `handle`.
 * handle: 128 writable bytes, aligned to 8: the plugin may keep its state in them while connecting. Do not reuse them afterwards.
 * send_dev_handle: may be NULL; never written, since a sender has none. */
TCPX_API int tcpx_connect_v5(int dev, void* handle, void** send_comm, void** send_dev_handle);

/* Takes one connection. 0 with *recv_comm NULL: no peer yet, call again.
 * recv_dev_handle: may be NULL, and so may *recv_dev_handle. If not, TCPX_DEVICE_HANDLE_BYTES bytes are written to
 * *recv_dev_handle (any alignment) once there is a comm. */
TCPX_API int tcpx_accept_v5(void* listen_comm, void** recv_comm, void** recv_dev_handle);

/* Registers `size` bytes at `data` with a send or receive comm.
 * type: TCPX_PTR_HOST (host address) or TCPX_PTR_CUDA (device address; the whole pages that the bytes lie in are registered).
 *   GPUDirect-TCPX receives into GPU memory only: a receive into host memory never ends.
 * size: at most INT_MAX with a version 7 plugin, else TCPX_E_INVALID_ARGUMENT.
 * mhandle: written; give it back with tcpx_dereg_mr before closing the comm. `data` must stay until then. */
TCPX_API int tcpx_reg_mr(void* comm, void* data, size_t size, int type, void** mhandle);
TCPX_API int tcpx_dereg_mr(void* comm, void* mhandle);

/* Posts one message. 0 with *request NULL: not now, try again; so does 3 while 16 requests are under way.
 * data: `size` bytes inside the registration `mhandle`, unchanged until the request is done. May be NULL when size is 0. */
TCPX_API int tcpx_isend(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);

/* Posts one receive: n must be 1, and the four arrays have one element each. Else as tcpx_isend.
 * sizes[0]: bytes of room. GPUDirect-TCPX does not check a longer message against it: compare before unpacking. */
TCPX_API int tcpx_irecv(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);

/* Drives the comm of `request` and asks whether the request is done; done is reported once. 2: closed by the peer; for a receive
 * of GPUDirect-TCPX possibly transient, so ask again a few times.
 * done: 1 or 0.
 * size: may be NULL; the size that the plugin reports, -1 when it reports none, which is always so with GPUDirect-TCPX. */
TCPX_API int tcpx_test(void* request, int* done, int* size);

/* Returns the bounce pages of a finished receive. Once per receive, including zero-size ones, in order, and only when nothing
 * reads the fragments any more. n must be 1. */
TCPX_API int tcpx_irecv_consumed(void* recv_comm, int n, void* request);

/* Close only with no request outstanding, and after the peer has confirmed by other means that it has everything. */
TCPX_API int tcpx_close_send(void* send_comm);
TCPX_API int tcpx_close_recv(void* recv_comm);
TCPX_API int tcpx_close_listen(void* listen_comm);

/* Text of this thread's last call that did not return 0 (or a count), "" before the first. Valid until this thread's next
 * failing call. Never NULL. */
TCPX_API const char* tcpx_last_error(void);

#ifdef __cplusplus
}
#endif
