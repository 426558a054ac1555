// The few SVG elements that charts are made of. Every function appends to a document; text is escaped here and nowhere else.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tcpx {

/// What the width of text is guessed with, in pixels, from above: the reader's font is not known.
inline constexpr double kSvgTextSize = 12, kSvgCharWidth = 7.6;
double svg_text_width(std::string_view text, double size = kSvgTextSize);

/// Dark and lighter text, lines behind the data.
inline constexpr char kSvgInk[] = "#1a1a1a", kSvgFaintInk[] = "#595959", kSvgGrid[] = "#e3e3e3";

/// How a series is drawn.
struct SvgStyle {
  const char* colour;
  const char* dash;    ///< stroke-dasharray
  const char* marker;  ///< path around 0,0
};
/// Of the first 16, no two have the same colour and marker; neighbours differ in colour, marker and dash.
SvgStyle svg_style(size_t idx);

struct SvgTextLook {
  const char* anchor = "start";
  const char* colour = kSvgInk;
  double size = kSvgTextSize;
  bool bold = false;
};

/// & < > " ' as entities.
std::string svg_escaped(std::string_view text);
/// A coordinate: two digits behind the point. `pixels` must be finite.
std::string svg_px(double pixels);

void svg_text(std::string& svg, const char* kind, double x, double y, std::string_view text, const SvgTextLook& look = {});
void svg_line(std::string& svg, const char* kind, double x1, double y1, double x2, double y2, const SvgStyle& style,
              double width = 1);
/// `hint` is shown by a browser while the mouse is over the marker; "" for none.
void svg_marker(std::string& svg, const char* kind, double x, double y, const SvgStyle& style, std::string_view hint);

}  // namespace tcpx
