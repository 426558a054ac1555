#include "base/flight_scope.h"

#include <utility>

#include "base/mutex.h"

namespace tcpx {
namespace {

struct Answer {
  Mutex mutex;
  CondVar changed;
  std::string text TCPX_GUARDED_BY(mutex);
};

Answer& the_answer() {
  static Answer& answer = *new Answer;  // never destroyed: it is needed while the process exits
  return answer;
}

}  // namespace

std::string FlightScope::of_another_thread(Deadline deadline) {
  Answer& answer = the_answer();
  MutexLock lock(answer.mutex);
  answer.text.clear();
  asked_.store(true);
  while (answer.text.empty() && answer.changed.wait_until(answer.mutex, deadline.at())) {
  }
  asked_.store(false);
  return std::move(answer.text);
}

void FlightScope::answer() const noexcept {
  try {
    std::string text = call_(teller_);
    if (text.empty()) return;
    Answer& answer = the_answer();
    MutexLock lock(answer.mutex);
    if (answer.text.empty()) answer.text = std::move(text);
    answer.changed.notify_all();
  } catch (...) {  // out of memory: another thread may answer
  }
}

}  // namespace tcpx
