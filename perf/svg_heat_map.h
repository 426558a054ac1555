// Heat maps as SVG: what every sender reached with every receiver, one coloured cell each, in one file without scripts and fonts.
//
// Rows are senders, columns are receivers. Colours go from light at zero to dark at the largest value, so that a slow pair stands
// out by as much as it is slower; every cell also shows its value. Pointing at a cell shows which pair it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

struct HeatCell {
  enum class Kind {
    kNone,    ///< not measured: an empty cell
    kValue,   ///< `value`
    kFailed,  ///< crossed out
  };
  Kind kind = Kind::kNone;
  double value = 0;  ///< kValue: 0 ... 1e15
};

struct HeatMap {
  static constexpr size_t kMostNames = 64;
  static constexpr size_t kLongestTitle = 400;  ///< characters of the title or the subtitle; they are wrapped
  static constexpr size_t kLongestLabel = 52;   ///< characters of any other text

  std::string title;
  std::string subtitle;            ///< may be ""
  std::string row_heading;         ///< what a row is: "sender"
  std::string column_heading;      ///< "receiver"
  std::string unit;                ///< "GB/s"; may be ""
  std::vector<std::string> names;  ///< of the n rows, and of the n columns; columns are labelled with their number only
  std::vector<HeatCell> cells;     ///< n x n, row by row. The diagonal, nobody sending to itself, is kNone
};

/// "#rrggbb" for `part` of the largest value, 0 ... 1: each step darker than the one before.
std::string heat_colour(double part);

/// The heat map as an SVG document. All text is escaped.
/// @return kInvalidArgument naming the place when a text is not plain (perf/plain_text.h) or too long, there are fewer than 2 or
/// more than kMostNames names, the cells are not n x n, one on the diagonal is not kNone, or a value is out of range.
Result<std::string> svg_heat_map(const HeatMap& map);

}  // namespace tcpx
