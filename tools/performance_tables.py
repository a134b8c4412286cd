#!/usr/bin/env python3
"""Writes the tables of docs/performance.md from bench/results: what stands between `<!-- table NAME -->` and `<!-- end -->`.

Of each kind of run the newest file counts, by the date in its name; of networks the newest with PyTorch in the same run. `--check` compares instead of writing.
"""
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/performance.md"
RESULTS = ROOT / "bench/results"
GPU = "NVIDIA-H200"


def newest(kind, machine=GPU):
    """(name, content) of the newest result of a kind ("unet", "lion" ..); if some include PyTorch, of those."""
    found = [(f.name, json.loads(f.read_text())) for f in sorted(RESULTS.glob(f"20??-??-??-{machine}-{kind}.json"))]
    if not found:
        raise SystemExit(f"performance_tables: no bench/results/*-{machine}-{kind}.json")
    return ([f for f in found if f[1].get("peers")] or found)[-1]


def ms(value):
    return "-" if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.1f}"


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)])


def noted(text, notes):
    """A table with notes under it: what a file says about its figures, such as a second run, and what they include."""
    return "\n".join([text, *(line for note in notes if note for line in ("", *textwrap.wrap(note[0].upper() + note[1:] + ".", 120)))])


def peer(run):
    """Milliseconds of the best PyTorch mode measured with a run, and that mode."""
    modes = {"torch_compile_graphs": "compiled, graphs", "torch_compile": "compiled", "torch_compile_frozen": "frozen", "torch_eager": "eager"}
    times = {name: run["peers"][name] for name in modes if name in (run.get("peers") or {})}
    if not times:
        return None, ""
    best = min(times, key=times.get)
    return times[best], modes[best]


def against(time, other, text):
    """`text`, bold where `time` is no longer than the other's."""
    return f"**{text}**" if time <= other else text


def ratio(other, ours):
    return f"{other / ours:.2f}x"


def networks():
    rows = []
    for kind, name in (("unet", "UNet step of Stable Diffusion 1.5, 512 x 512, batch 2"), ("unet-b1", "the same, batch 1"),
                       ("vae-decode", "VAE decoder, 512 x 512"), ("text", "text encoder, 2 prompts"), ("vit-1", "ViT-g/14, 1 picture"),
                       ("vit-8", "ViT-g/14, 8 pictures"), ("vit-256", "ViT-g/14, 256 pictures")):
        file, run = newest(kind)
        time, mode = peer(run)
        rows.append([name, f"**{ms(run['median_ms'])}**", ms(run["min_ms"]), str(run["launches"]),
                     f"{ms(time)} ({mode})" if time else "-", ratio(time, run["median_ms"]) if time else "-", file[:10]])
    return table(["f16, ms", "Tenon", "fastest", "launches", "PyTorch", "ratio", "measured"], rows)


def networks_cpu():
    rows = []
    for kind, name in (("unet", "UNet step of Stable Diffusion 1.5, 512 x 512, batch 2"), ("vae-decode", "VAE decoder, 512 x 512"), ("text-encoder", "text encoder, 1 prompt"),
                       ("vit-1", "ViT-g/14, 1 picture"), ("vit-8", "ViT-g/14, 8 pictures"), ("unet-f32", "UNet step in f32")):
        _, run = newest(f"{kind}-cpu", "AMD-EPYC-Zen5")
        time, mode = peer(run)
        modes = [run["peers"].get(name) for name in ("torch_eager", "torch_compile", "torch_compile_frozen")]
        rows.append([name, f"**{ms(run['median_ms'])}**", ms(run["min_ms"]), f"{run['ratio']:.2f}", *(ms(m) for m in modes), f"{ratio(time, run['median_ms'])} ({mode})"])
    return table(["bf16, ms", "Tenon", "fastest", "of its anchors", "PyTorch, eager", "compiled", "frozen", "against the best"], rows)


def lion():
    _, run = newest("lion")
    names = {"tenon_graph": "in a graph", "tenon": "called from Python", "compile": "torch.compile", "foreach": "foreach", "eager": "eager"}
    modes = [m for m in names if any(m in c["modes"] for c in run["cases"])]
    rows = [[c["name"], *(ms(c["modes"][m]["median_ms"]) if m in c["modes"] else "-" for m in modes),
             f"{max(v['gb_s'] for m, v in c['modes'].items() if m.startswith('tenon')):.0f}"] for c in run["cases"]]
    return table(["f32, ms", *(names[m] for m in modes), "GB/s"], rows)


def e4m3():
    _, run = newest("e4m3")
    rows = [[name.replace("x", " x "), against(c["tenon_ms"], c["torch_ms"], f"{c['tenon_ms'] * 1000:.0f} us") + f", {c['tenon_tflops']:.0f}", f"{c['torch_ms'] * 1000:.0f} us, {c['torch_tflops']:.0f}",
             f"{c['torch_fast_ms'] * 1000:.0f} us, {c['torch_fast_tflops']:.0f}"] for name, c in run["cases"].items()]
    return table(["rows x columns x K; TFLOP/s", "Tenon", "`_scaled_mm`", "with fast accumulation"], rows)


def memory_bound():
    _, run = newest("memory-bound")
    rows = [[name, against(c["tenon_ms"], c["torch_compile_ms"], f"{c['tenon_ms'] * 1000:.1f} us") + f", {c['tenon_gb_s']:.0f} GB/s", f"{c['part_of_copy'] * 100:.0f} %",
             f"{c['torch_compile_ms'] * 1000:.1f} us"] for name, c in run["cases"].items()]
    return table(["function, bf16", "Tenon", "of a copy's speed", "torch.compile"], rows)


def text_cpu(machine):
    _, run = newest("text-cpu", machine)
    torch = {name: min(run["transformers"][kind][name] for kind in ("f32", "bf16")) for name in ("step", "step_16", "prefill")}
    rows = []
    for name, title, tokens in (("step", "a step, 1 text", 1), ("step_16", "a step, 16 texts", 16), ("prefill", "512 tokens of a prompt", 512)):
        for kind, label in (("int8", "i8 in blocks; Q8_0"), ("bf16", "bf16")):
            ours, other = run["tenon"][kind][name], run["llama_cpp"][kind][name]
            share = f"{run['tenon'][kind]['of_memory'] * 100:.0f} %" if name == "step" else "-"
            there = f"{run['llama_cpp'][kind]['of_memory'] * 100:.0f} %" if name == "step" else "-"
            rows.append([title, label, against(ours, other, f"{ms(ours)}") + f" ({tokens / ours * 1e3:.0f})", share,
                         f"{ms(other)} ({tokens / other * 1e3:.0f})", there, f"{ms(torch[name])} ({tokens / torch[name] * 1e3:.0f})"])
    return table(["ms (tokens/s)", "weights", "Tenon", "of memory", "llama.cpp", "of memory", "transformers"], rows)


def z_image():
    _, run = newest("z-image")
    rows = []
    for kind, label in (("bf16", "bf16"), ("e4m3", "e4m3 rows; `_scaled_mm` with a scale a row")):
        ours = run[f"tenon {kind} 1024"]
        modes = {name.split(", ", 1)[1]: value for name, value in run.items() if name.startswith(f"torch {kind} 1024, ")}
        best = min(modes, key=modes.get)
        eager = modes.get("eager")
        rows.append([label, f"**{ms(ours)}**", f"{ms(modes[best])} ({best})", ratio(modes[best], ours), ms(eager)])
    return noted(table(["a step, ms", "Tenon", "PyTorch", "ratio", "eager"], rows), [run.get("note")])


def z_image_cpu(machine):
    _, run = newest("z-image-cpu", machine)
    rows = []
    for size in sorted((key for key in run if key.isdigit()), key=int):
        for kind, label in (("step", "a step"), ("step, text refined before", "the same; PyTorch without its text's refiner"), ("LoRA", "a step of LoRA training")):
            median, fastest = (run[size]["best"][f"{kind}, {what}"] for what in ("ms", "fastest"))
            mode = median["best_peer"].removeprefix("torch ").removeprefix("LoRA ").removesuffix(", text refined before")
            ours = [against(median[t], median["its"], ms(median[t])) if t in median else "-" for t in ("bf16", "e4m3", "f32")]
            rows.append([f"{size} x {size}, {label}", *ours, f"{ms(median['its'])} ({mode})", f"{median['ratio']['bf16']:.2f}x", f"{fastest['ratio']['bf16']:.2f}x"])
    return table(["ms", "Tenon, bf16", "e4m3 rows", "f32", "PyTorch's best", "bf16", "fastest runs"], rows)


def beside(label, ours, own_bytes, other=None, other_bytes=None):
    """A row with our time and, if measured, PyTorch's."""
    gigabytes = lambda n: f"{n / 1e9:.1f} GB" if n else "-"
    theirs = [ms(other), gigabytes(other_bytes), ratio(other, ours)] if other else ["-"] * 3
    return [label, against(ours, other, ms(ours)) if other else ms(ours), gigabytes(own_bytes), *theirs]


def grpo_of_peer(grpo):
    """Milliseconds of PyTorch's two updates and reference, peak bytes of its step, and what to say about them."""
    update = grpo["update, compiled"]
    if "reference, compiled" in grpo:
        return 2 * update + grpo["reference, compiled"], grpo.get("peak bytes, compiled", grpo.get("peak bytes")), None
    # Older files have no time of the reference's own: every update asked it again.
    return 2 * update, grpo["peak bytes"], "GRPO: PyTorch's time has a second pass of the reference, its memory is the most of eager and compiled steps"


def training():
    (_, lora), (_, grpo) = newest("lora"), newest("grpo")
    ours, rollout = grpo["tenon"], grpo["rollout, static cache, compiled"]
    updates, peak, included = grpo_of_peer(grpo)
    peer = lora["torch LoRA bf16 1024, compiled"], lora["torch LoRA bf16 1024, peak bytes"]
    step = lambda name: (lora[f"tenon LoRA {name}"]["step_ms"], lora[f"tenon LoRA {name}"]["device_bytes"])
    rows = [beside("LoRA of Z-Image, 1024 x 1024, bf16", *step("bf16 1024"), *peer),
            beside("the same on e4m3 rows; PyTorch's in bf16", *step("e4m3 1024"), *peer),
            beside("768 x 768 on e4m3 rows", *step("e4m3 768")),
            beside("1024 x 1024 within 5000 MiB of values", *step("e4m3 1024, within 5000 MiB of values")),
            beside("GRPO, rollout", ours["rollout_ms"], None, rollout),
            beside("GRPO, two updates and the reference", ours["updates_ms"], None, updates),
            beside("GRPO, the step", ours["step_ms"], ours["device_bytes"], rollout + updates, peak),
            *(beside(label, *(grpo[f"tenon, --max-memory {name}"][what] for what in ("step_ms", "device_bytes")))
              for name, label in (("3200", "within 3200 MiB of values"), ("2800, no reference", "within 2800 MiB, without a reference")))]
    notes = [f"{name}: {run['note']}" for name, run in (("LoRA", lora), ("GRPO", grpo)) if "note" in run]
    return noted(table(["ms", "Tenon", "memory", "PyTorch, compiled", "memory", "ratio"], rows), [*notes, included])


TABLES = {"z-image": z_image, "z-image-cpu": lambda: z_image_cpu("AMD-EPYC"), "z-image-cpu-zen5": lambda: z_image_cpu("AMD-EPYC-Zen5"), "networks-cpu": networks_cpu, "training": training, "text-cpu": lambda: text_cpu("AMD-EPYC"), "text-cpu-zen5": lambda: text_cpu("AMD-EPYC-Zen5"), "text-cpu-avx2": lambda: text_cpu("AMD-EPYC-AVX2"), "networks": networks, "lion": lion, "e4m3": e4m3, "memory-bound": memory_bound}


def main(arguments):
    text = PAGE.read_text()
    made = {name: make() for name, make in TABLES.items()}
    missing = [name for name in made if f"<!-- table {name} -->" not in text]
    if missing:
        raise SystemExit(f"performance_tables: docs/performance.md has no place for {', '.join(missing)}")
    new = re.sub(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{made[m[2]]}\n{m[3]}", text, flags=re.S)
    if arguments == ["--check"]:
        if new != text:
            raise SystemExit("performance_tables: docs/performance.md is not what bench/results say; run tools/performance_tables.py")
        return
    PAGE.write_text(new)


if __name__ == "__main__":
    main(sys.argv[1:])
