#include "programs/compare/comparison.h"

#include <cstdio>
#include <thread>

#include "base/environment.h"
#include "base/text.h"
#include "device/gpu_presence.h"
#include "programs/compare/nccl_runs.h"
#include "programs/program.h"
#include "programs/unpack/gpu_description.h"

namespace tcpx::bench {

ComparisonArguments::ComparisonArguments(int milliseconds) : milliseconds_(milliseconds) {
  options_.nccl_script = TCPX_NCCL_SCRIPT;
}

void ComparisonArguments::declare(CLI::App& app) {
  app.add_option("--gpus", gpus_, "of the sending and the receiving end (default 0,1; 0,0 where there is one)")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(0, 1023));
  app.add_option("--samples", options_.row.samples, "per row (default 5)")->check(CLI::Range(size_t{5}, size_t{1000}));
  app.add_option("--milliseconds", milliseconds_, concat("per row and column (default ", milliseconds_, ")"))
      ->check(CLI::Range(1, 10000));
  app.add_option("--nccl", nccl_, "auto, off (default auto: where PyTorch with NCCL and two GPUs are)")
      ->check(CLI::IsMember({"auto", "off"}));
  app.add_option("--nccl-script", options_.nccl_script, "where bandwidth.py is (default: in the source tree of this build)")
      ->type_name("FILE");
  app.add_flag("--quick", options_.quick, "a little of everything for a few milliseconds, without NCCL: does it work?");
  app.add_option("--json", options_.json, "write all numbers to this file; scripts/plot.py draws it")->type_name("FILE");
}

ComparisonOptions ComparisonArguments::options() const {
  ComparisonOptions options = options_;
  options.row.duration = std::chrono::milliseconds(options.quick ? 20 : milliseconds_);
  if (options.quick || nccl_ == "off") options.nccl_script.clear();
  if (!gpus_.empty()) {
    options.gpus = {gpus_[0], gpus_[1]};
  } else if (gpu_count().is_ok() && *gpu_count() > 1) {
    options.gpus = {0, 1};
  }
  return options;
}

Comparison::Comparison(ComparisonOptions options, const std::atomic<bool>& stop)
    : options_(std::move(options)), stop_(stop), has_gpu_(gpu_count().is_ok()) {}

void Comparison::say(const std::string& line) const {
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Comparison::compared(const std::string& who, const Measured& measured) {
  if (mismatch_.empty() && !measured.verified()) mismatch_ = concat(who, ": ", measured.mismatch);
}

Status Comparison::describe_gpus() {
  if (!has_gpu_) return Status::ok();
  for (const int gpu : {options_.gpus.first, options_.gpus.second}) {
    TCPX_ASSIGN_OR_RETURN(const std::string device, gpu_description(gpu));
    devices_.push_back(concat("GPU ", gpu, ": ", device));
  }
  return Status::ok();
}

Result<std::unique_ptr<RowMeter>> Comparison::connect(const EndSetup& setup, EnvironmentOverrides overrides) const {
  if (!environment_is_set(Variable::kSocketIfname)) {
    std::string interfaces = "=lo";
    for (uint32_t i = 1; i < setup.channels; ++i) interfaces += ",lo";
    overrides[environment_info(Variable::kSocketIfname).name] = interfaces;
  }
  return RowMeter::connect(setup, options_.gpus, overrides, stop_);
}

std::vector<NcclRun> Comparison::run_nccl(const std::vector<uint64_t>& sizes, const std::vector<uint64_t>& ping_pong_sizes) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.row.duration).count();
  const NcclOptions nccl{.script = options_.nccl_script,
                         .gpus = options_.gpus,
                         .sizes = sizes,
                         .ping_pong_sizes = ping_pong_sizes,
                         .milliseconds = static_cast<int>(ms)};
  const auto found = [&]() -> Result<std::string> {
    if (options_.nccl_script.empty()) return Status(Code::kUnsupported, "find NCCL", "not asked for");
    if (!has_gpu_) return Status(Code::kUnsupported, "find NCCL", "it needs two GPUs");
    return find_nccl(nccl, stop_);
  }();
  note("NCCL", found.is_ok() ? *found : concat("left out: ", found.status().detail()));
  say(concat("NCCL: ", notes_["NCCL"]));
  std::vector<NcclRun> runs;
  if (!found.is_ok()) return runs;
  for (const NcclSetting& setting : nccl_settings()) {
    if (stop_) break;
    Result<NcclRun> run = bench::run_nccl(setting, nccl, stop_);
    say(concat("NCCL, ", setting.label, ": ", run.is_ok() ? "done" : run.status().to_string()));
    if (run.is_ok()) {
      for (const MeasuredBy* const rows : {&run->one_way, &run->ping_pong}) {
        for (const auto& [bytes, measured] : *rows) compared(concat("NCCL, ", setting.label, ", ", bytes, " bytes"), measured);
      }
      runs.push_back(std::move(run).value());
    } else {
      note(concat("NCCL, ", setting.label), concat("left out: ", run.status().detail()));
    }
  }
  return runs;
}

std::map<std::string, std::string> Comparison::parameters() const {
  std::map<std::string, std::string> parameters = notes_;
  parameters["samples"] = concat(options_.row.samples);
  parameters["ms per row"] = concat(std::chrono::duration_cast<std::chrono::milliseconds>(options_.row.duration).count());
  parameters["cores"] = concat(std::thread::hardware_concurrency());
  for (const VariableInfo& variable : environment_table()) {  // those that tune the plugin and endpoints
    if (environment_is_set(variable.id)) parameters[variable.name] = environment_text(variable.id);
  }
  return parameters;
}

int Comparison::finish(const Status& measured, const Report& report) const {
  if (!report.tables.empty()) {
    const Result<std::string> text = report_text(report);
    if (!text.is_ok()) return programs::failed(text.status());
    std::printf("%s\n", text->c_str());
    std::fflush(stdout);  // before what is said on stderr
    const Status saved = options_.json.empty() ? Status::ok() : save_report(report, options_.json);
    if (!saved.is_ok()) return programs::failed(saved);
  }
  if (!measured.is_ok()) return programs::failed(measured);
  if (!mismatch_.empty()) return programs::failed(Status(Code::kMismatch, "compare received bytes", mismatch_));
  return programs::passed("all bytes that were compared are right");
}

}  // namespace tcpx::bench
