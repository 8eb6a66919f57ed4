#include "reports/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "reports/html_tables.h"
#include "reports/results_table.h"
#include "tests/unit/reports/fixtures.h"

namespace longhaul {
namespace {

using testing::count;
using testing::small_bundle;
using testing::small_results;

// What is wrong with the nesting of tags, or nothing. Knows what this page uses: void elements, self-closed SVG, and
// script and style whose content is no markup.
std::string nesting_fault(const std::string& html) {
  static const std::set<std::string> kVoid = {"meta", "br", "!DOCTYPE"};
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag that does not end";
    const bool closing = html[at + 1] == '/';
    const std::size_t begin = at + (closing ? 2 : 1);
    const std::string name = html.substr(begin, html.find_first_of(" />\n", begin) - begin);
    if (closing) {
      if (open.empty() || open.back() != name)
        return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      open.pop_back();
    } else if (kVoid.count(name) == 0 && html[end - 1] != '/') {
      open.push_back(name);
      if (name == "script" || name == "style") at = html.find("</" + name, end) - 1;
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

TEST(Report, TagsNest) {
  EXPECT_EQ(nesting_fault("<p><b>x</b></p>"), "");
  EXPECT_EQ(nesting_fault("<p><b>x</p></b>"), "</p> closes b");
  EXPECT_EQ(nesting_fault(report_html(small_results(), small_bundle())), "");
}

TEST(Report, FetchesNothing) {
  std::string html = report_html(small_results(), small_bundle());
  const std::string kNamespace = "http://www.w3.org/2000/svg";  // a name, never fetched
  for (std::size_t at = html.find(kNamespace); at != std::string::npos; at = html.find(kNamespace)) {
    html.erase(at, kNamespace.size());
  }
  for (const char* part : {"http:", "https:", "src=", "@import", "url(", "<link", "fetch("}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
}

TEST(Report, TextOfOthersCannotBecomeMarkup) {
  const std::string html = report_html(small_results(), small_bundle());
  EXPECT_NE(html.find("the model is causal &lt;/script&gt;&lt;b&gt;"), std::string::npos);
  EXPECT_EQ(count(html, "</script>"), 2u);                    // the data and the program
  EXPECT_NE(html.find("swiglu <fused>"), std::string::npos);  // in the data, where < alone is harmless
}

TEST(Report, SaysWhoWinsAndWhatDoesNot) {
  const std::string html = report_html(small_results(), small_bundle());
  EXPECT_NE(html.find("flashcp wins"), std::string::npos);
  EXPECT_NE(html.find("not applicable: the model is causal"), std::string::npos);
  EXPECT_NE(html.find("does not fit: needs 160\u00a0GB of 100\u00a0GB on rank 3, most of it activations."),
            std::string::npos);
  EXPECT_NE(html.find("Smallest change that fits: recompute full."), std::string::npos);
  EXPECT_NE(html.find("limit 100\u00a0GB"), std::string::npos);
  EXPECT_NE(html.find("name: h200; date: 2026-08-01; collectives: not calibrated: +-25 %"), std::string::npos);
  EXPECT_NE(html.find("llama3-8b on 16 GPUs of dgx-h200-ndr"), std::string::npos);
}

TEST(Report, DrawsEveryTracedRow) {
  const std::string html = report_html(small_results(), small_bundle());
  EXPECT_EQ(count(html, "class=\"tl-bar\""), 8u);  // two traces x two ranks x two streams
  EXPECT_EQ(count(html, "class=\"panel\""), 2u);
  EXPECT_EQ(count(html, "<svg class=\"bar\""), 3u);
  EXPECT_EQ(count(html, "class=\"whisker\""), 3u);
}

TEST(Report, TracesWithoutARowAreLeftOut) {
  const TraceBundle bundle{{testing::small_trace("somebody else's")}};
  EXPECT_EQ(count(report_html(small_results(), bundle), "class=\"tl-bar\""), 0u);
}

TEST(Report, IsDeterministicAndWorksOnLittle) {
  EXPECT_EQ(report_html(small_results(), small_bundle()), report_html(small_results(), small_bundle()));
  for (const Json& json : {Json::object(), Json(), Json::array(), Json({{"strategies", "?"}}),
                           Json({{"strategies", Json::array({Json::object(), Json(3)})}})}) {
    const std::string html = report_html(json, {});
    EXPECT_EQ(nesting_fault(html), "") << json;
  }
}

TEST(Report, StaysBelowTheLimitWhateverTheTraces) {
  std::vector<OpRecord> ops;
  for (std::int64_t i = 0; i < 16'000; ++i) {
    ops.push_back(testing::op(static_cast<std::int32_t>(i % 8), 0, OpKind::kGemm, "a label of some length",
                              1'000'000 * i, 1'000'000 * i + 1'000'000 - i));
  }
  std::vector<Json> rows;
  TraceBundle bundle;
  for (int i = 0; i < 60; ++i) {
    const std::string label = "row-" + std::to_string(i);
    rows.push_back(testing::row(label, 100 + i, 90, 110 + i));
    bundle.traced.push_back(testing::traced_of(label, {}));
  }
  const Traced busy = testing::traced_of("", ops);
  for (Traced& traced : bundle.traced) traced.timeline = busy.timeline;
  const std::string html = report_html(testing::results_of(rows, "row-0"), bundle);
  EXPECT_LE(html.size(), kReportMaxBytes);
  EXPECT_EQ(count(html, "class=\"trace\""), 60u);
}

TEST(Provenance, CasesThatSayTheSameStandOnce) {
  const Json same = {
      {"calibration", Json::array({{{"case", "x"}, {"name", "h200"}}, {{"case", "y"}, {"name", "h200"}}})}};
  EXPECT_EQ(provenance_html(same), "<dl class=\"provenance\">\n<dt>calibration</dt><dd>name: h200</dd>\n</dl>\n");
  const Json other = {
      {"calibration", Json::array({{{"case", "x"}, {"name", "h200"}}, {{"case", "y"}, {"name", "h100"}}})}};
  EXPECT_NE(provenance_html(other).find("<li>x: name: h200</li><li>y: name: h100</li>"), std::string::npos);
}

TEST(ResultsTable, CsvHasOneLineARowAndExactNumbers) {
  const std::string csv = results_csv(small_results());
  EXPECT_EQ(count(csv, "\r\n"), 5u);
  EXPECT_EQ(csv.find("case,label,strategy,layout,state,step_time_ms,step_time_low_ms,step_time_high_ms,"), 0u);
  EXPECT_NE(csv.find(",flashcp,flashcp,\"cp 8, dp 2\",runs,0.64,0.6,0.68,5294.25,0.298,1.25,1.5,0.48,,,,,0.0,0.16,,,"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find(",csbp,csbp,,not_applicable,"), std::string::npos);
  const std::string head = csv.substr(0, csv.find("\r\n"));
  const std::string absent = csv.substr(csv.find(",csbp"), csv.rfind("\r\n") - csv.find(",csbp"));
  EXPECT_EQ(std::count(head.begin(), head.end(), ','), std::count(absent.begin(), absent.end(), ','));
}

TEST(ResultsTable, CsvQuotesWhatNeedsIt) {
  Json odd = testing::row("a,\"b\"", 1, 1, 1);
  EXPECT_NE(results_csv(testing::results_of({odd}, "")).find(",\"a,\"\"b\"\"\","), std::string::npos);
}

TEST(ResultsTable, MarkdownHasTheVerdictAndATable) {
  const std::string text = results_markdown(small_results());
  EXPECT_EQ(text.find("flashcp wins: flashcp takes"), 0u) << text;
  EXPECT_NE(text.find("| **flashcp (cp 8, dp 2)** | 640.0"), std::string::npos) << text;
  EXPECT_NE(text.find("* no-shards: does not fit: needs 160\u00a0GB of 100\u00a0GB"), std::string::npos);
  EXPECT_NE(text.find("* csbp: not applicable: "), std::string::npos);
}

}  // namespace
}  // namespace longhaul
