#include "tests/lanes/file_lane.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/text.h"
#include "base/unique_fd.h"

namespace tcpx::testing {
namespace {

std::atomic<uint64_t> moved = 0;

// The n-th message of the sender says where in its file the n-th job begins, and that all of it is there.
class FileLane final : public Lane {
 public:
  FileLane(const LaneMaking& making, bool receives) : Lane(kFile, receives), parts_(making.parts), stream_(making.stream) {
    if (!receives) file_ = UniqueFd(::memfd_create("file_lane", MFD_CLOEXEC));
  }

  // The words: process and descriptor.
  bool offer(std::span<const HeldRange> ranges, std::vector<std::byte>& words) override {
    const std::array<int32_t, 2> name = {::getpid(), file_.get()};
    words.assign(std::as_bytes(std::span(name)).begin(), std::as_bytes(std::span(name)).end());
    return reaches(ranges);
  }
  Status check(std::span<const std::byte> words, uint64_t /*bytes*/) const override {
    if (words.size() == 2 * sizeof(int32_t)) return Status::ok();
    return Status(Code::kProtocol, "read offer", concat(words.size(), " bytes of a file's name"));
  }
  bool take(std::span<const HeldRange> to, std::span<const std::byte> words) override {
    if (!reaches(to)) return false;
    if (file_) return true;
    std::array<int32_t, 2> name{};
    std::memcpy(name.data(), words.data(), sizeof name);
    file_ = UniqueFd(::open(concat("/proc/", name[0], "/fd/", name[1]).c_str(), O_RDWR | O_CLOEXEC));
    return static_cast<bool>(file_);
  }
  void push(std::unique_ptr<Job>&& job, std::span<const std::byte> /*words*/, const GoFrame& /*go*/) override {
    jobs_.push_back(std::move(job));
    enter(*jobs_.back());
  }
  Status on(const LaneFrame& frame) override {
    if (!receives() || jobs_.size() == begins_.size()) return unexpected(frame.kType, frame.number, "no job waits for it");
    begins_.push_back(frame.number);
    return Status::ok();
  }

  // One piece a turn.
  bool progress(TimePoint /*now*/) override {
    for (; !status_.is_ok() && !jobs_.empty(); jobs_.pop_front()) end_front();
    if (jobs_.empty() || (receives() && begins_.empty())) return false;
    const HeldRange& range = jobs_.front()->ranges[range_];
    const uint64_t at = (receives() ? begins_.front() : begin_) + done_;
    const size_t piece = std::min<uint64_t>(range.bytes - offset_, 1 << 20);
    const ssize_t copied = receives() ? ::pread(file_.get(), range.data + offset_, piece, static_cast<off_t>(at))
                                      : ::pwrite(file_.get(), range.data + offset_, piece, static_cast<off_t>(at));
    if (copied <= 0) {
      fail(Status(Code::kSystem, "copy through a file", concat("after ", done_, " bytes")));
      return true;
    }
    done_ += static_cast<uint64_t>(copied);
    offset_ += static_cast<uint64_t>(copied);
    if (offset_ < range.bytes) return true;
    offset_ = 0;
    if (++range_ == jobs_.front()->ranges.size()) end_job();
    return true;
  }
  void fail(const Status& reason) override {
    if (status_.is_ok()) status_ = reason;
  }
  const Status& status() const override { return status_; }
  bool idle() const override { return jobs_.empty() && ended_.empty(); }
  bool rests(TimePoint /*now*/) const override { return idle() || (receives() && begins_.empty() && !has_ended()); }
  bool serves(MemoryId region) const override {
    return std::any_of(jobs_.begin(), jobs_.end(), [region](const auto& job) { return is_of_peer(*job, region); });
  }
  std::string flight_record() const override { return concat("through a file: ", jobs_.size(), " transfers"); }

 private:
  bool reaches(std::span<const HeldRange> ranges) const {
    return status_.is_ok() && !ranges.empty() && is_of_host(ranges.front().region(), parts_.memory);
  }
  void end_front() {
    jobs_.front()->status = status_;
    ended_.push_back(std::move(jobs_.front()));
  }
  void end_job() {
    if (receives()) {
      (void)::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begins_.front()),
                        static_cast<off_t>(done_));
      begins_.pop_front();
    } else {
      stream_.send(LaneFrame{.way = kFile, .number = begin_});
      begin_ += done_;
    }
    ++moved;
    end_front();
    jobs_.pop_front();
    range_ = done_ = 0;
  }

  const PullParts& parts_;
  ControlStream& stream_;
  UniqueFd file_;
  std::deque<std::unique_ptr<Job>> jobs_;
  std::deque<uint64_t> begins_;     // receiver: of jobs that are whole in the file
  uint64_t begin_ = 0;              // sender: of the front job in the file
  size_t range_ = 0;                // of the front job
  uint64_t offset_ = 0, done_ = 0;  // in that range; in the job
  Status status_;
};

}  // namespace

std::unique_ptr<Lane> make_file_lane(const LaneMaking& making, bool receives) {
  return std::make_unique<FileLane>(making, receives);
}

uint64_t moved_by_file() {
  return moved;
}

}  // namespace tcpx::testing
