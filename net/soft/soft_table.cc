// The C functions of the version 7 table: check pointers, call, translate the answer into a result code, stop exceptions.
#include "net/soft/soft_table.h"

#include <cstring>
#include <exception>
#include <new>

#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "net/plugin_exit.h"
#include "net/soft/soft_plugin.h"

namespace tcpx::soft {
namespace {

// Result codes as in section "result codes" of GPUDirect-TCPX's behaviour: 2 for a peer or socket that is gone, and for a machine
// that is out of something, 1 for CUDA, 3 for everything else, a full queue included. Errors not logged where they arose are logged
// here, once per call.
int to_result(const Status& status) {
  if (!status.is_ok()) PluginCall::heard(status.to_string());
  switch (status.code()) {
    case Code::kOk:
      return abi::kNcclSuccess;
    case Code::kPeerGone:
    case Code::kTimeout:
    case Code::kSystem:
      return abi::kNcclSystemError;
    case Code::kCuda:
      return abi::kNcclUnhandledCudaError;
    case Code::kExhausted:
      if (is_shortage(status)) return abi::kNcclSystemError;
      log(LogLevel::kDebug, "tcpx-soft: ", status.to_string());
      return abi::kNcclInternalError;
    default:
      log(LogLevel::kWarning, "tcpx-soft: ", status.to_string());
      return abi::kNcclInternalError;
  }
}

// As above for calls whose system errors are not logged yet.
int to_result_logged(const Status& status) {
  const int result = to_result(status);
  if (result == abi::kNcclSystemError || result == abi::kNcclUnhandledCudaError)
    log(LogLevel::kWarning, "tcpx-soft: ", status.to_string());
  return result;
}

template <class Call>
int guarded(const char* operation, Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return abi::kNcclSystemError;  // without memory to tell more
  } catch (const std::exception& error) {
    log(LogLevel::kError, "tcpx-soft: ", Status(Code::kInternal, operation, error.what()).to_string());
  } catch (...) {
    log(LogLevel::kError, "tcpx-soft: ", Status(Code::kInternal, operation, "unknown exception").to_string());
  }
  return abi::kNcclInternalError;
}

template <class... Pointers>
Status not_null(const char* operation, Pointers... pointers) {
  return ((pointers != nullptr) && ...) ? Status::ok() : refused(operation, "NULL argument");
}

// The object behind a void* of ours, nullptr when it is of another kind, closed or NULL.
template <class T>
T* object_cast(void* pointer, ObjectKind kind) {
  auto* object = static_cast<Object*>(pointer);
  return object != nullptr && object->kind == kind ? static_cast<T*>(object) : nullptr;
}

SoftComm* comm_cast(void* pointer) {
  if (auto* send = object_cast<SoftSendComm>(pointer, ObjectKind::kSendComm)) return send;
  return object_cast<SoftRecvComm>(pointer, ObjectKind::kRecvComm);
}

SoftComm* comm_of(const abi::TcpxRequest* request) {
  SoftComm* comm = request != nullptr ? comm_cast(request->comm) : nullptr;
  return comm != nullptr && comm->owns(request) ? comm : nullptr;
}

}  // namespace

bool encrypts() {
  return SoftPlugin::instance().encrypts();
}

bool tell_changes(void* comm, std::function<void()> told) {
  SoftComm* const known = comm_cast(comm);
  if (known != nullptr) known->tell_changes(std::move(told));
  return known != nullptr;
}

std::unique_ptr<IoLoop> borrow_io() {
  return SoftPlugin::instance().borrow_io();
}

Result<void*> register_list(void* comm, std::shared_ptr<const RangeList> list) {
  SoftComm* const known = comm_cast(comm);
  if (known == nullptr) return refused("regMr", "NULL or not a comm");
  return static_cast<void*>(known->register_list(std::move(list)));
}

int reg_mr(void* comm_pointer, void* data, size_t size, int type, void** mhandle) {
  return guarded("regMr", [&] {
    SoftComm* comm = comm_cast(comm_pointer);
    if (comm == nullptr || mhandle == nullptr) return to_result(refused("regMr", "NULL argument or not a comm"));
    if (size > PTRDIFF_MAX) return to_result(refused("regMr", concat("size ", static_cast<ptrdiff_t>(size))));
    if (type != abi::kNcclPtrHost && type != abi::kNcclPtrCuda) {
      return to_result(refused("regMr", concat("memory type ", type, ", known are 1 (host) and 2 (CUDA)")));
    }
    auto region = comm->register_region(data, size, static_cast<MemoryType>(type));
    if (!region.is_ok()) return to_result_logged(region.status());
    *mhandle = *region;
    return static_cast<int>(abi::kNcclSuccess);
  });
}

namespace {

int soft_init(abi::NcclLogger) {
  return guarded("init", [] { return to_result_logged(SoftPlugin::instance().init()); });
}

int soft_devices(int* count) {
  return guarded("devices", [&] {
    if (Status status = not_null("devices", count); !status.is_ok()) return to_result(status);
    auto devices = SoftPlugin::instance().device_count();
    if (!devices.is_ok()) return to_result(devices.status());
    *count = *devices;
    return static_cast<int>(abi::kNcclSuccess);
  });
}

int soft_get_properties(int dev, abi::NetProperties_v7* properties) {
  return guarded("getProperties", [&] {
    if (Status status = not_null("getProperties", properties); !status.is_ok()) return to_result(status);
    auto device = SoftPlugin::instance().device(dev);
    if (!device.is_ok()) return to_result(device.status());
    const InterfaceAddress& interface = **device;
    *properties = {.name = const_cast<char*>(interface.name.c_str()),
                   .pci_path = interface.pci_path.empty() ? nullptr : const_cast<char*>(interface.pci_path.c_str()),
                   .guid = static_cast<uint64_t>(dev),
                   .ptr_support = abi::kNcclPtrHost | abi::kNcclPtrCuda,
                   .speed = interface.speed_mbps,
                   .port = 0,
                   .latency = 0,
                   .max_comms = 65536,
                   .max_recvs = 1,
                   .net_device_type = abi::kNcclNetDeviceUnpack,
                   .net_device_version = abi::kNcclNetDeviceUnpackVersion};
    return static_cast<int>(abi::kNcclSuccess);
  });
}

int soft_listen(int dev, void* handle, void** listen_comm) {
  return guarded("listen", [&] {
    if (Status status = not_null("listen", handle, listen_comm); !status.is_ok()) return to_result(status);
    auto listener = SoftPlugin::instance().listen(dev);
    if (!listener.is_ok()) return to_result_logged(listener.status());
    const Handle made = (*listener)->handle();
    std::memcpy(handle, made.bytes.data(), kHandleBytes);
    *listen_comm = static_cast<Object*>(listener->release());
    return static_cast<int>(abi::kNcclSuccess);
  });
}

// NULL with success: not yet, as with GPUDirect-TCPX, for handles marked by `answer_in_steps`. Without a place for the comm it
// gives up the attempt that the handle identifies, and answers why it has come to nothing; no other plugin supports that.
int soft_connect(int dev, void* handle, void** send_comm, abi::NetDeviceHandle**) {
  return guarded("connect", [&] {
    Handle copy;
    if (handle != nullptr) std::memcpy(copy.bytes.data(), handle, kHandleBytes);
    if (handle != nullptr && send_comm == nullptr) {
      if (const auto why = SoftPlugin::instance().give_up_connect(copy)) return to_result(*why);
    }
    if (Status status = not_null("connect", handle, send_comm); !status.is_ok()) return to_result(status);
    auto comm = SoftPlugin::instance().connect(dev, copy);
    std::memcpy(handle, copy.bytes.data(), kHandleBytes);
    if (!comm.is_ok()) return to_result_logged(comm.status());
    *send_comm = *comm == nullptr ? nullptr : static_cast<Object*>(comm->release());
    return static_cast<int>(abi::kNcclSuccess);
  });
}

int soft_accept(void* listen_comm, void** recv_comm, abi::NetDeviceHandle** recv_dev_comm) {
  return guarded("accept", [&] {
    auto* listener = object_cast<SoftListener>(listen_comm, ObjectKind::kListener);
    if (listener == nullptr || recv_comm == nullptr) return to_result(refused("accept", "NULL argument or not a listener"));
    auto comm = SoftPlugin::instance().accept(*listener);
    if (!comm.is_ok()) return to_result_logged(comm.status());
    if (*comm != nullptr && recv_dev_comm != nullptr && *recv_dev_comm != nullptr) **recv_dev_comm = (*comm)->device_handle();
    *recv_comm = static_cast<Object*>(comm->release());  // NULL: not yet
    return static_cast<int>(abi::kNcclSuccess);
  });
}

// A negative size becomes one beyond all memory.
int soft_reg_mr(void* comm, void* data, int size, int type, void** mhandle) {
  return reg_mr(comm, data, static_cast<size_t>(size), type, mhandle);
}

int soft_dereg_mr(void* comm_pointer, void* mhandle) {
  return guarded("deregMr", [&] {
    if (mhandle == nullptr) return static_cast<int>(abi::kNcclSuccess);
    SoftComm* comm = comm_cast(comm_pointer);
    if (comm == nullptr) return to_result(refused("deregMr", "NULL or not a comm"));
    return to_result(comm->deregister_region(static_cast<SoftRegion*>(mhandle)));
  });
}

int soft_isend(void* send_comm, void* data, int size, int tag, void* mhandle, void** request) {
  return guarded("isend", [&] {
    auto* comm = object_cast<SoftSendComm>(send_comm, ObjectKind::kSendComm);
    if (comm == nullptr || request == nullptr) return to_result(refused("isend", "NULL argument or not a sending comm"));
    auto posted = comm->isend(data, size, tag, static_cast<SoftRegion*>(mhandle));
    if (!posted.is_ok()) return to_result(posted.status());
    *request = *posted;
    return static_cast<int>(abi::kNcclSuccess);
  });
}

int soft_irecv(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
  return guarded("irecv", [&] {
    auto* comm = object_cast<SoftRecvComm>(recv_comm, ObjectKind::kRecvComm);
    if (comm == nullptr || request == nullptr) return to_result(refused("irecv", "NULL argument or not a receiving comm"));
    if (n != 1) return to_result(refused("irecv", concat("n is ", n, ", only 1 is supported")));
    if (data == nullptr || sizes == nullptr || mhandles == nullptr) return to_result(refused("irecv", "NULL array"));
    auto posted = comm->irecv(data[0], sizes[0], tags != nullptr ? tags[0] : 0, static_cast<SoftRegion*>(mhandles[0]));
    if (!posted.is_ok()) return to_result(posted.status());
    *request = *posted;
    return static_cast<int>(abi::kNcclSuccess);
  });
}

// Data is complete when test says so; there is nothing to flush, and callers treat a NULL request as "done".
int soft_iflush(void*, int, void**, int*, void**, void** request) {
  if (request != nullptr) *request = nullptr;
  return abi::kNcclSuccess;
}

int soft_test(void* request_pointer, int* done, int* sizes) {
  return guarded("test", [&] {
    if (done == nullptr) return to_result(refused("test", "NULL argument"));
    *done = 0;
    const auto* request = static_cast<const abi::TcpxRequest*>(request_pointer);
    SoftComm* comm = comm_of(request);
    if (comm == nullptr) return to_result(refused("test", "NULL or not a request of an open comm"));
    auto answer = comm->test(request);
    if (!answer.is_ok()) return to_result(answer.status());
    if (answer->done && sizes != nullptr) sizes[0] = answer->bytes;
    *done = answer->done ? 1 : 0;
    return static_cast<int>(abi::kNcclSuccess);
  });
}

int soft_close(void* comm_pointer) {
  return guarded("close", [&] {
    if (comm_pointer == nullptr) return static_cast<int>(abi::kNcclSuccess);
    if (auto* send = object_cast<SoftSendComm>(comm_pointer, ObjectKind::kSendComm)) {
      delete send;
    } else if (auto* recv = object_cast<SoftRecvComm>(comm_pointer, ObjectKind::kRecvComm)) {
      delete recv;
    } else {
      return to_result(refused("close", "not a comm, or closed already"));
    }
    return static_cast<int>(abi::kNcclSuccess);
  });
}

int soft_close_listen(void* listen_comm) {
  return guarded("closeListen", [&] {
    if (listen_comm == nullptr) return static_cast<int>(abi::kNcclSuccess);
    auto* listener = object_cast<SoftListener>(listen_comm, ObjectKind::kListener);
    if (listener == nullptr) return to_result(refused("closeListen", "not a listener, or closed already"));
    delete listener;
    return static_cast<int>(abi::kNcclSuccess);
  });
}

// Asked with the comm itself in place of a memory handle, it tells the name of the comm's NIC, which lives as long as the comm; no
// other plugin supports that.
int soft_get_device_mr(void* comm_pointer, void* mhandle, void** answer) {
  SoftComm* comm = mhandle != nullptr && mhandle == comm_pointer ? comm_cast(comm_pointer) : nullptr;
  if (comm != nullptr && answer != nullptr) *answer = const_cast<char*>(comm->nic().c_str());
  return abi::kNcclSuccess;
}

int soft_irecv_consumed(void* recv_comm, int n, void* request_pointer) {
  return guarded("irecvConsumed", [&] {
    const auto* request = static_cast<const abi::TcpxRequest*>(request_pointer);
    SoftComm* owner = comm_of(request);
    if (n != 1 || owner == nullptr)
      return to_result(refused("irecvConsumed", "n is not 1, NULL, or not a request of an open comm"));
    if (request->op == abi::kRequestOpSend) {
      log(LogLevel::kWarning, "tcpx-soft: irecvConsumed of a send: ignored");
      return static_cast<int>(abi::kNcclSuccess);
    }
    auto* comm = object_cast<SoftRecvComm>(recv_comm, ObjectKind::kRecvComm);
    if (comm == nullptr || comm != owner) return to_result(refused("irecvConsumed", "the request belongs to another comm"));
    return to_result(comm->consumed(request));
  });
}

}  // namespace

const abi::NetTable_v7& net_table() {
  static const abi::NetTable_v7 table = {
      .name = kPluginName,
      .init = soft_init,
      .devices = soft_devices,
      .get_properties = soft_get_properties,
      .listen = soft_listen,
      .connect = soft_connect,
      .accept = soft_accept,
      .reg_mr = soft_reg_mr,
      .reg_mr_dma_buf = nullptr,
      .dereg_mr = soft_dereg_mr,
      .isend = soft_isend,
      .irecv = soft_irecv,
      .iflush = soft_iflush,
      .test = soft_test,
      .close_send = soft_close,
      .close_recv = soft_close,
      .close_listen = soft_close_listen,
      .get_device_mr = soft_get_device_mr,
      .irecv_consumed = soft_irecv_consumed,
  };
  return table;
}

}  // namespace tcpx::soft
