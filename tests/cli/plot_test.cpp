// tenon plot: one page for runs that are finished, in progress, or interrupted.
#include <fstream>

#include "tests/cli/cli.h"
#include "tests/support/base64.h"

namespace cli {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

class CliPlot : public CliTest {
 protected:
  void write(const std::string& run, const std::string& text) const {
    fs::create_directory(folder() / run);
    std::ofstream(folder() / run / "metrics.jsonl") << text;
  }
  std::string page(const std::string& path) const {
    std::ifstream in(folder() / path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // The JSON in a page.
  json runs(const std::string& path) const {
    const std::string text = page(path), begin = "\nconst runs = ";
    const size_t at = text.find(begin) + begin.size();
    return json::parse(text.substr(at, text.find(";\n", at) - at));
  }
};

TEST_F(CliPlot, CurvesOfOneRun) {
  write(
      "run",
      "{\"step\": 0, \"exact_match\": 0.5, \"count\": 20, \"evaluation_seconds\": 2}\n"
      "{\"step\": 1, \"loss\": 0.25, \"reward\": 0.5, \"exact_match\": 0.375, \"rollout_seconds\": 1.5, \"kl\": null}\n"
      "{\"step\": 2, \"loss\": 0.125, \"reward\": 1, \"exact_match\": 0.5, \"rollout_seconds\": 0.5}\n"
      "{\"step\": 3, \"loss\": 0.06");
  const Finished f = tenon({"plot", "run"});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.out, "run/plot.html\n");
  EXPECT_NE(f.err.find("run: skipped 1 line that"), std::string::npos) << f.err;
  const json all = runs("run/plot.html");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["step"], 2);
  EXPECT_EQ(all[0]["series"]["loss"], json::parse("[[1, 0.25], [2, 0.125]]"));
  EXPECT_EQ(all[0]["series"]["evaluation.exact_match"], json::parse("[[0, 0.5]]"));
  EXPECT_EQ(all[0]["series"]["exact_match"], json::parse("[[1, 0.375], [2, 0.5]]"));
  EXPECT_FALSE(all[0]["series"].contains("kl"));
  EXPECT_EQ(all[0]["totals"]["rollout_seconds"], 2);
  for (const char* outside : {"src=", "href=", "@import", "https://", "fetch("})
    EXPECT_EQ(page("run/plot.html").find(outside), std::string::npos) << outside;
  expect_error(2, {"plot", "run"}, {"run/plot.html", "exists already", "--overwrite"});
  EXPECT_EQ(tenon({"plot", "run", "--overwrite"}).code, 0);
}

// Sample pictures are embedded in the page; other files, and pictures elsewhere, are not.
TEST_F(CliPlot, SamplesOfARun) {
  write("run",
        "{\"step\": 0, \"samples\": [{\"file\": \"samples/0.png\", \"prompt\": \"a <b>\"}]}\n"
        "{\"step\": 5, \"samples\": [{\"file\": \"samples/text.png\"}, {\"file\": \"../secret.png\"}, 7, {\"file\": "
        "1}]}\n");
  fs::create_directory(folder() / "run/samples");
  const std::string png = "\x89PNG\r\n and more";
  std::ofstream(folder() / "run/samples/0.png") << png;
  std::ofstream(folder() / "run/samples/text.png") << "text";
  std::ofstream(folder() / "secret.png") << png;
  ASSERT_EQ(tenon({"plot", "run"}).code, 0);
  const json samples = runs("run/plot.html")[0]["samples"];
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0]["pictures"][0]["prompt"], "a <b>");
  const std::string url = samples[0]["pictures"][0]["picture"], begin = "data:image/png;base64,";
  ASSERT_TRUE(url.starts_with(begin));
  EXPECT_EQ(tenon::from_base64(url.substr(begin.size())), png);
  EXPECT_TRUE(samples[1]["pictures"].empty());
}

TEST_F(CliPlot, WhatHoldsNoMetrics) {
  fs::create_directory(folder() / "run");
  for (const char* text : {"abc", "{}\n[1]\n"}) {
    write("run", text);
    expect_error(2, {"plot", "run"}, {"[run] metrics.jsonl has ", "none of which is metrics of a step"});
  }
}

TEST_F(CliPlot, NeverReplacesTheMetrics) {
  std::filesystem::create_directory(folder() / "a");
  const std::string metrics = "{\"step\":1,\"loss\":2}\n";
  std::ofstream(folder() / "a/metrics.jsonl") << metrics;
  fs::create_symlink("metrics.jsonl", folder() / "a/page.html");
  expect_error(2, {"plot", "a", "-o", "a/page.html", "--overwrite"}, {"--output", "metrics"});
  EXPECT_EQ(std::filesystem::file_size(folder() / "a/metrics.jsonl"), metrics.size());
  const Finished f = tenon({"plot", "a", "--json"});
  EXPECT_EQ(nlohmann::json::parse(f.out).at("path"), "a/plot.html") << f.out;
}

TEST_F(CliPlot, SeveralRunsAndNothingYet) {
  write("a", "{\"step\": 1, \"loss\": 1}\n");
  write("b", "");
  ASSERT_EQ(tenon({"plot", "a", "b", "-o", "both.html"}).code, 0);
  const json all = runs("both.html");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1]["name"], "b");
  EXPECT_TRUE(all[1]["series"].empty());
  write("c", "");
  expect_error(2, {"plot", "b"}, {"[b] metrics.jsonl holds no values yet", "nothing to draw"});
  expect_error(2, {"plot", "b", "c"}, {"[b] metrics.jsonl and those of the other runs hold no values yet"});
}

// A million points do not make a page of a hundred megabytes; outliers and both ends are kept.
TEST_F(CliPlot, LongCurvesAreThinned) {
  const auto loss = [](int i) -> std::string {
    if (i == 1 || i == 20'000) return "2";  // never the minimum or maximum of a section
    return i == 7777 ? "99" : i % 2 ? "1" : "3";
  };
  std::string text;
  for (int i = 1; i <= 20'000; ++i) text += "{\"step\":" + std::to_string(i) + ",\"loss\":" + loss(i) + "}\n";
  write("run", text);
  ASSERT_EQ(tenon({"plot", "run"}).code, 0);
  const json curve = runs("run/plot.html")[0]["series"]["loss"];
  EXPECT_LE(curve.size(), 2000U);
  EXPECT_NE(std::ranges::find(curve, json::parse("[7777, 99.0]")), curve.end());
  EXPECT_EQ(curve.front(), json::parse("[1, 2.0]"));
  EXPECT_EQ(curve.back(), json::parse("[20000, 2.0]")) << "the table's value of the last step";
}

// Names of folders and metrics are untrusted: they cannot become markup or end the script.
TEST_F(CliPlot, ForeignTextIsText) {
  const std::string name = "<!--<script>\x1b[31m";
  write(name, "{\"step\": 1, \"loss\": 1, \"</script><img src=x onerror=alert(1)>\": 2}\n");
  const Finished f = tenon({"plot", name, "-o", "page.html"});
  ASSERT_EQ(f.code, 0) << f.err;
  const std::string text = page("page.html");
  EXPECT_EQ(text.find("<!--"), std::string::npos);
  EXPECT_EQ(text.find("<img"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("</script>"), text.rfind("</script>"));
  EXPECT_TRUE(runs("page.html")[0]["series"].contains("</script><img src=x onerror=alert(1)>"));
}

TEST_F(CliPlot, Errors) {
  fs::create_directory(folder() / "empty");
  expect_error(2, {"plot", "empty"}, {"empty", "no metrics.jsonl"});
  expect_error(2, {"plot", "nowhere"}, {"nowhere", "no metrics.jsonl"});
  expect_error(2, {"plot"}, {"RUN"});
  expect_error(2, {"plot", "nowhere", "-o", "two.png"}, {"--output", "'two.png'", "ends in .html or .htm"});
  write("run", "{\"step\": 1, \"loss\": 1}\n");
  expect_error(1, {"plot", "run", "-o", "none/page.html"}, {"none/page.html"});
}

}  // namespace
}  // namespace cli
