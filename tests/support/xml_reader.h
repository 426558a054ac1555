// A strict reader of the XML that our charts use: elements, attributes in double quotes, text, five entities.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tcpx/status.h"

namespace tcpx::testing {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;  ///< entities resolved
  std::string text;                               ///< of the element itself
  std::vector<XmlElement> children;

  /// "" when there is no such attribute.
  std::string attribute(const std::string& key) const;
  /// This element and all below, in the order of the document, whose attribute `class` is `kind`.
  std::vector<const XmlElement*> of_class(const std::string& kind) const;
};

/// @return kProtocol with the position and the reason when `document` is not one well-formed element.
Result<XmlElement> parse_xml(std::string_view document);

}  // namespace tcpx::testing
