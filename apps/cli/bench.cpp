// tenon bench: a network's step next to the sum of its anchors alone, the step without fusion, and peers.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/anchor_sum.h"
#include "apps/cli/onednn.h"
#include "apps/cli/parts.h"
#include "apps/cli/peers.h"
#include "apps/cli/sample_inputs.h"
#include "apps/cli/version.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/explain/explanation.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct BenchFlags {
  PartFlags part;
  int runs = 5;
  bool no_anchors = false, no_unfused = false, anchors = false;
  std::vector<std::string> peers;
  std::string peer_mode = "both", peer_python;
};

struct Measured {
  std::vector<double> ms;  ///< sorted
  double load_ms = 0;
  int64_t peak_rss = 0;
  MemoryPlan planned;
  double median() const { return ms[ms.size() / 2]; }
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Lets the peak below count from now on; without this right it is the peak since the start.
void forget_peak_rss() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Peak resident memory of this process in bytes.
int64_t peak_rss() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word)
    if (word == "VmHWM:") status >> kib;
  return kib * 1024;
}

// Prepares the plan and times its fastest phase; slower phases run once beforehand.
Measured measure(const ModelParts& model, const std::string& part, Plan plan, const std::shared_ptr<Backend>& backend,
                 const BenchFlags& flags) {
  Measured out;
  forget_peak_rss();
  const Rate rate = plan.phases.back().rate;
  const auto begin = Clock::now();
  Executable executable(std::move(plan), flags.part.weights(backend, model.weights(part)));
  out.load_ms = ms_since(begin);
  set_sample_inputs(executable);
  executable.run_all();
  executable.run(rate);  // a device may record here what it repeats later
  for (int i = 0; i < flags.runs; ++i) {
    const auto start = Clock::now();
    executable.run(rate);
    out.ms.push_back(ms_since(start));
  }
  std::sort(out.ms.begin(), out.ms.end());
  out.peak_rss = peak_rss();
  out.planned = executable.allocated();
  return out;
}

ordered_json anchors_json(const std::vector<AnchorTime>& anchors) {
  ordered_json list = ordered_json::array();
  for (const AnchorTime& a : anchors) {
    ordered_json entry{{"anchor", a.shape.text()}, {"count", a.count}, {"flops", a.flops}};
    if (a.onednn_bf16) entry["onednn_bf16_ms"] = *a.onednn_bf16;
    if (a.onednn_f32) entry["onednn_f32_ms"] = *a.onednn_f32;
    if (a.winograd) entry["winograd_ms"] = *a.winograd;
    if (a.own) entry["own_ms"] = *a.own;
    list.push_back(std::move(entry));
  }
  return list;
}

void add_unfused(ordered_json& out, const ModelParts& model, const std::string& part, const PartRequest& request,
                 NetworkOptions options, const std::shared_ptr<Backend>& backend, const BenchFlags& flags) {
  options.fusion = false;
  const Plan plan = model.plan(part, request, options);
  out["unfused_launches"] = plan.phases.back().launches.size();
  out["unfused_bytes"] = bytes_moved(plan, plan.phases.back().rate);
  out["unfused_ms"] = measure(model, part, plan, backend, flags).median();
}

void add_peers(ordered_json& out, const ModelParts& model, const std::string& part, DType dtype,
               const BenchFlags& flags, const Common& common) {
  out["peers"] = ordered_json::object();
  for (const std::string& peer : flags.peers) {
    if (peer != "torch") continue;
    PeerRun run;
    run.part = part;
    run.request = flags.part.request;
    run.dtype = dtype;
    run.threads = common.thread_count();
    run.runs = flags.runs;
    if (common.device_name().starts_with("cuda")) run.device = common.device_name();
    run.mode = flags.peer_mode;
    run.python = flags.peer_python;
    out["peers"].update(ordered_json(run_torch(model, run)));
  }
}

ordered_json bench_part(const ModelParts& model, const std::string& part, const BenchFlags& flags, const Common& common,
                        const std::shared_ptr<Backend>& backend) {
  const PartRequest& request = flags.part.request;
  const NetworkOptions options = flags.part.networks(*backend, model);
  const DType dtype = options.precision.act;
  const int threads = common.backend_options().threads;
  const Plan plan = model.plan(part, request, options);
  const Rate rate = plan.phases.back().rate;
  ordered_json out{{"name", model.name() + " " + part + " " + model.describe(part, request)}};
  spdlog::info("{}: {} launches", out["name"].get<std::string>(), plan.phases.back().launches.size());
  if (!flags.peers.empty()) {  // report a missing interpreter before measuring
    static_cast<void>(model.peer_arguments(part, request));
    peer_python(flags.peer_python);
  }
  const Measured fused = measure(model, part, plan, backend, flags);
  out.update({{"median_ms", fused.median()},
              {"min_ms", fused.ms.front()},
              {"runs", flags.runs},
              {"anchor_sum_ms", nullptr},
              {"unfused_ms", nullptr},
              {"launches", counts_of(plan, rate).total}});
  double flops = 0;
  for (const AnchorTime& a : anchors_of(plan)) flops += a.count * a.flops;
  out.update({{"load_ms", fused.load_ms},
              {"gflops", flops / 1e9},
              {"bytes", bytes_moved(plan, rate)},
              {"peak_rss_bytes", fused.peak_rss},
              {"planned_bytes", fused.planned.total()}});
  if (!flags.part.offload.empty())
    out["offloaded"] = {{"host_bytes", fused.planned.host}, {"places", fused.planned.staging}};
  if (!flags.no_anchors) {
    spdlog::info("timing {} different anchors on their own", anchors_of(plan).size());
    const onednn::Found& yardstick = onednn::find();
    if (!yardstick.api && backend->name() == "cpu")
      spdlog::warn("timing anchors without oneDNN: {}", yardstick.problem);
    out["onednn"] = yardstick.api ? ordered_json(yardstick.api->version_text) : ordered_json();
    std::vector<AnchorTime> anchors = anchors_of(plan);
    time_anchors(anchors, dtype, backend, threads);
    out["anchor_sum_ms"] = anchor_sum(anchors);
    out["ratio"] = fused.median() / anchor_sum(anchors);
    if (flags.anchors || common.json) out["anchors"] = anchors_json(anchors);
  }
  if (!flags.no_unfused) add_unfused(out, model, part, request, options, backend, flags);
  add_peers(out, model, part, dtype, flags, common);
  out.update({{"threads", common.thread_count()},
              {"device", backend->describe()},
              {"dtype", options.type().text()},
              {"machine", machine()},
              {"date", today()},
              {"commit", commit()}});
  return out;
}

void print_text(const ordered_json& b) {
  const auto line = [&](const char* label, const char* key, const std::string& more = "") {
    if (!b.contains(key) || !b[key].is_number()) return;
    std::printf("  %-22s %s%s\n", label, seconds_text(b[key].get<double>() / 1e3).c_str(), more.c_str());
  };
  std::printf("%s, %s, %s\n", b["name"].get<std::string>().c_str(), b["dtype"].get<std::string>().c_str(),
              b["device"].get<std::string>().c_str());
  const double ms = b["median_ms"];
  char rate[96];
  std::snprintf(rate, sizeof rate, "  (minimum %s; %d launches, %.0f GFLOP/s)",
                seconds_text(b["min_ms"].get<double>() / 1e3).c_str(), b["launches"].get<int>(),
                b["gflops"].get<double>() / ms * 1e3);
  line("one run", "median_ms", rate);
  if (b.contains("ratio"))
    line("anchors alone", "anchor_sum_ms",
         "  (one run takes " + std::to_string(b["ratio"].get<double>()).substr(0, 5) + " x that)");
  if (b["unfused_ms"].is_number())
    line("without fusion", "unfused_ms",
         "  (" + std::to_string(b["unfused_launches"].get<int>()) + " launches, " +
             bytes_text(b["unfused_bytes"].get<double>()) + " moved instead of " +
             bytes_text(b["bytes"].get<double>()) + ")");
  for (const char* key : {"torch_eager", "torch_compile", "torch_compile_frozen", "torch_compile_graphs"})
    if (b["peers"].contains(key)) {
      const double peer = b["peers"][key];
      std::printf("  %-22s %s  (%.2f x Tenon's)\n", key, seconds_text(peer / 1e3).c_str(), peer / ms);
    }
  line("loading", "load_ms");
  std::printf("  %-22s %s (planned %s)\n", "peak memory", bytes_text(b["peak_rss_bytes"].get<double>()).c_str(),
              bytes_text(b["planned_bytes"].get<double>()).c_str());
  if (b.contains("offloaded"))
    std::printf("  %-22s %s in host memory\n", "offloaded",
                bytes_text(b["offloaded"]["host_bytes"].get<double>()).c_str());
  if (b.contains("anchors"))
    for (const auto& a : b["anchors"]) std::printf("    %s\n", a.dump().c_str());
  std::printf("  %s, %s, %s\n", b["machine"].get<std::string>().c_str(), b["date"].get<std::string>().c_str(),
              b["commit"].get<std::string>().c_str());
  std::fflush(stdout);
}

// Modes that the peer would leave out without a word on this device.
void check_peer_mode(const BenchFlags& flags, const Common& common) {
  if (flags.peers.empty()) return;
  const bool gpu = common.device_name().starts_with("cuda");
  TENON_CHECK(Usage, flags.peer_mode != (gpu ? "frozen" : "graphs"), "--peer-mode")
      << "'" << flags.peer_mode << "' is for a " << (gpu ? "CPU" : "GPU") << ", and the device is "
      << common.device_name() << "; expected eager, compile, both, " << (gpu ? "graphs" : "frozen") << " or all";
}

int run(const BenchFlags& flags, const Common& common) {
  check_peer_mode(flags, common);
  const auto backend = flags.part.computing_backend(common);
  const auto model = open_parts(flags.part.spec);
  ordered_json all = ordered_json::array();
  for (const std::string& part : model->parts_named(flags.part.part)) {
    check_stop();
    all.push_back(bench_part(*model, part, flags, common, backend));
    if (!common.json) print_text(all.back());
  }
  if (common.json) std::cout << json_text(all.size() == 1 ? all[0] : all, 2) << "\n";
  return 0;
}

Action declare_bench(CLI::App& app, const Common& common) {
  const auto flags = std::make_shared<BenchFlags>();
  flags->part.declare(app, "");
  app.add_option("--runs", flags->runs, "number of timed runs; the median is reported")
      ->transform(whole_number())
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI::Option* anchors = app.add_flag("--anchors", flags->anchors, "list the time of each anchor by every route");
  app.add_flag("--no-anchors", flags->no_anchors, "do not time the anchors on their own")->excludes(anchors);
  app.add_flag("--no-unfused", flags->no_unfused, "do not time the network without fusion");
  only(app.add_option("--peer", flags->peers, "also time a peer on the same network: torch (PyTorch)"), {"torch"});
  only(app.add_option("--peer-mode", flags->peer_mode,
                      "PyTorch modes to time: eager, compile, both, frozen (compile with frozen weights, on a CPU), "
                      "graphs (compile with CUDA graphs, on a GPU), or all"),
       {"eager", "compile", "both", "frozen", "graphs", "all"})
      ->capture_default_str();
  app.add_option(
      "--peer-python", flags->peer_python,
      "Python with torch, and diffusers or timm: a path or a name on PATH (default: that of tools/setup.sh --peers)");
  return [flags, &app, &common] {
    if (flags->peers.empty()) warn_idle(app, "there is no --peer", {"--peer-mode", "--peer-python"});
    return run(*flags, common);
  };
}

const RegisterVerb kBench{
    {"bench", "time a network, its anchors on their own, the network without fusion, and peers", declare_bench}};

}  // namespace
}  // namespace tenon::cli
