#include "programs/compare/comparison.h"

#include <cstdio>

#include "base/environment.h"
#include "base/text.h"
#include "base/usable_cores.h"
#include "device/gpu_presence.h"
#include "measure/plain_text.h"
#include "programs/compare/nccl.h"
#include "programs/program.h"
#include "programs/unpack/gpu_description.h"

namespace tcpx {

ComparisonOptions::ComparisonOptions(int row_milliseconds) : milliseconds(row_milliseconds) {}

void ComparisonOptions::declare(CLI::App& app) {
  app.add_option("--gpus", gpus, "of the sending and the receiving end (default 0,1; 0,0 where there is one)")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(0, 1023));
  app.add_option("--samples", samples, "per row (default 5)")->check(CLI::Range(size_t{5}, size_t{1000}));
  app.add_option("--milliseconds", milliseconds, concat("per row and column (default ", milliseconds, ")"))
      ->check(CLI::Range(1, 10000));
  app.add_option("--nccl", nccl, "auto, off (default auto: where PyTorch with NCCL and two GPUs are)")
      ->check(CLI::IsMember({"auto", "off"}));
  app.add_flag("--quick", quick, "a little of everything for a few milliseconds, without NCCL: does it work?");
  app.add_option("--json", json, "write all numbers to this file; scripts/plot.py draws it")->type_name("FILE");
}

Comparison::Comparison(ComparisonOptions options, const std::atomic<bool>& stop)
    : options_(std::move(options)),
      stop_(stop),
      has_gpu_(gpu_count().is_ok()),
      row_{.samples = options_.samples, .duration = std::chrono::milliseconds(options_.quick ? 20 : options_.milliseconds)} {
  if (!options_.gpus.empty()) {
    gpus_ = {options_.gpus[0], options_.gpus[1]};
  } else if (has_gpu_ && *gpu_count() > 1) {
    gpus_ = {0, 1};
  }
}

void Comparison::say(const std::string& line) const {
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Comparison::compared(const std::string& who, const Measured& measured) {
  if (mismatch_.empty() && !measured.verified()) mismatch_ = concat(who, ": ", measured.mismatch);
}

Status Comparison::measure(const Section& section, std::vector<MeasuredRun>& runs) {
  runs.clear();
  for (const Mover& mover : section.movers) runs.push_back({.name = mover.name, .one_way = {}, .ping_pong = {}});
  Meters meters;
  for (const Mover& mover : section.movers) {
    TCPX_ASSIGN_OR_RETURN(meters.emplace_back(), connect(mover.setup, mover.overrides));
  }
  for (const uint64_t bytes : section.one_way) {
    TCPX_RETURN_IF_ERROR(measure_row(section, meters, Pattern::kOneWay, bytes, runs));
  }
  for (const uint64_t bytes : section.ping_pong) {
    TCPX_RETURN_IF_ERROR(measure_row(section, meters, Pattern::kPingPong, bytes, runs));
  }
  for (const auto& meter : meters) TCPX_RETURN_IF_ERROR(meter->close());
  return Status::ok();
}

Status Comparison::measure_row(const Section& section, Meters& meters, Pattern pattern, uint64_t bytes,
                               std::vector<MeasuredRun>& runs) {
  const bool one_way = pattern == Pattern::kOneWay;
  const auto name_of = [&](size_t i) {
    return concat(section.title, ", ", section.movers[i].name, ", ", format_bytes(bytes),
                  one_way ? " one way" : " half a round trip");
  };
  const auto each = [&](auto step) -> Status {
    for (size_t i = 0; i < meters.size(); ++i) {
      const Status status = step(i);
      if (status.is_ok()) continue;
      return {status.code(), concat(name_of(i), ": ", status.operation()), status.detail(), status.domain(), status.native()};
    }
    return Status::ok();
  };
  TCPX_RETURN_IF_ERROR(each([&](size_t i) {
    RowSetup row = section.movers[i].row;
    row.pattern = pattern;
    row.message_bytes = bytes;
    return meters[i]->begin_row(row, row_);
  }));
  for (size_t sample = 0; sample < row_.samples; ++sample) {
    TCPX_RETURN_IF_ERROR(each([&](size_t i) { return meters[i]->sample(); }));
  }
  return each([&](size_t i) -> Status {
    TCPX_ASSIGN_OR_RETURN(const Measured measured, meters[i]->end_row());
    say(concat(name_of(i), ": ", format_measured(measured.summary.median), one_way ? " GB/s" : " us",
               measured.verified() ? "" : ", WRONG BYTES"));
    compared(name_of(i), measured);
    (one_way ? runs[i].one_way : runs[i].ping_pong)[bytes] = measured;
    return Status::ok();
  });
}

void Comparison::add_tables(const Section& section, const std::vector<MeasuredRun>& runs) {
  const auto add = [&](const std::string& title, const std::string& unit, MeasuredBy MeasuredRun::*what, Show show) {
    Table table = make_table(By::kSize, title, unit, lines_of(runs, what), show);
    for (const auto& [over, under] : section.ratios) add_ratio_column(table, over, under);
    if (!table.rows.empty()) report_.tables.push_back(std::move(table));
  };
  const Show show = section.unit == "1000/s" ? Show::kThousandMessages : Show::kSummary;
  if (!section.one_way.empty()) add(section.title, section.unit, &MeasuredRun::one_way, show);
  if (section.costs) add(section.title + ", per core-second", "GB", &MeasuredRun::one_way, Show::kPerCoreSecond);
  const std::string back = section.one_way.empty() ? "" : ", half a round trip";
  if (!section.ping_pong.empty()) add(section.title + back, "us", &MeasuredRun::ping_pong, Show::kSummary);
}

Result<std::unique_ptr<RowMeter>> Comparison::connect(const EndSetup& setup, EnvironmentOverrides overrides) const {
  if (!environment_is_set(Variable::kSocketIfname)) {
    std::string interfaces = "=lo";
    for (uint32_t i = 1; i < setup.channels; ++i) interfaces += ",lo";
    overrides[environment_info(Variable::kSocketIfname).name] = interfaces;
  }
  return RowMeter::connect(setup, gpus_, overrides, stop_);
}

std::vector<MeasuredRun> Comparison::run_nccl(const std::vector<uint64_t>& sizes, const std::vector<uint64_t>& ping_pong_sizes) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(row_.duration).count();
  const NcclOptions nccl{.gpus = gpus_, .sizes = sizes, .ping_pong_sizes = ping_pong_sizes, .milliseconds = static_cast<int>(ms)};
  const auto found = [&]() -> Result<std::string> {
    const bool is_wanted = !options_.quick && options_.nccl != "off";
    if (!is_wanted) return Status(Code::kUnsupported, "find NCCL", "not asked for");
    if (!has_gpu_) return Status(Code::kUnsupported, "find NCCL", "it needs two GPUs");
    return find_nccl(nccl, stop_);
  }();
  note("NCCL", found.is_ok() ? *found : concat("left out: ", found.status().detail()));
  say(concat("NCCL: ", report_.parameters["NCCL"]));
  std::vector<MeasuredRun> runs;
  if (!found.is_ok()) return runs;
  for (const NcclSetting& setting : nccl_settings()) {
    if (stop_) break;
    const std::string who = concat("NCCL, ", setting.label);
    Result<MeasuredRun> run = tcpx::run_nccl(setting, nccl, stop_);
    say(concat(who, ": ", run.is_ok() ? "done" : run.status().to_string()));
    if (!run.is_ok()) {
      note(who, concat("left out: ", run.status().detail()));
      continue;
    }
    for (const MeasuredBy* const rows : {&run->one_way, &run->ping_pong}) {
      for (const auto& [bytes, measured] : *rows) compared(concat(who, ", ", bytes, " bytes"), measured);
    }
    runs.push_back(std::move(run).value());
  }
  return runs;
}

Status Comparison::describe_machine() {
  note("samples", concat(row_.samples));
  note("ms per row", concat(std::chrono::duration_cast<std::chrono::milliseconds>(row_.duration).count()));
  note("cores", concat(usable_cores()));
  for (const VariableInfo& variable : environment_table()) {  // those that tune the plugin and endpoints
    if (environment_is_set(variable.id)) note(variable.name, environment_text(variable.id));
  }
  if (!has_gpu_) return Status::ok();
  for (const int gpu : {gpus_.first, gpus_.second}) {
    TCPX_ASSIGN_OR_RETURN(const std::string device, gpu_description(gpu));
    report_.devices.push_back(concat("GPU ", gpu, ": ", device));
  }
  return Status::ok();
}

int Comparison::run(const std::function<Status(Comparison&)>& measure) {
  const Status described = describe_machine();
  return finish(described.is_ok() ? measure(*this) : described);
}

int Comparison::finish(const Status& measured) const {
  if (!report_.tables.empty()) {
    const Status published = publish_report(report_, options_.json);
    if (!published.is_ok()) return programs::failed(published);
  }
  if (!measured.is_ok()) return programs::failed(measured);
  if (!mismatch_.empty()) return programs::failed(Status(Code::kMismatch, "compare received bytes", mismatch_));
  return programs::passed("all bytes that were compared are right");
}

int comparison_main(CLI::App& app, int argc, char** argv, int row_milliseconds,
                    const std::function<Status(Comparison&)>& measure) {
  ComparisonOptions options(row_milliseconds);
  options.declare(app);
  int exit_code = programs::kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (const auto settings = programs::program_settings(); !settings.is_ok()) return programs::failed(settings.status());
  return Comparison(std::move(options), stop_on_interrupt()).run(measure);
}

}  // namespace tcpx
