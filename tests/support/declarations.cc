#include "tests/support/declarations.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "tests/support/code_lines.h"

namespace tcpx::testing {
namespace {

using Tokens = std::vector<std::string>;

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_name(const std::string& token) {
  return in_word(token.front()) && std::isdigit(static_cast<unsigned char>(token.front())) == 0;
}

void add_tokens(const std::string& line, Tokens& tokens) {
  for (size_t i = 0; i < line.size();) {
    size_t end = i;
    while (end < line.size() && in_word(line[end])) ++end;
    if (end == i) end = line.compare(i, 2, "::") == 0 ? i + 2 : i + 1;
    if (std::isspace(static_cast<unsigned char>(line[i])) == 0) tokens.push_back(line.substr(i, end - i));
    i = end;
  }
}

/// Parts of [first, last) between commas outside of brackets. Angles are brackets up to an `=`: after it they compare.
std::vector<Tokens> split(Tokens::const_iterator first, Tokens::const_iterator last) {
  std::vector<Tokens> parts(1);
  int depth = 0;
  bool value = false;
  for (; first != last; ++first) {
    const std::string& token = *first;
    if (token == "(" || token == "[" || token == "{" || (token == "<" && !value)) ++depth;
    if (token == ")" || token == "]" || token == "}" || (token == ">" && !value)) --depth;
    if (depth == 0 && token == "=") value = true;
    if (depth == 0 && token == ",") {
      parts.emplace_back();
      value = false;
    } else {
      parts.back().push_back(token);
    }
  }
  return parts;
}

/// The name declared by "type name = value" or "type name[size]"; "" for a type alone.
std::string declared(const Tokens& declaration) {
  const auto end =
      std::find_if(declaration.begin(), declaration.end(), [](const auto& token) { return token == "=" || token == "["; });
  return end - declaration.begin() > 1 && is_name(*(end - 1)) ? *(end - 1) : "";
}

/// The position after "template <...>" and attributes.
Tokens::const_iterator skip_prefix(const Tokens& statement) {
  auto at = statement.begin();
  while (at != statement.end() && (*at == "template" || *at == "[")) {
    int depth = 0;
    do {
      if (++at == statement.end()) return at;
      depth += (*at == "<" || *at == "[") - (*at == ">" || *at == "]");
    } while (depth > 0);
    ++at;
    if (at != statement.end() && *at == "]") ++at;
  }
  return at;
}

/// The bracket that opens a function's parameters; `end()` when the statement is not a function.
Tokens::const_iterator parameters_of(const Tokens& statement) {
  int angles = 0;
  for (auto at = skip_prefix(statement); at != statement.end(); ++at) {
    const bool of_operator = at != statement.begin() && *(at - 1) == "operator";
    if (*at == "=" && !of_operator) break;
    if (*at == "<" && !of_operator) ++angles;
    if (*at == ">" && angles > 0) --angles;
    if (*at == "(" && angles == 0 && at != statement.begin() && *(at - 1) != "alignas") return at;
  }
  return statement.end();
}

std::string function_name(const Tokens& statement, Tokens::const_iterator open) {
  const auto word = std::find(statement.begin(), open, "operator");
  std::string name;
  for (auto at = word != open ? word : open - 1; at != open; ++at) name += *at;
  return word == open && open - 1 != statement.begin() && *(open - 2) == "~" ? "~" + name : name;
}

std::string signature(const Tokens& statement, Tokens::const_iterator open) {
  auto close = open;
  for (int depth = 0; close != statement.end(); ++close) {
    depth += (*close == "(") - (*close == ")");
    if (depth == 0) break;
  }
  std::string text = function_name(statement, open) + "(";
  for (const Tokens& parameter : split(open + 1, close)) {
    const std::string name = declared(parameter);
    if (!name.empty()) text += (text.back() == '(' ? "" : ", ") + name;
  }
  return text + ")";
}

class Reader {
 public:
  std::set<std::string> read(std::string_view header) {
    Tokens tokens;
    bool continued = false;
    for (const std::string& line : code_lines(header)) {
      const bool directive = continued || line.starts_with("#");
      if (directive && !continued) macro(line);
      continued = directive && line.ends_with("\\");
      if (!directive) add_tokens(line, tokens);
    }
    for (const std::string& token : tokens) take(token);
    return std::move(names_);
  }

 private:
  enum class Kind { kPlain, kType, kEnum, kBody, kValue };
  struct Scope {
    Kind kind;
    std::string prefix;  // of the names in it
    bool open;           // true when its names are public
  };

  void macro(const std::string& line) {
    Tokens tokens;
    add_tokens(line, tokens);
    if (tokens.size() < 3 || tokens[1] != "define") return;
    const bool takes = line.find(tokens[2] + "(") != std::string::npos;
    Tokens::const_iterator open = tokens.begin() + 3;
    names_.insert(takes ? with_parameters(tokens, open) : tokens[2]);
  }

  // A macro's parameters have no types.
  static std::string with_parameters(const Tokens& tokens, Tokens::const_iterator open) {
    std::string text = tokens[2];
    for (auto at = open; at != tokens.end(); ++at) {
      text += *at == "," ? ", " : *at;
      if (*at == ")") break;
    }
    return text;
  }

  void take(const std::string& token) {
    Scope& scope = scopes_.back();
    if (scope.kind == Kind::kBody || scope.kind == Kind::kValue) {
      if (token == "{") scopes_.push_back(scope);
      if (token == "}") close();
    } else if (std::count(statement_.begin(), statement_.end(), "(") > std::count(statement_.begin(), statement_.end(), ")")) {
      statement_.push_back(token);  // of a parameter, of any kind
    } else if (token == "{") {
      open();
    } else if (token == "}") {
      if (scope.kind == Kind::kEnum) enumerator();
      close();
    } else if (token == ";") {
      end_of_statement();
    } else if (token == "," && scope.kind == Kind::kEnum) {
      enumerator();
    } else if (token == ":" && statement_.size() == 1 && scope.kind == Kind::kType) {
      scope.open = scopes_[scopes_.size() - 2].open && statement_[0] == "public";
      statement_.clear();
    } else {
      statement_.push_back(token);
    }
  }

  void add(const std::string& name) {
    if (scopes_.back().open && !name.empty()) names_.insert(scopes_.back().prefix + name);
  }

  void open() {
    const Scope outer = scopes_.back();
    const auto first = skip_prefix(statement_);
    const std::string word = first == statement_.end() ? "" : *first;
    Scope scope{.kind = Kind::kValue, .prefix = outer.prefix, .open = outer.open};
    if (word == "namespace") {
      scope.kind = Kind::kPlain;
      scope.open = outer.open && statement_.back() != "detail";
      for (auto at = statement_.begin() + 1; at != statement_.end(); ++at) {
        if (*(at - 1) == "::") scope.prefix += *at + "::";  // after the library's own
      }
    } else if (word == "extern" && parameters_of(statement_) == statement_.end()) {
      scope.kind = Kind::kPlain;
    } else if (word == "struct" || word == "class" || word == "enum" || word == "union") {
      const auto base = std::find(first, statement_.cend(), ":");
      const auto name = std::find_if(std::make_reverse_iterator(base), std::make_reverse_iterator(first),
                                     [](const auto& token) { return is_name(token) && token != "final"; });
      add(*name);
      scope.kind = word == "enum" ? Kind::kEnum : Kind::kType;
      scope.prefix += *name + "::";
      scope.open = outer.open && word != "class";
    } else if (const auto parameters = parameters_of(statement_); parameters != statement_.end()) {
      if (word != "friend") add(signature(statement_, parameters));
      scope.kind = Kind::kBody;
    }
    if (scope.kind != Kind::kValue) statement_.clear();  // a value's statement continues after it
    scopes_.push_back(scope);
  }

  void close() {
    const Kind kind = scopes_.back().kind;
    scopes_.pop_back();
    if (kind != Kind::kValue) statement_.clear();
  }

  void enumerator() {
    if (!statement_.empty()) add(statement_.front());
    statement_.clear();
  }

  void end_of_statement() {
    const Tokens statement = std::move(statement_);
    statement_.clear();
    const auto first = skip_prefix(statement);
    if (first == statement.end() || *first == "friend" || *first == "static_assert") return;
    const bool is_type = *first == "class" || *first == "struct" || *first == "enum";
    if (const auto parameters = parameters_of(statement); parameters != statement.end()) {
      if (statement.back() != "delete") add(signature(statement, parameters));
    } else if (*first == "using") {
      if (std::find(first, statement.end(), "=") != statement.end()) add(*(first + 1));
    } else if (!is_type) {
      const std::vector<Tokens> declarators = split(first, statement.end());
      add(declared(declarators.front()));
      for (size_t i = 1; i < declarators.size(); ++i) add(declarators[i].front());
    }
  }

  std::vector<Scope> scopes_ = {{.kind = Kind::kPlain, .prefix = "", .open = true}};
  Tokens statement_;
  std::set<std::string> names_;
};

}  // namespace

std::set<std::string> declarations(std::string_view header) {
  return Reader().read(header);
}

}  // namespace tcpx::testing
