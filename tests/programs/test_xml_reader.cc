#include "tests/support/xml_reader.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

using testing::parse_xml;

TEST(XmlReader, WhatIsNotWellFormedIsRefused) {
  EXPECT_TRUE(parse_xml("<a b=\"c\"><d/>&lt;</a>\n").is_ok());
  for (const char* text : {"", "a", "<a>", "<a></b>", "<a b=c/>", "<a b=\"1\" b=\"2\"/>", "<a/><b/>", "<a>&nbsp;</a>", "<a>&</a>",
                           "<a b=\"<\"/>", "<a>></a>", "<a b=\"1\"c=\"2\"/>", "<a"}) {
    EXPECT_EQ(parse_xml(text).status().code(), Code::kProtocol) << text;
  }
}

}  // namespace
}  // namespace tcpx
