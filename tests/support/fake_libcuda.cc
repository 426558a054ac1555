// A CUDA driver library with two GPUs, of which one can export its memory. FAKE_ANSWER is the result of cuInit; -1: it never
// returns, -2: it crashes.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT int cuInit(unsigned flags);
FAKE_EXPORT int cuDriverGetVersion(int* version);
FAKE_EXPORT int cuDeviceGetCount(int* count);
FAKE_EXPORT int cuDeviceGet(int* device, int ordinal);
FAKE_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device);
FAKE_EXPORT int cuDeviceGetPCIBusId(char* text, int bytes, int device);
FAKE_EXPORT int cuGetErrorName(int error, const char** name);

int cuInit(unsigned flags) {
  if (FAKE_ANSWER == -2) std::abort();
  while (FAKE_ANSWER == -1) ::pause();
  return flags == 0 ? FAKE_ANSWER : 1;
}

int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = 70 + ordinal;  // not the ordinal
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 75:
      *value = 9;
      return 0;
    case 76:
      *value = 0;
      return 0;
    case 124:
      *value = device == 70;
      return 0;
    default:
      return 1;
  }
}

int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%s:00.0", device == 70 ? "0A" : "84");
  return 0;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : nullptr;
  return *name != nullptr ? 0 : 1;
}
