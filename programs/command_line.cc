#include "programs/command_line.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/near_word.h"
#include "base/text.h"
#include "base/words.h"

namespace tcpx {
namespace {

std::string did_you_mean(const std::string& word) {
  return concat("did you mean \"", word, "\"?");
}

/// Options as people read them: "--bytes BYTES", and not "--bytes UINT:UINT in [0 - 2147479552]".
class PlainFormatter final : public CLI::Formatter {
 public:
  PlainFormatter() { column_width(kColumns); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_positional()) return "";
    std::string type = option->get_type_name();
    type = type.substr(0, type.find(':'));  // the validators stand behind it
    if (type == "UINT" || type == "INT" || type == "FLOAT") type = "N";
    if (type == "ENUM") type = "WORD";
    const bool list = option->get_expected_max() > 1;
    return concat(' ', type, list ? concat(option->get_delimiter() == ',' ? "," : " ", "...") : "");
  }

 private:
  static constexpr size_t kColumns = 26;
};

std::vector<CLI::App*> all_of(CLI::App& app) {
  std::vector<CLI::App*> all = {&app};
  for (CLI::App* role : app.get_subcommands([](CLI::App*) { return true; })) all.push_back(role);
  return all;
}

std::vector<std::string> option_names(CLI::App& app) {
  std::vector<std::string> names;
  for (CLI::App* part : all_of(app)) {
    for (const CLI::Option* option : part->get_options([](const CLI::Option* one) { return !one->get_group().empty(); })) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

std::vector<std::string> role_names(CLI::App& app) {
  std::vector<std::string> names;
  for (CLI::App* role : app.get_subcommands([](CLI::App*) { return true; })) names.push_back(role->get_name());
  return names;
}

/// The likely meaning of one of these words: an unknown option, or something other than a role where a role is
/// missing. "": nothing is near.
std::string suggestion(CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> options = option_names(app), roles = role_names(app);
  const bool has_role = !app.get_subcommands().empty();
  for (int i = 1; i < argc; ++i) {
    const std::string word(argv[i]);
    const bool option = word.starts_with("--");
    if (!option && (has_role || word.starts_with('-'))) continue;
    const std::string name = option ? word.substr(0, word.find('=')) : word;
    const std::vector<std::string>& known = option ? options : roles;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (const std::string near = near_word(name, known); !near.empty()) return concat('"', name, "\": ", did_you_mean(near));
  }
  return "";
}

/// "server, client HOST, loopback"
std::string roles_of(CLI::App& app) {
  std::string text;
  for (CLI::App* role : app.get_subcommands([](CLI::App*) { return true; })) {
    text += concat(text.empty() ? "" : ", ", role->get_name());
    for (const CLI::Option* option : role->get_options()) {
      if (option->get_positional() && option->get_required()) text += concat(' ', option->get_name());
    }
  }
  return text;
}

}  // namespace

bool parse_command_line(CLI::App& app, int argc, char** argv, int& exit_code, int usage_code) {
  for (CLI::App* part : all_of(app)) part->formatter(std::make_shared<PlainFormatter>());
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : usage_code;
    if (exit_code == 0) return false;
    const auto kind = static_cast<CLI::ExitCodes>(error.get_exit_code());
    if (kind != CLI::ExitCodes::ExtrasError && kind != CLI::ExitCodes::RequiredError) return false;
    if (const std::string meant = suggestion(app, argc, argv); !meant.empty()) {
      std::fprintf(stderr, "%s\n", meant.c_str());
    } else if (app.get_subcommands().empty() && !roles_of(app).empty()) {
      std::fprintf(stderr, "One of: %s\n", roles_of(app).c_str());
    }
    return false;
  }
}

void add_chart_answer(CLI::App& app, const std::string& option) {
  const auto answer = [option](const std::string&) {
    throw CLI::ValidationError(option,
                               "charts are drawn from the report: --json run.json, then scripts/plot.py run.json -o run.svg");
  };
  app.add_option_function<std::string>(option, answer)->expected(0, 1)->group("");
}

CLI::Validator size_in_bytes() {
  return CLI::Validator(
      [](std::string& text) {
        const std::string written = text;
        try {
          return CLI::AsSizeValue(false)(text);
        } catch (const CLI::ValidationError&) {
          return concat('"', written, "\" is no size; 8, 64K, 4MiB and 1G are");
        }
      },
      "");
}

std::string none_of(const std::string& word, const std::vector<std::string>& words) {
  const std::string near = near_word(word, words);
  return concat('"', word, "\" is none of ", joined(words), near.empty() ? "" : concat("; ", did_you_mean(near)));
}

}  // namespace tcpx
