#include "net/plugin_loader.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/plugin_adapters.h"
#include "net/plugin_exit.h"
#include "net/plugin_file.h"
#include "net/plugin_status.h"
#include "net/soft/interfaces.h"
#include "net/soft/soft_table.h"
#include "net/vendor_plugin.h"
#include "net/vendor_traps.h"

namespace tcpx {
namespace {

constexpr char kOperation[] = "load net plugin";

/// An open library. Closed if none of its code has run; kept forever once its init has.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Library& operator=(Library&&) = delete;
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  template <class Table>
  const Table* table(const char* symbol) const {
    return static_cast<const Table*>(::dlsym(handle_, symbol));
  }
  void keep() { handle_ = nullptr; }

 private:
  void* handle_;
};

/// A complete table of a version we know, not yet initialised.
struct ChosenTable {
  const void* address;
  std::string name;
  std::function<Result<std::shared_ptr<NetPlugin>>()> start;
};

template <class Table>
ChosenTable chosen(const Table& table) {
  return {&table, table.name, [&table] { return start_plugin(table); }};
}

/// Newest version first. An incomplete newer table is logged by its check, and the next older one is tried.
Result<ChosenTable> choose_table(const Library& library, const std::string& path) {
  Status refusal = Status::ok();
  if (const auto* v8 = library.table<abi::NetTable_v8>(abi::kNetPluginV8Symbol)) {
    refusal = check_table(*v8);
    if (refusal.is_ok()) return chosen(*v8);
  }
  if (const auto* v7 = library.table<abi::NetTable_v7>(abi::kNetPluginV7Symbol)) {
    refusal = check_table(*v7);
    if (refusal.is_ok()) return chosen(*v7);
  }
  if (!refusal.is_ok()) return refusal;
  return plugin_refused(Code::kUnsupported, kOperation,
                        concat(path, " exports neither ", abi::kNetPluginV8Symbol, " nor ", abi::kNetPluginV7Symbol));
}

/// Only a path that does not exist counts as absent. A file without permission exists, and opening it will report the error.
bool is_absent(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/// Opening a pipe would wait forever for a writer.
bool is_pipe(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

/// GPUDirect-TCPX sends without MSG_NOSIGNAL, so a closing peer would kill the process (35).
void ignore_sigpipe() {
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  if (::sigaction(SIGPIPE, &action, nullptr) == 0)
    log(LogLevel::kInfo, "SIGPIPE is ignored from now on: plugins may send without MSG_NOSIGNAL");
}

/// A plugin whose init has been called. Initialising -> Ready | Failed; nothing ever leaves Ready or Failed, because a second
/// init in one process fails (30) and a failed one left the plugin in an unknown state.
struct Instance {
  enum class State { kInitialising, kReady, kFailed };

  // A plugin is identified by the address of its table: the dynamic linker opens each file (device and inode, whatever the
  // path) once.
  const void* table = nullptr;
  State state = State::kInitialising;
  std::shared_ptr<NetPlugin> plugin;  // kReady
  Status failure;                     // kFailed
};

/// A plugin may be written in C++ and throw out of a call of its table; threads that wait for it must learn of that, too.
Result<std::shared_ptr<NetPlugin>> start(const ChosenTable& chosen, const PluginSource& source) {
  try {
    return chosen.start();
  } catch (const std::exception& error) {
    return plugin_refused(Code::kPlugin, kOperation, concat(source.path, " threw an exception: ", error.what()));
  } catch (...) {
    return plugin_refused(Code::kPlugin, kOperation, concat(source.path, " threw something that is no exception of C++"));
  }
}

/// All instances of the process. Plugins own threads and are never unloaded, so neither are their entries.
class Registry {
 public:
  static Registry& instance() {
    static Registry& registry = *new Registry;
    return registry;
  }

  /// The plugin behind `chosen`, started by the first caller; others wait for it. No lock is held while foreign code runs.
  Result<std::shared_ptr<NetPlugin>> start_once(const ChosenTable& chosen, const PluginSource& source) {
    Instance* entry = nullptr;
    {
      MutexLock lock(mutex_);
      for (const auto& known : instances_) {
        if (known->table != chosen.address) continue;
        while (known->state == Instance::State::kInitialising) changed_.wait(mutex_);
        return outcome(*known);
      }
      entry = instances_.emplace_back(std::make_unique<Instance>()).get();
      entry->table = chosen.address;
    }
    auto started = start(chosen, source);
    if (started.is_ok()) log(LogLevel::kNotice, "net plugin ", (*started)->name(), " (", source.path, "): ", source.reason);
    MutexLock lock(mutex_);
    entry->state = started.is_ok() ? Instance::State::kReady : Instance::State::kFailed;
    if (started.is_ok()) {
      entry->plugin = *started;
    } else {
      entry->failure = started.status();
    }
    changed_.notify_all();
    return started;
  }

 private:
  static Result<std::shared_ptr<NetPlugin>> outcome(const Instance& instance) {
    if (instance.state == Instance::State::kFailed) return instance.failure;
    return instance.plugin;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Instance>> instances_ TCPX_GUARDED_BY(mutex_);
};

/// GPUDirect-TCPX answers names that match no interface with an internal error without details.
Status check_interface_names() {
  const std::string names = environment_text(Variable::kSocketIfname);
  if (names.empty()) return Status::ok();
  return soft::find_interfaces(soft::Config{.interfaces = names}).status();
}

/// Done here and not when the adapter starts, so that the plugin can be tried again after a mistake in the environment.
Status prepare_for_vendor(const std::string& root) {
  Status status = check_interface_names();
  if (status.is_ok()) status = preset_vendor_environment();
  if (status.is_ok()) status = vendor_message_cut().status();
  if (status.is_ok()) {
    const auto settings = vendor_settings();
    status = settings.is_ok() ? check_vendor_machine(root, soft::list_addresses(), *settings, kOperation) : settings.status();
  }
  return status.is_ok() ? status : plugin_refused(status.code(), status.operation(), status.detail());
}

Result<std::shared_ptr<NetPlugin>> load_library(const PluginSource& source, const std::string& root) {
  // A bare name is searched in the dynamic linker's path.
  if (source.path.find('/') != std::string::npos && is_absent(source.path)) {
    return plugin_refused(Code::kNotFound, kOperation, concat(source.path, " (", source.reason, "): no such file"));
  }
  if (is_pipe(source.path)) {
    return plugin_refused(Code::kUnsupported, kOperation, concat(source.path, " (", source.reason, "): a pipe, not a library"));
  }
  if (const Status whole = check_plugin_file(source.path); !whole.is_ok()) {
    return plugin_refused(whole.code(), kOperation, concat(whole.detail(), " (", source.reason, ")"));
  }
  log(LogLevel::kDebug, "Loading plugin: ", source.path);
  Library library(source.path);
  if (!library) {
    const char* why = ::dlerror();
    return plugin_refused(Code::kUnsupported, kOperation,
                          concat(source.path, " (", source.reason, "): ", why != nullptr ? why : "?"));
  }
  TCPX_ASSIGN_OR_RETURN(auto table, choose_table(library, source.path));
  if (is_vendor_plugin(table.name)) TCPX_RETURN_IF_ERROR(prepare_for_vendor(root));
  library.keep();
  ignore_sigpipe();
  report_exit_of(table.name, table.address);
  return Registry::instance().start_once(table, source);
}

}  // namespace

PluginSource choose_plugin(const PluginLoadOptions& options, const std::string& named, const std::string& network,
                           const std::function<bool(const std::string&)>& exists) {
  if (!options.path.empty()) return {options.path, "named by the caller"};
  if (!named.empty()) return {named, concat("named by ", environment_info(Variable::kPluginPath).name)};
  const std::string wanted = concat(environment_info(Variable::kNetwork).name, "=", network);
  if (network == "soft" || network == "devmem") return {kEmbedded, wanted};
  std::string searched;
  for (const std::string& path : options.installed_paths) {
    if (exists(path)) return {path, "installed there"};
    searched.append(searched.empty() ? " at " : " or ").append(path);
  }
  if (network == "tcpx" && !options.installed_paths.empty()) return {options.installed_paths.front(), wanted};
  return {kEmbedded, concat("no plugin", searched)};
}

Result<PluginLoader::Loaded> PluginLoader::load(const PluginLoadOptions& options) {
  if (Status status = check_log_environment(); !status.is_ok()) {
    return plugin_refused(status.code(), status.operation(), status.detail());
  }
  PluginSource source = choose_plugin(options, environment_text(Variable::kPluginPath), environment_text(Variable::kNetwork),
                                      [](const auto& path) { return !is_absent(path); });
  TCPX_ASSIGN_OR_RETURN(auto plugin, source.path == kEmbedded ? Registry::instance().start_once(chosen(soft::net_table()), source)
                                                              : load_library(source, options.root));
  return Loaded{std::move(plugin), std::move(source)};
}

}  // namespace tcpx
