// A validation report as JUnit XML, the form that CI systems read test results in.
#include <fmt/format.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <sstream>
#include <vector>

#include "sim/core/printable.h"
#include "validate/report/validation_report.h"
#include "validate/report/validation_tables.h"

namespace longhaul {
namespace {

using boost::property_tree::ptree;

void add_property(ptree& properties, const std::string& name, const std::string& value) {
  ptree property;
  property.put("<xmlattr>.name", name);
  property.put("<xmlattr>.value", printable(value));
  properties.add_child("property", property);
}

ptree test_case(const ValidationReport& report, const GateCheck& check) {
  ptree of;
  of.put("<xmlattr>.name", printable(check.name));
  of.put("<xmlattr>.classname", printable(fmt::format("longhaul.{}.{}", report.comparison.strategy, check.suite)));
  of.put("<xmlattr>.time", "0");
  const std::string message = printable(check.message);
  if (check.verdict == Verdict::kFail) {
    of.put("failure.<xmlattr>.type", check.suite);
    of.put("failure.<xmlattr>.message", message);
    of.put("failure", message);
  }
  if (check.verdict == Verdict::kUndecided) of.put("skipped.<xmlattr>.message", message);
  return of;
}

// Everything is in `name`, `tests`, `failures`: readers differ in what else they know.
ptree test_suite(const ValidationReport& report, const std::string& name) {
  ptree suite;
  ptree cases;
  int tests = 0, failures = 0, skipped = 0;
  for (const GateCheck& check : report.gates.checks) {
    if (check.suite != name) continue;
    ++tests;
    failures += check.verdict == Verdict::kFail ? 1 : 0;
    skipped += check.verdict == Verdict::kUndecided ? 1 : 0;
    cases.add_child("testcase", test_case(report, check));
  }
  suite.put("<xmlattr>.name", printable(fmt::format("longhaul validate {}: {}", report.comparison.strategy, name)));
  suite.put("<xmlattr>.tests", tests);
  suite.put("<xmlattr>.failures", failures);
  suite.put("<xmlattr>.errors", 0);
  suite.put("<xmlattr>.skipped", skipped);
  suite.put("<xmlattr>.time", "0");
  ptree properties;
  add_property(properties, "run", run_line(report));
  for (const std::string& line : report.comparison.identity.reductions) add_property(properties, "reduced", line);
  for (const std::string& line : report.comparison.remarks) add_property(properties, "note", line);
  for (const std::string& line : report.gates.remarks) add_property(properties, "note", line);
  suite.add_child("properties", properties);
  for (const auto& [tag, child] : cases) suite.add_child(tag, child);
  return suite;
}

}  // namespace

std::string validation_junit(const ValidationReport& report) {
  std::vector<std::string> suites;
  for (const GateCheck& check : report.gates.checks) {
    if (suites.empty() || suites.back() != check.suite) suites.push_back(check.suite);
  }
  ptree all;
  all.put("<xmlattr>.name", "longhaul validate");
  all.put("<xmlattr>.tests", report.gates.checks.size());
  all.put("<xmlattr>.failures", report.gates.count(Verdict::kFail));
  all.put("<xmlattr>.errors", 0);
  all.put("<xmlattr>.skipped", report.gates.count(Verdict::kUndecided));
  for (const std::string& name : suites) all.add_child("testsuite", test_suite(report, name));
  ptree document;
  document.add_child("testsuites", all);
  std::ostringstream out;
  const boost::property_tree::xml_writer_settings<std::string> settings(' ', 2);
  boost::property_tree::write_xml(out, document, settings);
  return out.str();
}

}  // namespace longhaul
