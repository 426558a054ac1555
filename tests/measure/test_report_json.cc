#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "measure/report.h"
#include "measure/result_file.h"
#include "tests/support/example_report.h"
#include "tests/support/temporary_directory.h"

namespace tcpx {
namespace {

using testing::example_report;
using testing::TemporaryDirectory;

TEST(ReportJson, WhatIsWrittenIsReadBack) {
  const auto read = parse_report(report_json(example_report()).value());
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(*read, example_report());
}

TEST(ReportJson, NumbersSurviveToTheLastBit) {
  Report report = example_report();
  const double values[] = {1.0 / 3, 5e-324, std::numeric_limits<double>::max(), -0.1, 1e22, 67108864};
  for (const double value : values)
    report.tables[1].rows.push_back({std::to_string(report.tables[1].rows.size()), {value}, true});
  EXPECT_EQ(parse_report(report_json(report).value()).value(), report);
}

TEST(ReportJson, FieldsAreWhereProgramsLookForThem) {
  const auto json = nlohmann::json::parse(report_json(example_report()).value());
  EXPECT_EQ(json["benchmark"], "unpack");
  EXPECT_EQ(json["version"], TCPX_VERSION);
  EXPECT_EQ(json["abi"], "ncclNetPlugin_v7");
  EXPECT_EQ(json["devices"][0], "NVIDIA H200, driver 580.159.04");
  EXPECT_EQ(json["parameters"]["bytes"], "67108864");
  const auto& table = json["tables"][0];
  EXPECT_EQ(table["columns"][1]["unit"], "GB/s");
  EXPECT_EQ(table["rows"][1]["values"]["4096 B"]["median"], 1661.125);
  EXPECT_EQ(table["rows"][1]["values"]["4096 B"]["count"], 9);
  EXPECT_EQ(table["rows"][0]["values"]["note"], nullptr);
  EXPECT_EQ(table["rows"][2]["verified"], false);
}

TEST(ReportJson, EveryFieldIsNeededAndHasItsKind) {
  const auto whole = nlohmann::json::parse(report_json(example_report()).value());
  const std::vector<std::string> fields = {"/format",
                                           "/benchmark",
                                           "/about",
                                           "/version",
                                           "/abi",
                                           "/devices",
                                           "/devices/0",
                                           "/parameters",
                                           "/parameters/bytes",
                                           "/tables",
                                           "/tables/0",
                                           "/tables/0/title",
                                           "/tables/0/row_heading",
                                           "/tables/0/columns",
                                           "/tables/0/columns/0/name",
                                           "/tables/0/columns/0/unit",
                                           "/tables/0/rows",
                                           "/tables/0/rows/1/name",
                                           "/tables/0/rows/1/verified",
                                           "/tables/0/rows/1/values",
                                           "/tables/0/rows/1/values/4096 B/count",
                                           "/tables/0/rows/1/values/4096 B/min",
                                           "/tables/0/rows/1/values/4096 B/median",
                                           "/tables/0/rows/1/values/4096 B/max"};
  for (const std::string& field : fields) {
    const nlohmann::json::json_pointer pointer(field);
    ASSERT_TRUE(whole.contains(pointer)) << field;
    for (const nlohmann::json& other :
         {nlohmann::json(nullptr), nlohmann::json(-7), nlohmann::json(""), nlohmann::json{{"a", {}}}}) {
      auto changed = whole;
      changed[pointer] = other;
      const bool allowed = (field.ends_with("/unit") && other == "") || (field.ends_with("/min") && other == -7);
      EXPECT_EQ(parse_report(changed.dump()).status().code(), allowed ? Code::kOk : Code::kProtocol) << field << " = " << other;
    }
    const std::string name = pointer.back();
    if (name == "0" || name == "bytes") continue;  // without it the report is a smaller one
    auto changed = whole;
    changed[pointer.parent_pointer()].erase(name);
    EXPECT_EQ(parse_report(changed.dump()).status().code(), Code::kProtocol) << "without " << field;
  }
}

TEST(ReportJson, TextThatIsNoReportIsRefused) {
  const std::string whole = report_json(example_report()).value();
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("{}"),
                                  std::string("\xff\xfe"), whole + "x", std::string(100'000, '[')}) {
    EXPECT_EQ(parse_report(text).status().code(), Code::kProtocol) << text.substr(0, 20);
  }
  for (size_t length = 0; length + 2 < whole.size(); length += 7) {
    EXPECT_FALSE(parse_report(whole.substr(0, length)).is_ok()) << length;
  }
  EXPECT_EQ(parse_report(std::string(kMaxReportBytes + 1, ' ')).status().code(), Code::kInvalidArgument);
}

TEST(ReportJson, NumbersTooLargeForADoubleAreRefused) {
  std::string text = report_json(example_report()).value();
  text.replace(text.find("1661.125"), 8, "1e999999");
  EXPECT_EQ(parse_report(text).status().code(), Code::kProtocol);
}

TEST(ReportJson, AnotherFormatIsNamed) {
  std::string text = report_json(example_report()).value();
  text.replace(text.find("tcpx-report-1"), 13, "tcpx-report-9");
  EXPECT_NE(parse_report(text).status().detail().find("tcpx-report-9"), std::string::npos);
}

TEST(ReportJson, FilesAreSavedAndLoaded) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(save_report(example_report(), directory.file("a.json")).is_ok());
  const auto read = load_report(directory.file("a.json"));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(*read, example_report());
}

TEST(ReportJson, ABadReportLeavesTheEarlierFile) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_file(directory.file("a.json"), "earlier").is_ok());
  Report report = example_report();
  report.key.clear();
  EXPECT_EQ(save_report(report, directory.file("a.json")).code(), Code::kInvalidArgument);
  EXPECT_EQ(read_file(directory.file("a.json"), 100).value(), "earlier");
}

TEST(ReportJson, FilesThatHoldNoReportAreTyped) {
  const TemporaryDirectory directory;
  EXPECT_EQ(load_report(directory.file("missing")).status().code(), Code::kNotFound);
  ASSERT_TRUE(write_file(directory.file("a"), "hello").is_ok());
  EXPECT_EQ(load_report(directory.file("a")).status().code(), Code::kProtocol);
  ASSERT_TRUE(write_file(directory.file("a"), std::string(kMaxReportBytes + 1, ' ')).is_ok());
  EXPECT_EQ(load_report(directory.file("a")).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx
