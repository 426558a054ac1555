#include "tests/support/xml_reader.h"

#include <cctype>

#include "base/text.h"

namespace tcpx::testing {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view document) : left_(document), size_(document.size()) {}

  Status document(XmlElement& root) {
    if (!skip("<")) return wrong("'<' expected");
    TCPX_RETURN_IF_ERROR(element(root));
    skip_spaces();
    return left_.empty() ? Status::ok() : wrong("something follows the root");
  }

 private:
  // Behind the '<' of a start tag.
  Status element(XmlElement& out) {
    out.name = name();
    if (out.name.empty()) return wrong("name expected");
    for (;;) {
      const bool spaces = skip_spaces();
      if (skip("/>")) return Status::ok();
      if (skip(">")) break;
      if (!spaces) return wrong("space expected");
      const std::string key = name();
      if (key.empty() || !skip("=\"")) return wrong("attribute expected");
      std::string value;
      TCPX_RETURN_IF_ERROR(characters('"', value));
      if (!out.attributes.emplace(key, value).second) return wrong("attribute repeats");
      if (!skip("\"")) return wrong("'\"' expected");
    }
    for (;;) {
      TCPX_RETURN_IF_ERROR(characters('<', out.text));
      if (skip("</")) break;
      if (!skip("<")) return wrong("document ends inside an element");
      out.children.emplace_back();
      TCPX_RETURN_IF_ERROR(element(out.children.back()));
    }
    if (name() != out.name) return wrong("end tag of another element");
    return skip(">") ? Status::ok() : wrong("'>' expected");
  }

  Status characters(char end, std::string& out) {
    while (!left_.empty() && left_[0] != end) {
      if (left_[0] == '<' || left_[0] == '>') return wrong("bare angle bracket");
      if (left_[0] != '&') {
        out.push_back(left_[0]);
        left_.remove_prefix(1);
        continue;
      }
      static const std::map<std::string_view, char> kEntities = {
          {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}};
      const auto entity = kEntities.find(left_.substr(0, left_.find(';') + 1));
      if (entity == kEntities.end()) return wrong("unknown entity");
      out.push_back(entity->second);
      left_.remove_prefix(entity->first.size());
    }
    return Status::ok();
  }

  std::string name() {
    size_t length = 0;
    while (length < left_.size() && (std::isalnum(static_cast<unsigned char>(left_[length])) != 0 || left_[length] == '-'))
      ++length;
    const std::string text(left_.substr(0, length));
    left_.remove_prefix(length);
    return text;
  }

  bool skip(std::string_view text) {
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }
  bool skip_spaces() {
    const size_t before = left_.size();
    while (skip(" ") || skip("\n")) {
    }
    return left_.size() != before;
  }
  Status wrong(std::string_view what) const {
    return {Code::kProtocol, "parse XML",
            concat("at ", size_ - left_.size(), ": ", what, ", before '", left_.substr(0, 30), "'")};
  }

  std::string_view left_;
  size_t size_;
};

void collect(const XmlElement& element, const std::string& kind, std::vector<const XmlElement*>& found) {
  if (element.attribute("class") == kind) found.push_back(&element);
  for (const XmlElement& child : element.children) collect(child, kind, found);
}

}  // namespace

std::string XmlElement::attribute(const std::string& key) const {
  const auto found = attributes.find(key);
  return found == attributes.end() ? "" : found->second;
}

std::vector<const XmlElement*> XmlElement::of_class(const std::string& kind) const {
  std::vector<const XmlElement*> found;
  collect(*this, kind, found);
  return found;
}

Result<XmlElement> parse_xml(std::string_view document) {
  XmlElement root;
  TCPX_RETURN_IF_ERROR(Reader(document).document(root));
  return root;
}

}  // namespace tcpx::testing
