/* c_api_c99 [PLUGIN]
 *
 * Plain C99 against libtcpx.so: one message from one buffer to another through PLUGIN (default: embedded), both ends in this
 * process and in host memory. Prints what it does; exit status 0: passed. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tcpx_interface.h"

enum { kBytes = 4096, kDeadlineSeconds = 20 };

static const char kMessage[] = "Hello from TCPX client!";

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int failed(const char* step, int code) {
  printf("FAILED: %s: %d, %s\n", step, code, tcpx_last_error());
  return 1;
}

#define MUST(call)                                   \
  do {                                               \
    const int code = (call);                         \
    if (code != TCPX_OK) return failed(#call, code); \
  } while (0)

struct side {
  void* comm;
  void* mhandle;
  void* request;
  unsigned char data[kBytes];
  int done;
  int size;
};

static int connect_both(void** listen_comm, struct side* sender, struct side* receiver) {
  uint64_t handle[TCPX_HANDLE_BYTES / sizeof(uint64_t)];
  unsigned char device_handle[TCPX_DEVICE_HANDLE_BYTES];
  void* where = device_handle;
  const double end = seconds() + kDeadlineSeconds;
  MUST(tcpx_listen(0, handle, listen_comm));
  while ((sender->comm == NULL || receiver->comm == NULL) && seconds() < end) {
    if (sender->comm == NULL) MUST(tcpx_connect_v5(0, handle, &sender->comm, NULL));
    if (receiver->comm == NULL) MUST(tcpx_accept_v5(*listen_comm, &receiver->comm, &where));
  }
  if (sender->comm == NULL || receiver->comm == NULL) return failed("connect and accept: deadline passed", 0);
  return 0;
}

/* Posts a receive and a send, and tests both until they are done. */
static int move(struct side* sender, int send_bytes, struct side* receiver) {
  const double end = seconds() + kDeadlineSeconds;
  void* data = receiver->data;
  int size = kBytes, tag = 42;
  sender->request = receiver->request = NULL;
  sender->done = receiver->done = 0;
  while ((!sender->done || !receiver->done) && seconds() < end) {
    if (receiver->request == NULL)
      MUST(tcpx_irecv(receiver->comm, 1, &data, &size, &tag, &receiver->mhandle, &receiver->request));
    if (sender->request == NULL) MUST(tcpx_isend(sender->comm, sender->data, send_bytes, tag, sender->mhandle, &sender->request));
    if (sender->request != NULL && !sender->done) MUST(tcpx_test(sender->request, &sender->done, NULL));
    if (receiver->request != NULL && !receiver->done) MUST(tcpx_test(receiver->request, &receiver->done, &receiver->size));
  }
  if (!sender->done || !receiver->done) return failed("isend and irecv: deadline passed", 0);
  if (receiver->size != -1 && receiver->size != send_bytes) return failed("the size reported is another", receiver->size);
  return 0;
}

static int show_devices(void) {
  struct tcpx_net_properties properties;
  const int count = tcpx_get_device_count();
  int dev;
  if (count < 1) return failed("tcpx_get_device_count", count);
  for (dev = 0; dev < count; ++dev) {
    properties.struct_size = sizeof properties;
    MUST(tcpx_get_properties(dev, &properties));
    if (properties.name == NULL || properties.name[0] == '\0') return failed("a device without a name", dev);
    if ((properties.ptr_support & TCPX_PTR_HOST) == 0) return failed("a device without host memory", dev);
    printf("device %d: %s, %d Mbit/s\n", dev, properties.name, properties.speed);
  }
  return 0;
}

int main(int argc, char** argv) {
  static struct side sender, receiver;
  void* listen_comm = NULL;
  int i;

  MUST(tcpx_load_plugin(argc > 1 ? argv[1] : "embedded"));
  if (show_devices() != 0) return 1;
  if (connect_both(&listen_comm, &sender, &receiver) != 0) return 1;
  MUST(tcpx_reg_mr(sender.comm, sender.data, kBytes, TCPX_PTR_HOST, &sender.mhandle));
  MUST(tcpx_reg_mr(receiver.comm, receiver.data, kBytes, TCPX_PTR_HOST, &receiver.mhandle));
  memcpy(sender.data, kMessage, sizeof kMessage);
  memset(receiver.data, 0xee, kBytes);

  if (move(&sender, (int)sizeof kMessage, &receiver) != 0) return 1;
  if (memcmp(receiver.data, kMessage, sizeof kMessage) != 0) return failed("the bytes differ", 0);
  for (i = (int)sizeof kMessage; i < kBytes; ++i) {
    if (receiver.data[i] != 0xee) return failed("a byte beyond the message was written", i);
  }
  MUST(tcpx_irecv_consumed(receiver.comm, 1, receiver.request));
  printf("arrived: %s\n", (const char*)receiver.data);

  /* An empty message is a message, too. */
  if (move(&sender, 0, &receiver) != 0) return 1;
  MUST(tcpx_irecv_consumed(receiver.comm, 1, receiver.request));

  MUST(tcpx_dereg_mr(sender.comm, sender.mhandle));
  MUST(tcpx_dereg_mr(receiver.comm, receiver.mhandle));
  MUST(tcpx_close_send(sender.comm));
  MUST(tcpx_close_recv(receiver.comm));
  MUST(tcpx_close_listen(listen_comm));
  printf("passed\n");
  return 0;
}
