// The way between two GPUs, as a made-up NVML says.
#include "device/gpu_links.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace tcpx::testing {
namespace {

constexpr const char* kFirst = "0000:01:00.0";
constexpr const char* kJoined = "0000:02:00.0";
constexpr const char* kAlone = "0000:03:00.0";
constexpr const char* kOnTheBus = "0000:04:00.0";

TEST(GpuLinks, AsNvmlSays) {
  void* const library = ::dlopen(TCPX_FAKE_NVML_DIR "/nvml_works.so", RTLD_NOW);  // beside that of GpuLinks, to look into
  ASSERT_NE(library, nullptr);
  const int* const opened = static_cast<int*>(::dlsym(library, "fake_nvml_opened"));
  ASSERT_NE(opened, nullptr);
  {
    GpuLinks links(TCPX_FAKE_NVML_DIR "/nvml_works.so");
    EXPECT_EQ(links.between(kFirst, kFirst), GpuLink::kSame);
    EXPECT_EQ(links.between(kFirst, kJoined), GpuLink::kNvlink);
    EXPECT_EQ(links.between(kJoined, kFirst), GpuLink::kNvlink);
    EXPECT_EQ(links.between(kFirst, kOnTheBus), GpuLink::kPcie);
    EXPECT_EQ(links.between(kFirst, kAlone), GpuLink::kNone);
    EXPECT_EQ(links.between(kFirst, "0000:99:00.0"), GpuLink::kUnknown);
    EXPECT_EQ(*opened, 1);
  }
  EXPECT_EQ(*opened, 0);
  EXPECT_EQ(::dlclose(library), 0);
}

TEST(GpuLinks, OneGpuNeedsNoLibrary) {
  GpuLinks links("no such library");
  EXPECT_EQ(links.between(kFirst, kFirst), GpuLink::kSame);
}

TEST(GpuLinks, NamesThatAreNoneAreNotAskedFor) {
  GpuLinks links(TCPX_FAKE_NVML_DIR "/nvml_works.so");
  for (const char* name : {"", "x", "0000:01:00.0\n", "0000:01:00.0 ", "0000000000000000:01:00.0", "gpu:01:00.0"}) {
    EXPECT_EQ(links.between(kFirst, name), GpuLink::kUnknown) << name;
    EXPECT_EQ(links.between(name, name), GpuLink::kUnknown) << name;
  }
}

TEST(GpuLinks, WithoutALibraryThatAnswers) {
  for (const char* library : {"no such library", TCPX_FAKE_NVML_DIR "/nvml_refuses.so"}) {
    GpuLinks links(library);
    EXPECT_EQ(links.between(kFirst, kJoined), GpuLink::kUnknown);
    EXPECT_EQ(links.between(kFirst, kJoined), GpuLink::kUnknown) << "again";
  }
}

}  // namespace
}  // namespace tcpx::testing
