#!/usr/bin/env python3
"""PyTorch's attention backends on the cells of `kiln bench flash`, and how kiln compares with them.

    build-cuda/kiln bench flash --table tokens16k --variant auto --json > rows.json
    python3 bench/peers/torch_attention.py --table tokens16k --kiln rows.json
    python3 bench/peers/torch_attention.py --table tokens16k --rows peers.jsonl   # for kiln report --rows ... --peers

tables    grid         batch 1, one head, causal, seq 128..65536, d 16..128, bf16 and fp32
          tokens16k    16,384 tokens, 2048 wide (2000 for heads of 80), causal and full
          steps        what training steps call; q, k, v are columns of one tensor
          leaderboard  16 heads of 64, 16,384 tokens, causal; ten seconds of calls after one of warm-up
backends  cudnn, fa2 (FlashAttention-2), fa2_det (the same with torch.use_deterministic_algorithms), efficient (memory-
          efficient; the one for fp32), math (scores in memory; where they take at most 2 GiB)
          steps has each twice: alone the gradients of q, k and v are left apart; `+stack` packs them as a model needs
          them, which kiln's gradients are from the start.

Tensors lie as kiln's do: [batch, tokens, heads, width]. FLOPs are counted as kiln counts them: two matmuls over the seen
pairs forward, five backward. Before every call a buffer of four times the L2 cache is written, outside the marks. Each
pass is timed as a captured CUDA graph and as calls queued behind a hold, and the faster median counts; `how` says
which. Results are compared with `math` in fp64 on a smaller shape first. Each backend runs in a process of its own, so
that one that fails does not end the others; what a backend cannot do is a row that says why.

Ratios are kiln's speed over the peer's: above 1 kiln is faster. Exit status 1 when no cell could be measured, 3 where
there is no PyTorch or no GPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings

import peer_rows
from torch_here import torch_or_none

PASSES = ("forward", "backward", "both")
MATMULS = {"forward": 2, "backward": 5, "both": 7}
BACKENDS = {"bf16": ["cudnn", "fa2", "fa2_det", "math"], "fp16": ["cudnn", "fa2", "fa2_det", "math"],
            "fp32": ["efficient", "math"]}  # fmt: skip
KNOWN = ["cudnn", "fa2", "fa2_det", "efficient", "math"]
NAMES = {"cudnn": "cuDNN", "fa2": "FlashAttention-2", "fa2_det": "FlashAttention-2, deterministic",
         "efficient": "memory-efficient", "math": "math"}  # fmt: skip
ALLOWED = 0.03  # of a result, relative to fp64
MATH_BYTES = 2 << 30
HOLD = 8_000_000  # cycles, about 5 ms: while the host queues a group of calls
GROUP = 10


# --- cells -----------------------------------------------------------------------------------------------------------


def cell(batch, heads, seq, d, dtype, causal=True, packed=False):
    return {"dtype": dtype, "batch": batch, "heads": heads, "seq": seq, "d": d, "causal": causal, "packed": packed}


def cells_of(table, dtypes):
    cells = []
    for t in dtypes or (["bf16", "fp32"] if table == "grid" else ["bf16"]):
        if table == "grid":
            cells += [cell(1, 1, 128 << i, d, t) for d in (16, 32, 64, 128) for i in range(10)]
        elif table == "tokens16k":
            cells += [cell(16384 // seq, 2048 // d, seq, d, t, causal)
                      for d in (64, 80, 128) for causal in (True, False) for seq in (1024, 4096, 16384)]  # fmt: skip
        elif table == "steps":
            shapes = ((4, 12, 512, 64), (4, 25, 512, 64), (4, 32, 512, 80), (32, 12, 1024, 64))
            cells += [cell(*shape, t, True, True) for shape in shapes]
        else:
            cells.append(cell(1, 16, 16384, 64, t))
    return cells


def flops_of(c, what):
    pairs = c["seq"] * (c["seq"] + 1) // 2 if c["causal"] else c["seq"] ** 2
    return MATMULS[what] * 2 * c["d"] * pairs * c["batch"] * c["heads"]


def key_of(c):
    return tuple(c[k] for k in ("dtype", "batch", "heads", "seq", "d", "causal", "packed"))


# --- one backend, in its own process ---------------------------------------------------------------------------------


class Calls:
    """Forward and backward of one cell by one backend."""

    def __init__(self, torch, c, backend, stack=False):
        from torch.nn.attention import SDPBackend

        self.torch, self.causal, self.stack = torch, c["causal"], stack
        self.backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION,
                        "fa2_det": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
                        "math": SDPBackend.MATH}[backend]  # fmt: skip
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
                 "fp64": torch.float64}[c["dtype"]]  # fmt: skip
        B, T, H, D = c["batch"], c["seq"], c["heads"], c["d"]
        if c["packed"]:
            whole = torch.randn(B, T, 3, H, D, device="cuda", dtype=dtype)
            tensors = [whole] if stack else [t.transpose(1, 2) for t in whole.unbind(2)]
        else:
            tensors = [torch.randn(B, T, H, D, device="cuda", dtype=dtype).transpose(1, 2) for _ in range(3)]
        self.leaves = [t.detach().requires_grad_() for t in tensors]
        self.given = torch.randn(B, T, H, D, device="cuda", dtype=dtype).transpose(1, 2)

    def forward(self):
        from torch.nn.attention import sdpa_kernel

        q, k, v = (t.transpose(1, 2) for t in self.leaves[0].unbind(2)) if self.stack else self.leaves
        with sdpa_kernel([self.backend]):
            return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

    def backward(self, out, keep):
        return self.torch.autograd.grad(out, self.leaves, self.given, retain_graph=keep)


def check(torch, c, backend):
    """Throws where results are far from those of `math` in fp64, on a shape of at most two heads and 512 tokens. The
    largest error otherwise, and the shape."""
    small = dict(c, batch=1, heads=min(2, c["heads"]), seq=min(512, c["seq"]), packed=False)
    calls, exact = Calls(torch, small, backend), Calls(torch, dict(small, dtype="fp64"), "math")
    exact.leaves = [leaf.detach().double().requires_grad_() for leaf in calls.leaves]
    exact.given = calls.given.double()
    out, right = calls.forward(), exact.forward()
    results = [out, *calls.backward(out, False)]
    largest = 0.0
    for name, a, b in zip(("o", "dq", "dk", "dv"), results, [right, *exact.backward(right, False)]):
        error = ((a.double() - b).norm() / b.norm()).item()
        if not error < ALLOWED:
            raise RuntimeError("%s is off by %.1e" % (name, error))
        largest = max(largest, error)
    return {"relative_error": largest, "checked_shape": {k: small[k] for k in ("batch", "heads", "seq", "d")}}


def samples_of(torch, run, flushed, order):
    times, begin = [], time.perf_counter()
    while True:
        marks = []
        if hasattr(torch.cuda, "_sleep"):
            torch.cuda._sleep(HOLD)
        for _ in range(GROUP):
            flushed.zero_()
            pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            pair[0].record()
            run()
            pair[1].record()
            marks.append(pair)
        torch.cuda.synchronize()
        times += [a.elapsed_time(b) for a, b in marks]
        enough = len(times) >= order["iters"] and sum(times) >= 1e3 * order["min_seconds"]
        if enough or time.perf_counter() - begin > order["max_seconds"]:
            return times


def queued_runs(calls):
    out = calls.forward()
    return {"forward": calls.forward, "backward": lambda: calls.backward(out, True),
            "both": lambda: calls.backward(calls.forward(), False)}  # fmt: skip


def captured_runs(torch, calls):
    """Three graphs. Backward is captured on the output that the first one writes, in the same pool."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            calls.backward(calls.forward(), False)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    pool, graphs, kept = torch.cuda.graph_pool_handle(), {}, []
    for name in PASSES:
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name], pool=pool):
            if name == "forward":
                kept.append(calls.forward())
            elif name == "backward":
                kept.append(calls.backward(kept[0], True))
            else:
                kept.append(calls.backward(calls.forward(), False))
    graphs["forward"].replay()  # what backward reads
    torch.cuda.synchronize()
    runs = {name: graph.replay for name, graph in graphs.items()}
    runs["kept"] = kept  # the graphs write there: not to be given back before they are
    return runs


def measure(torch, c, backend, stack, flushed, order):
    if backend == "math" and c["batch"] * c["heads"] * c["seq"] ** 2 * 4 > MATH_BYTES:
        raise RuntimeError("its scores would take more than 2 GiB")
    checked = check(torch, c, backend)
    calls = Calls(torch, c, backend, stack)
    row = {"ms": {}, "how": {}, "samples": {}, "checked": checked}
    ways = [("queued", lambda: queued_runs(calls)), ("graph", lambda: captured_runs(torch, calls))]
    for way, make in ways:
        try:
            runs = make()
        except RuntimeError as why:
            if way == "queued":
                raise
            row["no_graph"] = " ".join(str(why).split())[:150]
            continue
        for name in order["passes"]:
            samples_of(torch, runs[name], flushed, dict(order, iters=1, min_seconds=order["warmup"], max_seconds=10))
            samples = samples_of(torch, runs[name], flushed, order)
            ms = statistics.median(samples)
            if ms < row["ms"].get(name, float("inf")):
                row["ms"][name], row["how"][name], row["samples"][name] = ms, way, samples
        del runs
    return row


def worker(order):
    backend = order["backend"]
    if backend == "fa2_det":  # without it cuBLAS, which the check uses, refuses
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    if backend == "fa2_det":
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # else every result is filled before it is written
    torch.manual_seed(0)
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    flushed = torch.empty(4 * cache, dtype=torch.uint8, device="cuda")
    for c in order["cells"]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                answer = measure(torch, c, backend, order["stack"], flushed, order)
            except torch.OutOfMemoryError as why:
                answer = {"error": "out of memory: " + " ".join(str(why).split())[:120], "status": "oom"}
            except RuntimeError as why:
                reasons = [" ".join(str(w.message).split()) for w in told]  # sdpa_kernel's reasons are warnings
                reasons = [r.split(" (Triggered")[0][:150] for r in reasons]
                answer = {"error": "; ".join([" ".join(str(why).split())[:150]] + reasons[-3:])}
        torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)


def answers_of(order, limit):
    """One answer for each cell. A worker that dies has the cell it died in to answer for; another does the rest."""
    cells, answers, fruitless = list(order["cells"]), [], 0
    while len(answers) < len(cells) and fruitless < 2:
        command = [sys.executable, __file__, "--worker", json.dumps(dict(order, cells=cells[len(answers) :]))]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit)
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            out, why = done.stdout, lines[-1][:200] if lines else "exit status %d" % done.returncode
        except subprocess.TimeoutExpired as late:
            out = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            why, fruitless = "not done after %d s" % limit, 2
        new = [json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
        answers += new
        if len(answers) < len(cells):
            answers.append({"error": why, "status": "timeout" if why.startswith("not done after") else "failed"})
        fruitless = fruitless if new else fruitless + 1
    return answers + [{"error": "not tried: " + why, "status": "skipped"}] * (len(cells) - len(answers))


# --- the table -------------------------------------------------------------------------------------------------------


def stored_rows(table, row, passes, version, host):
    """For --rows: a line for each pass of a cell, or the one that says why there is none."""
    what = {key: row[key] for key in ("dtype", "causal", "packed", "batch", "heads", "seq", "d")}
    backend, _, stack = row["backend"].partition("+")
    peer = (NAMES[backend], "gradients gathered" if stack else "", version)
    command = "bench leaderboard flash" if table == "leaderboard" else "bench flash"
    what = dict(table=table, op="attention", **what)
    if "error" in row:
        # What a backend cannot do it says in its own words; the check says of a result that it is off.
        wrong = "is off by" in row["error"]
        status = row.get("status") or ("failed" if wrong else "unsupported")
        gate = "failed" if wrong else "not-verified"
        return [peer_rows.row(command, {**what, "pass": p}, peer, host, status, gate, reason=row["error"]) for p in passes]
    rows = []
    for p in passes:
        timing, flops = peer_rows.timing_of(row["samples"][p]), flops_of(row, p)
        rows.append(peer_rows.row(command, {**what, "pass": p}, peer, host, "ok", "passed", how=row["how"][p],
                                  allowed_error=ALLOWED, **row["checked"], **timing, flops=flops,
                                  tflops=flops / timing["p50_ms"] / 1e9))  # fmt: skip
    return rows


def kiln_rows(path, variant, passes):
    """Milliseconds by cell and pass; `variant` auto is the one a run takes."""
    with open(path, encoding="utf-8") as file:
        page = json.load(file)
    rows = {}
    for row in page["rows"]:
        mine = row["auto"] if variant == "auto" else row["variant"] == variant
        if mine and all(p in row.get("passes", {}) for p in passes):
            rows[key_of(row)] = dict({p: row["passes"][p]["p50_ms"] for p in passes}, variant=row["variant"])
    return rows


def head_of(c, backend):
    form = ("causal" if c["causal"] else "full") + (" packed" if c["packed"] else "")
    return "%-5s %-13s %5d %5d %6d %4d  %-15s" % (c["dtype"], form, c["batch"], c["heads"], c["seq"], c["d"], backend)


def line_of(row, passes):
    head = head_of(row, row["backend"])
    if "error" in row:
        return head + "  " + row["error"]
    text = head + "".join("%10.4f" % row["ms"][p] for p in passes)
    text += "".join("%10.1f" % (flops_of(row, p) / row["ms"][p] / 1e9) for p in passes)
    text += "  %-6s" % "/".join(sorted(set(row["how"].values())))
    if row.get("kiln"):
        text += "".join("%10.4f" % row["kiln"][p] for p in passes)
        text += "".join("%8.2f" % (row["ms"][p] / row["kiln"][p]) for p in passes)
        text += "  " + row["kiln"]["variant"]
    return text


def summary_of(rows, passes):
    """For each backend how often kiln is ahead, and its worst cell."""
    lines = []
    for backend in dict.fromkeys(r["backend"] for r in rows):
        for p in passes:
            cells = [(r["ms"][p] / r["kiln"][p], r) for r in rows if r["backend"] == backend and r.get("kiln")]
            if not cells:
                continue
            worst, at = min(cells, key=lambda pair: pair[0])
            lines.append("%-15s %-9s kiln is ahead in %d of %d cells, median %.2fx; least %.2fx at %s" % (
                backend, p, sum(ratio >= 1 for ratio, _ in cells), len(cells),
                statistics.median(ratio for ratio, _ in cells), worst,
                " ".join(head_of(at, "").split())))  # fmt: skip
    return lines


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", default="grid", choices=["grid", "tokens16k", "steps", "leaderboard"])
    parser.add_argument("--backends", help="some of %s (default: those made for the dtype)" % ", ".join(KNOWN))
    parser.add_argument("--dtype", help="some of bf16, fp16, fp32 (default as the table has it)")
    parser.add_argument("--seq", help="only cells of these lengths")
    parser.add_argument("--d", help="only cells of these widths")
    parser.add_argument("--iters", type=int, default=50, help="timed calls (default 50)")
    parser.add_argument("--seconds", type=float, default=2, help="time limit for one pass of a cell (default 2)")
    parser.add_argument("--kiln", help="what `kiln bench flash --json` or `leaderboard flash --json` printed")
    parser.add_argument("--variant", default="auto", help="of kiln, among its rows (default auto)")
    parser.add_argument("--limit", type=float, default=550, help="seconds for a backend (default 550)")
    parser.add_argument("--json", help="write the table to this file as well")
    parser.add_argument("--rows", help="append a line of JSON for each pass to this file: what kiln report --peers reads")
    arguments = parser.parse_args()
    dtypes = arguments.dtype.split(",") if arguments.dtype else None
    for t in dtypes or []:
        if t not in BACKENDS:
            parser.error("--dtype is '%s'; expected some of %s" % (t, ", ".join(BACKENDS)))
    wanted = arguments.backends.split(",") if arguments.backends else None
    for b in wanted or []:
        if b not in KNOWN:
            parser.error("--backends is '%s'; expected some of %s" % (b, ", ".join(KNOWN)))
    cells = cells_of(arguments.table, dtypes)
    for name in ("seq", "d"):
        if getattr(arguments, name):
            kept = {int(n) for n in getattr(arguments, name).split(",")}
            cells = [c for c in cells if c[name] in kept]
    if not cells:
        parser.error("no cell is left")
    board = arguments.table == "leaderboard"
    passes = ["both"] if board else list(PASSES)
    kiln = kiln_rows(arguments.kiln, arguments.variant, passes) if arguments.kiln else {}
    if arguments.kiln and not any(key_of(c) in kiln for c in cells):
        parser.error("--kiln %s holds no row of %s for these cells" % (arguments.kiln, arguments.variant))
    torch = torch_or_none()
    if torch is None:
        return 3
    order = {"passes": passes, "iters": arguments.iters, "warmup": 1 if board else 0,
             "min_seconds": 10 if board else 0, "max_seconds": 30 if board else arguments.seconds}  # fmt: skip
    short = [{"forward": "fwd", "backward": "bwd", "both": "both"}[p] for p in passes]
    titles = "".join("%10s" % (p + " ms") for p in short) + "".join("%10s" % (p + " TF/s") for p in short)
    titles += "  %-6s" % "how"
    if kiln:
        titles += "".join("%10s" % ("kiln " + p) for p in short) + "".join("%8s" % (p + " x") for p in short)
        titles += "  variant"
    print("%-5s %-13s %5s %5s %6s %4s  %-15s" % ("dtype", "form", "batch", "heads", "seq", "d", "backend") + titles)
    rows, version, host = [], peer_rows.version_of(torch), peer_rows.host_of(torch)
    for backend in KNOWN:
        mine = [c for c in cells if backend in (wanted or BACKENDS[c["dtype"]])]
        for stack in (False, True) if arguments.table == "steps" and mine else (False,) if mine else ():
            answers = answers_of(dict(order, backend=backend, stack=stack, cells=mine), arguments.limit)
            for c, answer in zip(mine, answers):
                row = dict(c, backend=backend + ("+stack" if stack else ""), **answer)
                if "ms" in row and key_of(c) in kiln:
                    row["kiln"] = kiln[key_of(c)]
                rows.append(row)
                if arguments.rows:
                    peer_rows.append(arguments.rows, stored_rows(arguments.table, row, passes, version, host))
                print(line_of(row, passes), flush=True)
    for line in summary_of(rows, passes):
        print(line)
    if arguments.json:
        with open(arguments.json, "w", encoding="ascii") as file:
            json.dump(rows, file, indent=1)
    return 0 if any("ms" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
