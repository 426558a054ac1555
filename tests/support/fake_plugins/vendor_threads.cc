// A net plugin that connects as GPUDirect-TCPX does (google/nccl-plugin-gpudirecttcpx, 4b8ea7f: src/connect.cc), over loopback
// and with one data socket: detached threads that cannot be stopped and wait without a deadline, one accept per listener,
// state behind byte 80 of the connecting handle. It frees nothing, so that misuse that would crash the original can be counted.
#include "tests/support/fake_plugins/vendor_threads.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "net/abi/nccl_net_v7.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT tcpx::testing::FakeThreads fake_threads;
tcpx::testing::FakeThreads fake_threads;

namespace {

using tcpx::abi::NetDeviceHandle;

constexpr int kInProgress = 7, kSystemError = 2, kInternalError = 3;
constexpr size_t kControlAddressOff = 48, kConnectStateOff = 80;
constexpr int32_t kControlIndex = 1, kDataIndex = 0;

tcpx::abi::NcclLogger logger;

struct Comm {
  int control_fd;
  int data_fd;
  std::atomic<bool> closing;
};

struct Registration {
  Comm* comm;  // may be closed already: the original's deregMr does not look at it
  int fd;
};

/// A listener's accept, or a connect.
struct SetUp {
  std::atomic<int> result;
  bool told;  // its end has been reported
  Comm* comm;
  unsigned char handle[128];  // of a connect: a copy
};

struct Listener {
  int control_fd;
  int data_fd;
  bool closed;
  SetUp* accepting;
};

template <class T>
T* make() {
  return static_cast<T*>(std::calloc(1, sizeof(T)));
}

bool send_int(int fd, int32_t value) {
  return ::send(fd, &value, sizeof value, 0) == sizeof value;
}

bool recv_int(int fd, int32_t* value) {
  return ::recv(fd, value, sizeof *value, MSG_WAITALL) == sizeof *value;
}

/// @return true when both ends have sent 0
bool exchange(int fd, bool first) {
  int32_t theirs = 1;
  if (first) return send_int(fd, 0) && recv_int(fd, &theirs) && theirs == 0;
  return recv_int(fd, &theirs) && send_int(fd, 0) && theirs == 0;
}

int accept_all(Listener* listener, Comm* comm) {
  int32_t index = -1;
  ::usleep(static_cast<useconds_t>(fake_threads.step_us));
  comm->control_fd = ::accept(listener->control_fd, nullptr, nullptr);
  if (comm->control_fd < 0 || !exchange(comm->control_fd, true)) return kSystemError;
  if (!recv_int(comm->control_fd, &index) || index != kControlIndex) return kSystemError;
  ::usleep(static_cast<useconds_t>(fake_threads.step_us));
  if (fake_threads.has_no_rxdm) {
    logger(tcpx::abi::kNcclLogWarn, 0, __func__, __LINE__, "update flow steering rule failed: %s", "no receive-datapath-manager");
    logger(tcpx::abi::kNcclLogWarn, 0, __func__, __LINE__, "failed accept socket");
    return kInternalError;
  }
  comm->data_fd = ::accept(listener->data_fd, nullptr, nullptr);
  if (comm->data_fd < 0 || !exchange(comm->control_fd, true)) return kSystemError;
  return recv_int(comm->control_fd, &index) && index == kDataIndex ? 0 : kSystemError;
}

int connect_one(const unsigned char* address) {
  for (int i = 0; i <= fake_threads.refused_retries; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(address), sizeof(sockaddr_in)) == 0) return fd;
    const int error = errno;
    ::close(fd);
    if (error != ECONNREFUSED) return -1;
    ::usleep(1000);
  }
  return -1;
}

int connect_all(SetUp* set_up) {
  Comm* comm = set_up->comm;
  ::usleep(static_cast<useconds_t>(fake_threads.step_us));
  comm->control_fd = connect_one(set_up->handle + kControlAddressOff);
  if (comm->control_fd < 0 || !exchange(comm->control_fd, false)) return kSystemError;
  if (!send_int(comm->control_fd, kControlIndex)) return kSystemError;
  ::usleep(static_cast<useconds_t>(fake_threads.step_us));
  comm->data_fd = connect_one(set_up->handle);
  if (comm->data_fd < 0 || !exchange(comm->control_fd, false)) return kSystemError;
  return send_int(comm->control_fd, kDataIndex) ? 0 : kSystemError;
}

void* accept_thread(void* argument) {
  auto* listener = static_cast<Listener*>(argument);
  SetUp* set_up = listener->accepting;
  const int result = accept_all(listener, set_up->comm);
  if (listener->closed) ++fake_threads.closed_while_accepting;
  --fake_threads.accept_threads;
  set_up->result = result;
  return nullptr;
}

void* connect_thread(void* argument) {
  auto* set_up = static_cast<SetUp*>(argument);
  const int result = connect_all(set_up);
  if (result != 0 && fake_threads.failed_connects_close) {
    for (const int fd : {set_up->comm->control_fd, set_up->comm->data_fd}) {
      if (fd > 0) ::close(fd);
    }
  }
  --fake_threads.connect_threads;
  set_up->result = result;
  return nullptr;
}

void start(std::atomic<int>& count, void* (*body)(void*), void* argument) {
  ++count;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, body, argument) != 0) std::abort();
  pthread_detach(thread);
}

int tell(SetUp* set_up, std::atomic<int>& after_end, void** comm) {
  *comm = nullptr;
  if (set_up->told) {
    ++after_end;
    return 12334;
  }
  const int result = set_up->result;
  if (result == kInProgress) return 0;
  set_up->told = true;
  if (result == 0) {
    ++fake_threads.open_comms;
    *comm = set_up->comm;
  }
  return result;
}

int init(tcpx::abi::NcclLogger given) {
  logger = given;
  return 0;
}

int devices(int* count) {
  *count = 1;
  return 0;
}

int get_properties(int, tcpx::abi::NetProperties_v7* properties) {
  static char name[] = "fake0", pci_path[] = "/sys/devices/pci0000:00/0000:06:00.0";
  *properties = tcpx::abi::NetProperties_v7{};
  properties->name = name;
  properties->pci_path = pci_path;
  properties->ptr_support = 3;
  properties->speed = 200000;
  properties->max_comms = 65536;
  properties->max_recvs = 1;
  properties->net_device_type = 1;
  properties->net_device_version = 7;
  return 0;
}

int listen_on_loopback(unsigned char* address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&own), length) != 0 || ::listen(fd, 128) != 0) std::abort();
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length);
  std::memcpy(address, &own, sizeof own);
  return fd;
}

int listen(int, void* handle, void** comm) {
  auto* bytes = static_cast<unsigned char*>(handle);
  std::memset(bytes, 0, 128);
  auto* listener = make<Listener>();
  listener->data_fd = listen_on_loopback(bytes);
  listener->control_fd = listen_on_loopback(bytes + kControlAddressOff);
  ++fake_threads.open_listeners;
  *comm = listener;
  return 0;
}

int connect(int, void* handle, void** comm, NetDeviceHandle**) {
  auto* bytes = static_cast<unsigned char*>(handle);
  SetUp* set_up = nullptr;
  std::memcpy(&set_up, bytes + kConnectStateOff, sizeof set_up);
  if (set_up != nullptr) return tell(set_up, fake_threads.connects_after_end, comm);
  set_up = make<SetUp>();
  set_up->result = kInProgress;
  set_up->comm = make<Comm>();
  std::memcpy(set_up->handle, bytes, sizeof set_up->handle);
  std::memcpy(bytes + kConnectStateOff, &set_up, sizeof set_up);
  start(fake_threads.connect_threads, connect_thread, set_up);
  *comm = nullptr;
  return 0;
}

int accept(void* listen_comm, void** comm, NetDeviceHandle** device_handle) {
  auto* listener = static_cast<Listener*>(listen_comm);
  if (listener->accepting == nullptr) {
    listener->accepting = make<SetUp>();
    listener->accepting->result = kInProgress;
    listener->accepting->comm = make<Comm>();
    start(fake_threads.accept_threads, accept_thread, listener);
    *comm = nullptr;
    return 0;
  }
  const int result = tell(listener->accepting, fake_threads.accepts_after_end, comm);
  if (*comm != nullptr && device_handle != nullptr) **device_handle = NetDeviceHandle{1, 7, nullptr, 24, 1};
  return result;
}

int reg_mr(void* comm, void*, int, int, void** mhandle) {
  auto* made = make<Registration>();
  *made = {static_cast<Comm*>(comm), ::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  if (made->fd < 0) return kInternalError;
  ++fake_threads.open_registrations;
  *mhandle = made;
  return 0;
}

int dereg_mr(void*, void* mhandle) {
  auto* registration = static_cast<Registration*>(mhandle);
  if (registration->comm->closing) ++fake_threads.deregistered_while_closing;
  ::close(registration->fd);
  --fake_threads.open_registrations;
  return 0;
}

int close_comm(void* comm) {
  auto* closed = static_cast<Comm*>(comm);
  ::close(closed->control_fd);
  ::close(closed->data_fd);
  closed->closing = false;
  --fake_threads.open_comms;
  return 0;
}

int close_send(void* comm) {
  static_cast<Comm*>(comm)->closing = true;
  while (fake_threads.close_send_hangs) ::usleep(1000);
  return close_comm(comm);
}

// The original has RxDM remove a steering rule, and names it by the two ends of the data socket.
int close_recv(void* comm) {
  while (fake_threads.close_recv_hangs) ::usleep(1000);
  sockaddr_in peer;
  socklen_t length = sizeof peer;
  if (::getpeername(static_cast<Comm*>(comm)->data_fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) {
    ++fake_threads.closed_without_peer;
  }
  return close_comm(comm);
}

int close_listen(void* comm) {
  auto* listener = static_cast<Listener*>(comm);
  listener->closed = true;
  ::close(listener->control_fd);
  ::close(listener->data_fd);
  --fake_threads.open_listeners;
  return 0;
}

template <class... Arguments>
int refuse(Arguments...) {
  return kInternalError;
}

tcpx::abi::NetTable_v7 make_table() {
  tcpx::abi::NetTable_v7 table{};
  table.name = "GPUDirectTCPX_v7";
  table.init = init;
  table.devices = devices;
  table.get_properties = get_properties;
  table.listen = listen;
  table.connect = connect;
  table.accept = accept;
  table.reg_mr = reg_mr;
  table.dereg_mr = dereg_mr;
  table.isend = refuse<void*, void*, int, int, void*, void**>;
  table.irecv = refuse<void*, int, void**, int*, int*, void**, void**>;
  table.test = refuse<void*, int*, int*>;
  table.close_send = close_send;
  table.close_recv = close_recv;
  table.close_listen = close_listen;
  table.irecv_consumed = refuse<void*, int, void*>;
  return table;
}

}  // namespace

FAKE_EXPORT tcpx::abi::NetTable_v7 ncclNetPlugin_v7;
tcpx::abi::NetTable_v7 ncclNetPlugin_v7 = make_table();
