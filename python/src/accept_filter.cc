#include "python/src/accept_filter.h"

#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

#include "python/src/unlocked.h"

namespace tcpx::python {
namespace {

// As many as there are set-ups at once. A function that does not return keeps its thread, so strangers must not make more of them.
constexpr int kMostUnanswered = 64;
// At the latest then the set-up has been given up.
constexpr std::chrono::seconds kLongest{10};
constexpr std::chrono::milliseconds kSlice{10};

PyObject* text(const std::string& words) {
  return PyUnicode_FromStringAndSize(words.data(), static_cast<Py_ssize_t>(words.size()));
}

}  // namespace

struct AcceptFilter::Question {
  Question(std::shared_ptr<AcceptFilter> whose, const PeerInfo& client) : filter(std::move(whose)), peer(client) {
    ++filter->unanswered_;
  }
  ~Question() { --filter->unanswered_; }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  const std::shared_ptr<AcceptFilter> filter;
  const PeerInfo peer;
  std::promise<bool> answer;
};

bool AcceptFilter::accepts(const PeerInfo& peer) {
  auto question = std::make_shared<Question>(shared_from_this(), peer);
  if (unanswered_ > kMostUnanswered) throw std::runtime_error("it has not answered about 64 other clients");
  auto answer = question->answer.get_future();
  std::thread([question = std::move(question)] {
    bool accepted = false;
    if (!question->filter->stopped_ && Py_IsInitialized() != 0) {
      accepted = outlive_interpreter([&] {
        const PyGILState_STATE lock = PyGILState_Ensure();
        const bool accepts = question->filter->ask(question->peer);
        PyGILState_Release(lock);
        return accepts;
      });
    }
    question->answer.set_value(accepted);
  }).detach();
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (answer.wait_for(kSlice) != std::future_status::ready) {
    if (stopped_ || std::chrono::steady_clock::now() >= end) return false;
  }
  return answer.get();
}

// In plain pointers (see outlive_interpreter).
bool AcceptFilter::ask(const PeerInfo& peer) const {
  if (question_ == nullptr) return false;
  PyObject* const question = question_;
  Py_INCREF(question);
  PyObject* const pair = PyObject_CallFunction(question, "NiN", text(peer.ip), peer.remote_gpu_idx, text(peer.name));
  PyObject *asked = question, *client = nullptr, *answer = nullptr;
  int accepts = pair == nullptr ? -1 : 0;
  if (pair != nullptr && pair != Py_None && PyArg_ParseTuple(pair, "OO", &asked, &client)) {
    answer = PyObject_CallFunctionObjArgs(asked, client, nullptr);
    accepts = answer == nullptr ? -1 : PyObject_IsTrue(answer);
  }
  if (accepts < 0 || PyErr_Occurred() != nullptr) PyErr_WriteUnraisable(asked);
  Py_XDECREF(answer);
  Py_XDECREF(pair);
  Py_DECREF(question);
  return accepts > 0;
}

}  // namespace tcpx::python
