#!/usr/bin/env python3
"""PyTorch's kernels on the reference shapes of `kiln bench op`, eager and compiled, timed under CUDA graphs.

    python3 bench/peers/torch_kernels.py [--only rms_norm,swiglu] [--json rows.json]
    python3 bench/peers/torch_kernels.py --modes eager,compile,liger --liger Liger-Kernel/src

RMSNorm, SwiGLU and RoPE (q and k) on 8192 tokens x 4096 (MLP 11008), bf16; the head with its cross-entropy for
vocabularies of 32,000 and 151,936; AdamW over 1.0 billion fp32 parameters. GB/s are of the bytes that must move: every
input read once and every output written once, whatever the implementation moves besides; the same bytes as kiln's cost
functions state, so the columns compare with `kiln bench op`.

Each row is captured as a CUDA graph of several calls on alternating sets of tensors, so neither Python nor the cache
is in the time; the one row that cannot be captured is timed as it is and says so. `liger` takes Liger-Kernel's functions from
the folder that --liger names, or from the installed package. Exit status 1 when a row failed, 3 where there is no PyTorch
or no GPU.
"""

import argparse
import json
import statistics
import sys

from torch_here import torch_or_none

ROWS, COLS, FF, HEADS = 8192, 4096, 11008, 32
SETS = 4  # tensors of a call times this are far more than the cache holds


def rms_norm(torch, F):
    weight = torch.ones(COLS, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    def call(x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight
    shape = [(ROWS, COLS)]
    moved = ROWS * COLS * 2
    return call, shape, [weight], 2 * moved, 2 * moved + 3 * moved  # x, y; then x, dy, dx


def swiglu(torch, F):
    moved = ROWS * FF * 2
    return (lambda gate, up: F.silu(gate) * up), [(ROWS, FF)] * 2, [], 3 * moved, 3 * moved + 5 * moved


def rope(torch, F):
    D = COLS // HEADS
    angle = torch.arange(ROWS, device="cuda")[:, None] * 10000.0 ** (-torch.arange(D // 2, device="cuda")[None, :] * 2.0 / D)
    angle = torch.cat((angle, angle), dim=-1)[:, None, :]
    cos, sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
    def turned(x):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin
    moved = ROWS * COLS * 2 * 2
    def call(q, k):
        return turned(q), turned(k)
    call.tables = cos.view(1, ROWS, D), sin.view(1, ROWS, D)
    return call, [(ROWS, HEADS, D)] * 2, [], 2 * moved, 4 * moved


def head(vocab):
    def make(torch, F):
        weight = (torch.randn(vocab, COLS, device="cuda") * COLS**-0.5).to(torch.bfloat16).requires_grad_()
        targets = torch.randint(0, vocab, (ROWS,), device="cuda")
        def call(x):
            return F.cross_entropy(F.linear(x, weight).float(), targets)
        call.targets = targets
        # Compute bound: ms and memory are what counts.
        return call, [(ROWS, COLS)], [weight], 0, 0
    return make


def liger_call(name, weights, call):
    """Liger's function in place of `call`, on the same tensors."""
    from liger_kernel import ops
    if name == "rms_norm":
        return lambda x: ops.LigerRMSNormFunction.apply(x, weights[0], 1e-5)
    if name == "swiglu":
        return lambda gate, up: ops.LigerSiLUMulFunction.apply(gate, up)
    if name == "rope":  # [batch, heads, tokens, width], as a view of what the projection wrote
        cos, sin = call.tables
        def turned(q, k):
            q, k = (t.view(1, ROWS, HEADS, -1).transpose(1, 2) for t in (q, k))
            return ops.LigerRopeFunction.apply(q, k, cos, sin)
        return turned
    return lambda x: ops.LigerFusedLinearCrossEntropyFunction.apply(x, weights[0], call.targets)[0]


CASES = {"rms_norm": (rms_norm, SETS), "swiglu": (swiglu, SETS), "rope": (rope, SETS),
         "head_32000": (head(32000), 1), "head_151936": (head(151936), 1)}  # fmt: skip


def samples_of(torch, run, count):
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def timed(torch, work, calls, count=30, capture=True):
    """Milliseconds of one call, and whether they were taken under a graph. `work` makes `calls` of them."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    run = work
    if capture:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        run = graph.replay
    for _ in range(3):
        run()
    return statistics.median(samples_of(torch, run, count)) / calls


def run_case(torch, name, mode):
    F = torch.nn.functional
    make, sets = CASES[name]
    call, shapes, weights, forward_bytes, both_bytes = make(torch, F)
    if mode == "compile":
        call = torch.compile(call)
    if mode == "liger":
        call = liger_call(name, weights, call)
    inputs = [[torch.randn(s, device="cuda").to(torch.bfloat16).requires_grad_() for s in shapes] for _ in range(sets)]
    with torch.no_grad():
        outputs = call(*inputs[0])
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    grads = [torch.randn_like(o) if o.dim() else torch.ones_like(o) for o in outputs]

    # Results live until their set's next round: memory freed at once would be written again while it is still in
    # the cache, and never reach the memory that is being measured.
    kept = [None] * sets

    def forward():
        with torch.no_grad():
            for i, one in enumerate(inputs):
                kept[i] = call(*one)

    def both():
        for i, one in enumerate(inputs):
            kept[i] = None
            for t in one + weights:
                t.grad = None
            kept[i] = call(*one)
            torch.autograd.backward(kept[i] if isinstance(kept[i], tuple) else (kept[i],), grads)

    rows = []
    captured = not (mode == "liger" and name.startswith("head"))  # it asks the host how many targets count
    for what, work, moved in (("forward", forward, forward_bytes), ("forward+backward", both, both_bytes)):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        ms = timed(torch, work, sets, capture=captured)
        rows.append({"kernel": name, "mode": mode, "pass": what, "ms": ms,
                     "gb_per_s": moved / ms / 1e6 if moved else None, "graph": captured,
                     "extra_mib": (torch.cuda.max_memory_allocated() - before) / 2**20})  # fmt: skip
    return rows


def run_adamw(torch, fused):
    count = 1_000_000_000
    p = torch.randn(count, device="cuda")
    p.grad = torch.randn(count, device="cuda")
    adamw = torch.optim.AdamW([p], lr=1e-4, fused=fused, capturable=True)
    ms = timed(torch, adamw.step, 1, 10)
    # Reads weight, gradient and both moments; writes weight and moments.
    return [{"kernel": "adamw_1b", "mode": "fused" if fused else "eager", "pass": "forward", "ms": ms,
             "gb_per_s": 28.0 * count / ms / 1e6, "graph": True, "extra_mib": 0.0}]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(CASES) + ",adamw", help="kernels, by name")
    parser.add_argument("--modes", default="eager,compile", help="some of eager, compile, liger")
    parser.add_argument("--liger", help="folder that holds liger_kernel, where it is not installed")
    parser.add_argument("--json", help="write the rows to this file as well")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    for name in wanted:
        if name not in CASES and name != "adamw":
            parser.error("--only is '%s'; expected some of %s, adamw" % (name, ", ".join(CASES)))
    torch = torch_or_none()
    if torch is None:
        return 3
    if arguments.liger:
        sys.path.insert(0, arguments.liger)
    torch.manual_seed(0)
    print("%-12s %-8s %-17s %9s %9s %10s  %s" % ("kernel", "mode", "pass", "ms", "GB/s", "extra MiB", "graph"))
    rows, failed = [], False
    for name in wanted:
        for mode in arguments.modes.split(","):
            if name == "adamw" and mode == "liger":
                continue  # it has none
            try:
                new = run_adamw(torch, mode == "compile") if name == "adamw" else run_case(torch, name, mode)
            except (ImportError, RuntimeError, torch.OutOfMemoryError) as why:
                print("%-12s %-8s %s" % (name, mode, " ".join(str(why).split())[:150]))
                failed, new = True, []
            for r in new:
                rate = "%9.0f" % r["gb_per_s"] if r["gb_per_s"] else "%9s" % "-"
                print("%-12s %-8s %-17s %9.3f %s %10.0f  %s" % (
                    r["kernel"], r["mode"], r["pass"], r["ms"], rate, r["extra_mib"], "yes" if r["graph"] else "no"),
                    flush=True)  # fmt: skip
            rows += new
            torch.compiler.reset()
            torch.cuda.empty_cache()
    if arguments.json:
        with open(arguments.json, "w", encoding="ascii") as file:
            json.dump(rows, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
