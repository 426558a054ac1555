// MeasuredRun: one way to move messages, as it was measured for messages of several sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/report.h"
#include "measure/row_meter.h"

namespace tcpx {

struct MeasuredRun {
  std::string name;      ///< of the column; kind of unpacker, setting of NCCL
  uint32_t sockets = 0;  ///< of all channels together; 0: its user does not choose them
  MeasuredBy one_way;
  MeasuredBy ping_pong;
};

/// For every key the measurement with the best median among `runs`.
MeasuredBy best_of(const std::vector<MeasuredRun>& runs, MeasuredBy MeasuredRun::*what, bool higher_is_better);

/// The part of a measurement that a cell shows.
enum class Show { kSummary, kPerCoreSecond, kThousandMessages };
/// The thing that numbers the rows.
enum class By { kSize, kSockets };

/// A column of a table, with what is in it.
struct Line {
  std::string name;
  MeasuredBy values;
};
/// One line for each of `runs`.
std::vector<Line> lines_of(const std::vector<MeasuredRun>& runs, MeasuredBy MeasuredRun::*what);
/// The results of the runs that have messages of `bytes` one way, by the number of sockets.
MeasuredBy by_sockets(const std::vector<MeasuredRun>& runs, uint64_t bytes);
/// A row for every key that any line has; empty cells where a line has not. Lines without values are left out.
Table make_table(By by, std::string title, const std::string& unit, std::vector<Line> lines, Show show = Show::kSummary);

/// "1 socket", "8 streams"
std::string counted(uint64_t count, const char* what);

}  // namespace tcpx
