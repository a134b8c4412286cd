#!/usr/bin/env python3
"""Text generation on a CPU: SmolLM2-135M by Tenon, llama.cpp and transformers, in one run, with the same weights.

    python bench/text_peers.py --tenon PATH/TO/tenon [--threads 2] [--folder WORK] [--json FILE]

The environment is that of bench/peers/setup.sh and bench/peers/text_requirements.txt. Weights are those of the file
that tools/get_smollm2.sh fetches, in bf16 and rounded to Q8_0 by gguf's own quantiser; both files are written to
--folder once. A step is a token after 512 in the cache, for one text or 16 side by side, without sampling; `prefill` is
512 tokens of a prompt at once. Medians. `gb_s` is the bytes of the matrices that a step reads divided by its time,
`of_memory` the ratio of that to the memory bandwidth of the same threads, the median of three measurements in the run.
transformers runs in bf16 and f32: the faster one counts.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from gguf_types import rewrite  # noqa: E402

CACHE = pathlib.Path(os.environ.get("TENON_CACHE_DIR") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tenon")
MODEL = CACHE / "fetched/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BEHIND, BATCH, RUNS, PREFILLS = 512, 16, 40, 5
MATRICES = 134_479_872  # elements that a step multiplies by: all matrices, including the head
BYTES = {"bf16": 2, "int8": 34 / 32}
TEXT = "Once upon a time there was a small village by the sea. Every morning the people of the village"


def median_ms(call, runs):
    call()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def read_gb_s(threads):
    """Memory bandwidth of `threads` threads, the median of 40 reads (some of a virtual machine were twice as fast)."""
    import torch
    torch.set_num_threads(threads)
    x = torch.ones(1 << 27, dtype=torch.float32)
    return x.numel() * 4 / median_ms(x.sum, 40) / 1e6


def of_tenon(tenon, files, threads):
    out = {}
    for kind, file in files.items():
        common = ["-m", str(file), "--type", kind, "--threads", str(threads)]
        parts = {}
        for name, part, more in (("step", "decode", ["--runs", str(RUNS)]), ("step_16", "decode", ["--batch-size", str(BATCH), "--runs", str(RUNS)]),
                                 ("prefill", "prefill", ["--runs", str(PREFILLS)])):
            run = subprocess.run([tenon, "bench", *common, "--part", part, "--context", str(2 * BEHIND), "--no-anchors", "--no-unfused", "--json", *more],
                                 check=True, capture_output=True, text=True)
            parts[name] = json.loads(run.stdout)["median_ms"]
        run = subprocess.run([tenon, "complete", TEXT, *common, "--temperature", "0", "--max-tokens", "128", "--json"],
                             check=True, capture_output=True, text=True)
        parts["complete_tokens_s"] = float(re.search(r"then ([\d.]+) tokens/s", run.stderr)[1])
        out[kind] = parts
    return out


def of_llama_cpp(files, threads):
    import llama_cpp as ll
    log = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(log, ctypes.c_void_p(0))
    ll.llama_backend_init()
    out = {"system": ll.llama_print_system_info().decode()}
    for kind, file in files.items():
        model = ll.llama_model_load_from_file(str(file).encode(), ll.llama_model_default_params())
        options = ll.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch, options.n_seq_max = BATCH * 2 * BEHIND, BEHIND, BEHIND, BATCH
        options.n_threads = options.n_threads_batch = threads
        context = ll.llama_init_from_model(model, options)
        memory = ll.llama_get_memory(context)
        batch = ll.llama_batch_init(BEHIND, 0, 1)

        def decode(rows):  # (token, position, sequence) each; scores for the last token of every sequence
            for i, (token, position, sequence) in enumerate(rows):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position, 1, sequence
                batch.logits[i] = i + 1 == len(rows) or rows[i + 1][2] != sequence
            batch.n_tokens = len(rows)
            assert ll.llama_decode(context, batch) == 0

        def prefill(sequence=0):
            ll.llama_memory_seq_rm(memory, sequence, -1, -1)
            decode([(100 + i, i, sequence) for i in range(BEHIND)])

        parts = {"prefill": median_ms(prefill, PREFILLS)}
        for name, count in (("step", 1), ("step_16", BATCH)):
            for sequence in range(count):
                prefill(sequence)
            at = iter(range(BEHIND, 2 * BEHIND))

            def step():
                position = next(at)
                decode([(7, position, s) for s in range(count)])

            parts[name] = median_ms(step, RUNS)
        out[kind] = parts
        ll.llama_batch_free(batch)
        ll.llama_free(context)
        ll.llama_model_free(model)
    return out


def of_transformers(file, threads):
    import torch
    import transformers
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    out = {"versions": f"transformers {transformers.__version__}, torch {torch.__version__}"}
    for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        model = model.to(dtype)

        def run(count, tokens, cache=None):
            ids = torch.full((count, tokens), 100)
            with torch.inference_mode():
                return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

        parts = {"prefill": median_ms(lambda: run(1, BEHIND), 3)}
        for name, count in (("step", 1), ("step_16", BATCH)):
            cache = run(count, BEHIND).past_key_values
            parts[name] = median_ms(lambda: run(count, 1, cache), 12)
        out[kind] = parts
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenon", required=True, help="the command line tool")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path, default=CACHE / "peer-models")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=["tenon", "llama_cpp", "transformers"],
                        help="measures these alone and adds them to what --json holds, where a run has to be short")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    files = {"bf16": a.folder / "bf16.gguf", "int8": a.folder / "q8_0.gguf"}
    for kind, path in files.items():
        if not path.exists():
            rewrite(MODEL, path, path.stem)
    result = json.loads(a.json.read_text()) if a.json and a.json.exists() and a.only else {}
    measure = {"tenon": lambda: of_tenon(a.tenon, files, a.threads), "llama_cpp": lambda: of_llama_cpp(files, a.threads),
               "transformers": lambda: of_transformers(MODEL, a.threads)}
    for peer in a.only or measure:
        result.setdefault("memory_reads_gb_s", {})[peer] = read_gb_s(a.threads)
        result[peer] = measure[peer]()
    result["memory_gb_s"] = statistics.median(result["memory_reads_gb_s"].values())
    for peer in ("tenon", "llama_cpp"):
        for kind, parts in result.get(peer, {}).items():
            if kind in BYTES:
                parts["gb_s"] = MATRICES * BYTES[kind] / parts["step"] / 1e6
                parts["of_memory"] = parts["gb_s"] / result["memory_gb_s"]
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    result.update({"threads": a.threads, "machine": machine, "date": str(datetime.date.today())})
    text = json.dumps(result, indent=1)
    print(text)
    if a.json:
        a.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
