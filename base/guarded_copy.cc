#include "base/guarded_copy.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

#include "base/fork.h"
#include "tcpx/types.h"

namespace tcpx {
namespace {

/// A long copy that a thread is making.
struct GuardedCopy {
  sigjmp_buf given_up;
  CopySegment segment{};  // the segment being copied now

  bool touches(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at - reinterpret_cast<uintptr_t>(segment.to) < segment.bytes ||
           at - reinterpret_cast<uintptr_t>(segment.from) < segment.bytes;
  }
};

/// Tells what a thread is copying. The slots are in a list, because the handler cannot read a thread_local variable: in a library
/// that was loaded after the start of the process, the first access allocates, which a signal handler must not do, and the room
/// for variables that need no allocation is small.
struct ThreadSlot {
  std::atomic<bool> taken{true};
  std::atomic<pthread_t> thread{};
  std::atomic<uint64_t> forks{0};  // value of count_forks() when `thread` was set
  std::atomic<GuardedCopy*> copy{nullptr};
  ThreadSlot* next = nullptr;
};
std::atomic<ThreadSlot*> slots{nullptr};  // never shrinks: as long as the most threads that have had a slot at the same time

/// Takes a free slot, or adds one. @return nullptr: out of memory
ThreadSlot* take_slot() {
  for (ThreadSlot* slot = slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    bool free = false;
    if (slot->taken.compare_exchange_strong(free, true, std::memory_order_acquire)) return slot;
  }
  auto* const slot = new (std::nothrow) ThreadSlot;
  if (slot == nullptr) return nullptr;
  slot->next = slots.load(std::memory_order_relaxed);
  while (!slots.compare_exchange_weak(slot->next, slot, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return slot;
}

class OwnSlot {
 public:
  OwnSlot() = default;
  ~OwnSlot() {
    if (slot_ == nullptr) return;
    slot_->thread.store({}, std::memory_order_relaxed);
    slot_->taken.store(false, std::memory_order_release);
  }
  OwnSlot(const OwnSlot&) = delete;
  OwnSlot& operator=(const OwnSlot&) = delete;
  /// This thread's slot. @return nullptr: out of memory
  ThreadSlot* get() {
    if (slot_ == nullptr) slot_ = take_slot();
    if (slot_ == nullptr) return nullptr;
    // After a fork, `forks` no longer matches: the slots of threads that the child does not have belong to nobody.
    if (const uint64_t now = count_forks(); slot_->thread.load(std::memory_order_relaxed) == 0 || slot_->forks != now) {
      slot_->forks = now;
      slot_->thread.store(::pthread_self(), std::memory_order_relaxed);
    }
    return slot_;
  }

 private:
  ThreadSlot* slot_ = nullptr;
};

/// As OwnSlot::get, of the calling thread, which has one.
ThreadSlot* own_slot() {
  thread_local OwnSlot own;
  return own.get();
}

/// The slot of the calling thread, or nullptr. Async-signal-safe.
ThreadSlot* slot_of_this_thread() {
  for (ThreadSlot* slot = slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    if (::pthread_equal(slot->thread.load(std::memory_order_relaxed), ::pthread_self()) != 0 && slot->forks == count_forks())
      return slot;
  }
  return nullptr;
}

// Short messages are copied between two checks of a socket, where even filling the jump buffer of sigsetjmp costs a tenth of a
// microsecond. A copy by a single instruction whose address the handler knows needs no jump buffer.
#if defined(__x86_64__)
constexpr size_t kShortBytes = 512;
extern "C" size_t tcpx_copy_short(void* to, const void* from, size_t bytes);  // returns the number of bytes not copied
extern "C" const char tcpx_copy_short_at, tcpx_copy_short_end;
asm(R"(
.pushsection .text
.hidden tcpx_copy_short
.hidden tcpx_copy_short_at
.hidden tcpx_copy_short_end
.globl tcpx_copy_short
.globl tcpx_copy_short_at
.globl tcpx_copy_short_end
.type tcpx_copy_short, @function
tcpx_copy_short:
  .cfi_startproc
  mov %rdx, %rcx
tcpx_copy_short_at:
  rep movsb
tcpx_copy_short_end:
  mov %rcx, %rax
  ret
  .cfi_endproc
.size tcpx_copy_short, . - tcpx_copy_short
.popsection
)");

bool end_short_copy(void* context) {
  greg_t& at = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  if (at != reinterpret_cast<greg_t>(&tcpx_copy_short_at)) return false;
  at = reinterpret_cast<greg_t>(&tcpx_copy_short_end);
  return true;
}
#else
constexpr size_t kShortBytes = 0;
size_t tcpx_copy_short(void*, const void*, size_t bytes) {
  return bytes;
}
bool end_short_copy(void*) {
  return false;
}
#endif

// So many bytes memcpy(3) copies with vector instructions on every processor that has them.
constexpr size_t kVectorBytes = 1024;

constexpr std::array<int, 2> kFaults{SIGSEGV, SIGBUS};

/// The earlier handlers of kFaults. Signal handlers belong to the process, so this is one variable for the process; it is written
/// once, before the handler can be called.
std::array<struct sigaction, kFaults.size()> handled_before;

// True when the fault belongs to this copy. A handler that was installed later may have raised the signal again on this thread;
// such a signal has no address, and counts as the copy's.
bool is_of(const GuardedCopy& copy, const siginfo_t& fault) {
  if (fault.si_code > 0) return copy.touches(fault.si_addr);
  return fault.si_code == SI_TKILL && fault.si_pid == ::getpid();
}

void hand_on(int signal, siginfo_t* fault, void* context) {
  const struct sigaction& before = handled_before[signal == kFaults[0] ? 0 : 1];
  if ((before.sa_flags & SA_SIGINFO) == 0 && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
    // A fault cannot be ignored. With the default handler restored, the instruction runs again, and ends the process at the
    // fault.
    struct sigaction end {};
    end.sa_handler = fault->si_code > 0 ? SIG_DFL : before.sa_handler;
    if (end.sa_handler == SIG_IGN) return;
    (void)::sigaction(signal, &end, nullptr);
    if (fault->si_code <= 0) (void)::raise(signal);
    return;
  }
  sigset_t mask;  // the current mask; the kernel restores the interrupted code's mask after this handler
  (void)::pthread_sigmask(SIG_BLOCK, &before.sa_mask, &mask);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, fault, context);
  } else {
    before.sa_handler(signal);
  }
  (void)::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void on_fault(int signal, siginfo_t* fault, void* context) {
  if (fault->si_code > 0 && end_short_copy(context)) return;
  const ThreadSlot* const slot = slot_of_this_thread();
  GuardedCopy* const copy = slot == nullptr ? nullptr : slot->copy.load(std::memory_order_relaxed);
  if (copy != nullptr && is_of(*copy, *fault)) {
    // The jump does not restore the signal mask, and under ThreadSanitizer a handler runs with all signals blocked.
    (void)::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(copy->given_up, 1);
  }
  const int error = errno;
  hand_on(signal, fault, context);
  errno = error;
}

// Keeps this library loaded, because the handler may be called as long as the process lives.
void stay_loaded() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&on_fault), &here) != 0 && here.dli_fname != nullptr)
    (void)::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

bool handle_faults() {
  stay_loaded();
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  // SA_ONSTACK: on the thread's alternate stack, if it has one, as handlers of stack overflows need it. SA_NODEFER: the signal is
  // not blocked in the handler, because a copy that is given up does not return from it.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (size_t i = 0; i < kFaults.size(); ++i) {
    if (::sigaction(kFaults[i], nullptr, &handled_before[i]) != 0) return false;
  }
  for (const int signal : kFaults) {
    if (::sigaction(signal, &action, nullptr) != 0) return false;
  }
  return true;
}

void install_handler() {
  static const bool installed = handle_faults();  // when this fails, a fault ends the process
  (void)installed;
}

// @param access touches the memory of a segment and nothing that may fault besides. What it leaves undone is never done: it must have
// nothing to destroy
int guarded(std::span<const CopySegment> segments, auto access) noexcept {
  install_handler();
  ThreadSlot* const slot = own_slot();
  if (slot == nullptr) return ENOMEM;
  std::atomic<GuardedCopy*>& current = slot->copy;
  GuardedCopy copy;
  if (sigsetjmp(copy.given_up, 0) != 0) {
    current.store(nullptr, std::memory_order_relaxed);
    return EFAULT;
  }
  current.store(&copy, std::memory_order_relaxed);
  for (const CopySegment& segment : segments) {
    if (segment.bytes == 0) continue;
    copy.segment = segment;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the handler may run at any point of the copy
    access(segment);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  current.store(nullptr, std::memory_order_relaxed);
  return 0;
}

bool is_zen_3_or_4() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amdfam19h") != 0;
#else
  return false;
#endif
}

std::atomic<bool>& pages_alias() {
  static std::atomic<bool> they_do{is_zen_3_or_4()};
  return they_do;
}

}  // namespace

bool aliases(const void* to, const void* from) noexcept {
  const uintptr_t behind = reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
  return (behind - 1) % kPageBytes < kAliasBytes && pages_alias().load(std::memory_order_relaxed);
}

void assume_that_pages_alias() {
  pages_alias() = true;
}

int guarded_copy(std::span<const CopySegment> segments) noexcept {
  return guarded(segments, [](const CopySegment& segment) {
    const size_t most = aliases(segment.to, segment.from) ? kVectorBytes : segment.bytes;
    for (size_t at = 0, bytes; at < segment.bytes; at += bytes) {
      bytes = std::min(most, segment.bytes - at);
      std::memcpy(segment.to + at, segment.from + at, bytes);
    }
  });
}

int guarded_read(std::span<const std::byte> memory, ReadMemory read, void* context) noexcept {
  const CopySegment segment{nullptr, memory.data(), memory.size()};
  return guarded(std::span(&segment, 1), [&](const CopySegment&) { read(context, memory); });
}

int guarded_copy(void* to, const void* from, size_t bytes) noexcept {
  if (bytes <= kShortBytes) {
    install_handler();
    return tcpx_copy_short(to, from, bytes) == 0 ? 0 : EFAULT;
  }
  const CopySegment segment{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
  return guarded_copy(std::span(&segment, 1));
}

}  // namespace tcpx
