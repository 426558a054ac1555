// Some checks inside GPUDirect-TCPX end the process by exit(1) (23). That cannot be caught, but it can be reported: an exit
// handler names on stderr the plugin, its call, and the transfers in flight (base/flight_scope.h). The exit then proceeds with
// the plugin's code. An exit by _exit or a signal is not seen.
//
// The handler distinguishes such an exit from the application's own by the stack of the exiting thread: the plugin's library is
// on it, with no signal handler in between. So exits of the plugin's own threads are seen as well.
#pragma once

#include <string>
#include <string_view>

namespace tcpx {

/// Marks this thread as being inside a call of a plugin's table while it lives.
class PluginCall {
 public:
  /// @param operation a literal
  /// @param words receives the last warning that the plugin logs from within the call; may be null. All must outlive the mark.
  PluginCall(const std::string& plugin, const char* operation, std::string* words = nullptr)
      : plugin_(plugin), operation_(operation), words_(words), outer_(current_) {
    current_ = this;
  }
  ~PluginCall() { current_ = outer_; }
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

  /// The mark of this thread; null outside of any call.
  static const PluginCall* current() { return current_; }
  /// Records a line logged by the plugin whose call this thread is in. No effect outside of a call.
  static void heard(std::string_view line) {
    if (current_ != nullptr && current_->words_ != nullptr) *current_->words_ = line;
  }
  const std::string& plugin() const { return plugin_; }
  const char* operation() const { return operation_; }

 private:
  static inline constinit thread_local const PluginCall* current_ = nullptr;

  const std::string& plugin_;
  const char* operation_;
  std::string* words_;
  const PluginCall* outer_;
};

/// From now on an exit from within the library that holds `table` is reported under the plugin's name. Call before its init.
void report_exit_of(const std::string& plugin, const void* table);

/// Handlers run in the reverse order of their registration, together with the destructors of static objects, which may wait for
/// the very call that the plugin exits from. This puts the report in front of those of all objects made before. Does nothing when
/// no plugin is reported.
void report_exit_first();

}  // namespace tcpx
