// Strict reader of Prometheus' text exposition format 0.0.4, for tests of a text that servers shall read: stricter than these, it
// wants HELP, TYPE and the samples of a metric in this order, in one piece, and whole histograms.
#pragma once

#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tcpx::testing {

using Labels = std::map<std::string, std::string>;

struct Metric {
  std::string type, help;
  std::map<std::pair<std::string, Labels>, double> samples;  ///< by name, which may have a suffix, and labels
};

class Exposition {
 public:
  explicit Exposition(const std::string& text) {
    if (!text.empty() && text.back() != '\n') fault("the last line has no end");
    std::istringstream stream(text);
    while (std::getline(stream, line_)) {
      const size_t before = faults_.size();
      if (!(line_.starts_with("# HELP ")   ? read_help()
            : line_.starts_with("# TYPE ") ? read_type()
                                           : read_sample()) &&
          faults_.size() == before)
        fault("cannot be read");
    }
    line_.clear();
    for (const auto& [name, metric] : metrics_) {
      if (metric.type.empty()) fault(name + " has no type");
      if (metric.type == "histogram") check_histogram(name, metric);
    }
  }

  /// Everything that is wrong with the text.
  const std::vector<std::string>& faults() const { return faults_; }
  const std::map<std::string, Metric>& metrics() const { return metrics_; }
  /// Label sets of a metric's samples, in no order.
  std::vector<Labels> labels_of(const std::string& metric) const {
    std::vector<Labels> all;
    const auto found = metrics_.find(metric);
    if (found == metrics_.end()) return all;
    for (const auto& [key, value] : found->second.samples) all.push_back(key.second);
    return all;
  }
  /// Nothing when there is no such sample. @param suffix "_bucket", "_sum" or "_count" of a histogram
  std::optional<double> value(const std::string& metric, const Labels& labels, const std::string& suffix = "") const {
    const auto found = metrics_.find(metric);
    if (found == metrics_.end()) return std::nullopt;
    const auto sample = found->second.samples.find({metric + suffix, labels});
    return sample == found->second.samples.end() ? std::nullopt : std::optional(sample->second);
  }

 private:
  bool fault(const std::string& what) {
    faults_.push_back(what + (line_.empty() ? "" : ": " + line_));
    return false;
  }
  /// A name at the beginning of `rest`, which loses it.
  static std::string take_name(std::string_view& rest, bool colon) {
    const auto letter = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colon && c == ':');
    };
    size_t n = 0;
    while (n < rest.size() && (letter(rest[n]) || (n > 0 && rest[n] >= '0' && rest[n] <= '9'))) ++n;
    const std::string name(rest.substr(0, n));
    rest.remove_prefix(n);
    return name;
  }
  static bool take(std::string_view& rest, std::string_view wanted) {
    if (!rest.starts_with(wanted)) return false;
    rest.remove_prefix(wanted.size());
    return true;
  }

  bool read_help() {
    std::string_view rest = std::string_view(line_).substr(7);
    const std::string name = take_name(rest, true);
    if (name.empty() || !take(rest, " ") || rest.empty()) return false;
    if (metrics_.contains(name)) return fault("a second time");
    for (size_t i = 0; i < rest.size(); ++i) {
      if (rest[i] == '\\' && (++i == rest.size() || (rest[i] != '\\' && rest[i] != 'n'))) return fault("no such escape");
    }
    open_ = name;
    metrics_[name].help = rest;
    return true;
  }

  bool read_type() {
    std::string_view rest = std::string_view(line_).substr(7);
    const std::string name = take_name(rest, true);
    if (!take(rest, " ") || (rest != "counter" && rest != "gauge" && rest != "histogram")) return false;
    if (name != open_ || !metrics_[name].type.empty()) return fault("not behind its HELP");
    if (name.ends_with("_total") != (rest == "counter")) fault("counters, and only these, end in _total");
    metrics_[name].type = rest;
    return true;
  }

  bool read_sample() {
    std::string_view rest = line_;
    const std::string name = take_name(rest, true);
    if (open_.empty() || !name.starts_with(open_)) return fault("not behind its TYPE");
    Metric& metric = metrics_[open_];
    const std::string suffix = name.substr(open_.size());
    if (metric.type.empty()) return fault("before its TYPE");
    if (metric.type == "histogram" ? suffix != "_bucket" && suffix != "_sum" && suffix != "_count" : !suffix.empty())
      return fault("not behind its TYPE");
    Labels labels;
    if (take(rest, "{") && !read_labels(rest, labels)) return false;
    if (!take(rest, " ") || rest.empty()) return false;
    char* end = nullptr;
    const double number = std::strtod(rest.data(), &end);  // the rest of a string, which ends in 0
    if (end != rest.data() + rest.size() || rest.front() == ' ') return fault("no number");
    if (metric.type != "gauge" && !(number >= 0)) fault("less than nothing");
    if (!metric.samples.emplace(std::pair(name, labels), number).second) fault("a second time");
    return true;
  }

  bool read_labels(std::string_view& rest, Labels& labels) {
    do {
      const std::string name = take_name(rest, false);
      if (name.empty() || !take(rest, "=\"")) return false;
      std::string value;
      for (; !rest.empty() && rest.front() != '"'; rest.remove_prefix(1)) {
        if (rest.front() != '\\') {
          value.push_back(rest.front());
          continue;
        }
        rest.remove_prefix(1);
        if (rest.empty() || (rest.front() != '\\' && rest.front() != '"' && rest.front() != 'n')) return fault("no such escape");
        value.push_back(rest.front() == 'n' ? '\n' : rest.front());
      }
      if (!take(rest, "\"")) return false;
      if (!labels.emplace(name, value).second) return fault("two labels of one name");
    } while (take(rest, ","));
    return take(rest, "}");
  }

  void check_histogram(const std::string& name, const Metric& metric) {
    std::map<Labels, std::map<double, double>> buckets;
    std::map<Labels, double> counts;
    std::set<Labels> sums;
    for (const auto& [key, value] : metric.samples) {
      Labels labels = key.second;
      if (key.first == name + "_bucket") {
        const std::string bound = std::exchange(labels["le"], "");
        labels.erase("le");
        char* end = nullptr;
        const double le = std::strtod(bound.c_str(), &end);
        if (bound.empty() || *end != '\0' || !buckets[labels].emplace(le, value).second)
          fault(name + ": bound of a bucket: " + bound);
      } else if (key.first == name + "_count") {
        counts[labels] = value;
      } else {
        sums.insert(labels);
      }
    }
    for (const auto& [labels, by_bound] : buckets) {
      double last = 0;
      for (const auto& [bound, value] : by_bound) {
        if (value < last) fault(name + ": a bucket has less than the one before");
        last = value;
      }
      if (by_bound.rbegin()->first != std::numeric_limits<double>::infinity()) fault(name + ": no bucket +Inf");
      if (!counts.contains(labels) || counts[labels] != last) fault(name + ": the count is not that of +Inf");
    }
    if (counts.size() != buckets.size() || sums.size() != buckets.size())
      fault(name + ": buckets, a sum and a count belong together");
  }

  std::string line_, open_;
  std::map<std::string, Metric> metrics_;
  std::vector<std::string> faults_;
};

}  // namespace tcpx::testing
