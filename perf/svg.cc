#include "perf/svg.h"

#include <array>

#include "base/text.h"
#include "perf/chart_axis.h"
#include "perf/plain_text.h"

namespace tcpx {
namespace {

// Colours after Okabe and Ito, whose yellow cannot be seen on white and is replaced. Two neighbours differ in all three.
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#aa4499",
                                                 "#e69f00", "#56b4e9", "#333333", "#8c6d1f"};
constexpr std::array<const char*, 4> kDashes = {"none", "7 3", "2 3", "9 3 2 3"};
constexpr std::array<const char*, 8> kMarkers = {
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",                                                            // circle
    "M-3.6,-3.6h7.2v7.2h-7.2z",                                                                       // square
    "M0,-4.8L4.6,3.4H-4.6z",                                                                          // triangle
    "M0,-5.2L4.4,0L0,5.2L-4.4,0z",                                                                    // diamond
    "M0,4.8L4.6,-3.4H-4.6z",                                                                          // triangle, point down
    "M-1.5,-4.8h3v3.3h3.3v3h-3.3v3.3h-3v-3.3h-3.3v-3h3.3z",                                           // plus
    "M-4.6,-2.6l2,-2l2.6,2.6l2.6,-2.6l2,2l-2.6,2.6l2.6,2.6l-2,2l-2.6,-2.6l-2.6,2.6l-2,-2l2.6,-2.6z",  // cross
    "M-4.6,-2h9.2v4h-9.2z",                                                                           // bar
};

}  // namespace

double svg_text_width(std::string_view text, double size) {
  return kSvgCharWidth * size / kSvgTextSize * static_cast<double>(display_width(text));
}

SvgStyle svg_style(size_t idx) {
  // The second round pairs every colour with another marker and dash.
  const size_t round = idx / kColours.size();
  return {kColours[idx % kColours.size()], kDashes[(idx + round) % kDashes.size()],
          kMarkers[(idx + 3 * round) % kMarkers.size()]};
}

std::string svg_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string svg_px(double pixels) {
  return format_fixed(pixels, 2);
}

void svg_text(std::string& svg, const char* kind, double x, double y, std::string_view text, const SvgTextLook& look) {
  svg += concat("<text class=\"", kind, "\" x=\"", svg_px(x), "\" y=\"", svg_px(y), "\" font-size=\"", format_tick(look.size),
                "\" text-anchor=\"", look.anchor, "\" fill=\"", look.colour, look.bold ? "\" font-weight=\"bold" : "", "\">",
                svg_escaped(text), "</text>\n");
}

void svg_line(std::string& svg, const char* kind, double x1, double y1, double x2, double y2, const SvgStyle& style,
              double width) {
  svg += concat("<line class=\"", kind, "\" x1=\"", svg_px(x1), "\" y1=\"", svg_px(y1), "\" x2=\"", svg_px(x2), "\" y2=\"",
                svg_px(y2), "\" stroke=\"", style.colour, "\" stroke-width=\"", format_tick(width), "\" stroke-dasharray=\"",
                style.dash, "\"/>\n");
}

void svg_marker(std::string& svg, const char* kind, double x, double y, const SvgStyle& style, std::string_view hint) {
  svg += concat("<path class=\"", kind, "\" transform=\"translate(", svg_px(x), ",", svg_px(y), ")\" d=\"", style.marker,
                "\" fill=\"", style.colour, "\" stroke=\"#ffffff\" stroke-width=\"0.7\">");
  svg += hint.empty() ? "</path>\n" : concat("<title>", svg_escaped(hint), "</title></path>\n");
}

}  // namespace tcpx
