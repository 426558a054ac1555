#include "measure/unpack_note.h"

#include "base/text.h"
#include "measure/plain_text.h"
#include "tcpx/help.h"

namespace tcpx {

std::string unpack_note(std::string_view what, const UnpackRate& used, const UnpackRate& other) {
  constexpr double kNoticeable = 0.9;
  if (used.gb_per_second >= kNoticeable * other.gb_per_second) return "";
  return concat(what, ": unpack ", used.name, " ", format_measured(used.gb_per_second), " GB/s, ", other.name, " ",
                format_measured(other.gb_per_second), " GB/s", name_in_detail(Hint::kUnpackSlow), ". ",
                help_of(Hint::kUnpackSlow));
}

}  // namespace tcpx
