#include "programs/compare/measured_run.h"

#include "base/text.h"
#include "measure/plain_text.h"

namespace tcpx {

MeasuredBy best_of(const std::vector<MeasuredRun>& runs, MeasuredBy MeasuredRun::*what, bool higher_is_better) {
  MeasuredBy best;
  for (const MeasuredRun& run : runs) {
    for (const auto& [key, measured] : run.*what) {
      const auto [place, is_first] = best.try_emplace(key, measured);
      const double difference = measured.summary.median - place->second.summary.median;
      if (!is_first && (higher_is_better ? difference > 0 : difference < 0)) place->second = measured;
    }
  }
  return best;
}

std::string sockets_text(uint32_t sockets, uint32_t channels) {
  const uint32_t each = sockets / channels;
  return concat(channels == 1 ? "" : concat(channels, " channels x "), each, each == 1 ? " socket" : " sockets");
}

std::string size_text(uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

}  // namespace tcpx
