#!/usr/bin/env python3
"""PyTorch's whole training step on a GPU, on the shapes of `kiln bench step`.

    python3 bench/peers/torch_step.py --sizes small,medium --modes eager,compile,graph --rows rows.jsonl
    kiln report --rows runs/results.jsonl --peers rows.jsonl

The model is the one kiln trains: pre-norm blocks of RMSNorm, rotary embedding (rotate-half), causal attention and SwiGLU,
no biases, untied head, mean cross-entropy. A step is forward, backward and AdamW, without clipping.

modes     naive    every op as a textbook writes it: scores in memory, AdamW parameter by parameter
          eager    scaled_dot_product_attention, F.rms_norm, packed projections, fused AdamW
          compile  the same through torch.compile
          graph    the same, and forward, backward and AdamW captured as one CUDA graph (capturable AdamW)
policy    master   bf16 weights and matmuls, fp32 master weights and moments (kiln's bf16)
          autocast fp32 weights, matmuls cast by torch.autocast
          pure     bf16 weights, gradients and moments (kiln's pure-bf16)

Each mode and size runs in a process of its own with a time limit, so that one that runs out of memory or compiles for
ever is a row and not the end. Times come from CUDA events around each step, queued without the host waiting in between.
After that two blocks of the same width are compared with `naive` in fp32 on the same weights, loss and every gradient, by the
same code (but for the graph's capture): the row's gate. A row whose gate did not pass enters no table.
Exit status 1 when a row could not be measured or did not pass, 3 where there is no PyTorch or no GPU.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time

import peer_rows
from torch_here import torch_or_none

# d_model, d_ff, layers, heads: as `kiln sizes` has them.
SIZES = {
    "small": (768, 3072, 12, 12),
    "medium": (1024, 4096, 24, 16),
    "large": (1280, 5120, 36, 20),
    "xl25": (1600, 6400, 48, 25),
    "2.7b": (2560, 10240, 32, 32),
}
MODES = ["naive", "eager", "compile", "graph"]
CHECK = {"batch": 1, "ctx": 128, "layers": 2}
# How far the loss and each gradient may be from fp32, relative: a wrong mask, rotation or factor is off by more.
LIMITS = {"bf16": (0.01, 0.2), "tf32": (0.003, 0.03), "fp32": (1e-4, 1e-3)}


def param_count(size, vocab, layers=None):
    c, f, all_layers, _ = SIZES[size]
    layers = layers or all_layers
    return 2 * vocab * c + layers * (4 * c * c + 3 * c * f + 2 * c) + c


def model_flops(size, batch, ctx, vocab):
    """6 x weights that are multiplied x tokens, and causal attention with its backward counted twice."""
    c, _, layers, _ = SIZES[size]
    return (6 * (param_count(size, vocab) - vocab * c) + 6 * layers * c * ctx) * batch * ctx


# --- one mode of one size, in its own process ------------------------------------------------------------------------


def build_model(torch, size, ctx, vocab, naive, layers=None):
    nn, F = torch.nn, torch.nn.functional
    C, FF, L, H = SIZES[size]
    L = layers or L
    D = C // H

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(C))

        def forward(self, x):
            if not naive:
                return F.rms_norm(x, (C,), self.weight, 1e-5)
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight

    def turned(x, cos, sin):  # [B, T, H, D]
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = RmsNorm(), RmsNorm()
            if naive:
                self.q, self.k, self.v = (nn.Linear(C, C, bias=False) for _ in range(3))
                self.gate, self.up = (nn.Linear(C, FF, bias=False) for _ in range(2))
            else:
                self.qkv = nn.Linear(C, 3 * C, bias=False)
                self.gate_up = nn.Linear(C, 2 * FF, bias=False)
            self.out = nn.Linear(C, C, bias=False)
            self.down = nn.Linear(FF, C, bias=False)

        def forward(self, x, cos, sin, mask):
            B, T, _ = x.shape
            h = self.attention_norm(x)
            if naive:
                q, k, v = (p(h).view(B, T, H, D) for p in (self.q, self.k, self.v))
            else:
                q, k, v = self.qkv(h).view(B, T, 3, H, D).unbind(2)
            cos, sin = cos.to(q.dtype), sin.to(q.dtype)
            q, k, v = turned(q, cos, sin).transpose(1, 2), turned(k, cos, sin).transpose(1, 2), v.transpose(1, 2)
            if naive:
                scores = (q @ k.transpose(-1, -2)) / D**0.5
                o = torch.softmax(scores.masked_fill(mask, float("-inf")).float(), dim=-1).to(v.dtype) @ v
            else:
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(o.transpose(1, 2).reshape(B, T, C))
            h = self.mlp_norm(x)
            gate, up = (self.gate(h), self.up(h)) if naive else self.gate_up(h).chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab, C)
            self.blocks = nn.ModuleList(Block() for _ in range(L))
            self.norm = RmsNorm()
            self.head = nn.Linear(C, vocab, bias=False)

        def forward(self, tokens, targets, cos, sin, mask):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, cos, sin, mask)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, vocab).float(), targets.view(-1))

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Llama()
        angle = torch.arange(ctx)[:, None] * 10000.0 ** (-torch.arange(D // 2)[None, :] * 2.0 / D)
        angle = torch.cat((angle, angle), dim=-1)[:, None, :]  # [T, 1, D]
        mask = torch.ones(ctx, ctx, dtype=torch.bool).triu(1) if naive else None
    found = sum(p.numel() for p in model.parameters())
    expected = param_count(size, vocab, layers)
    if found != expected:
        raise RuntimeError("the model has %d parameters, not %d" % (found, expected))
    return model, (angle.cos(), angle.sin(), mask)


def make_adamw(torch, params, mode):
    options = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    if mode == "naive":
        return torch.optim.AdamW(params, foreach=False, **options)
    return torch.optim.AdamW(params, fused=True, capturable=mode == "graph", **options)


def make_step(torch, order):
    """A function that queues one whole step, and the tensor its loss is left in."""
    mode, policy, bf16 = order["mode"], order["policy"], order["dtype"] == "bf16"
    model, constants = build_model(torch, order["size"], order["ctx"], order["vocab"], mode == "naive")
    narrow = bf16 and policy in ("master", "pure")
    if narrow:
        model = model.to(torch.bfloat16)
    weights = list(model.parameters())
    masters = [p.detach().float() for p in weights] if narrow and policy == "master" else None
    master_grads = [torch.empty_like(m) for m in masters] if masters is not None else None
    adamw = make_adamw(torch, masters if masters is not None else weights, mode)
    shape = (order["batch"], order["ctx"])
    tokens = torch.randint(0, order["vocab"], shape, device="cuda")
    targets = torch.randint(0, order["vocab"], shape, device="cuda")
    call = torch.compile(model) if mode in ("compile", "graph") else model
    loss_out = torch.zeros((), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16 and policy == "autocast"):
            loss = call(tokens, targets, *constants)
        loss.backward()
        if masters is not None:
            for master, grad in zip(masters, master_grads):
                master.grad = grad
            with torch.no_grad():
                torch._foreach_copy_(master_grads, [w.grad for w in weights])
        adamw.step()
        if masters is not None:
            with torch.no_grad():
                torch._foreach_copy_(weights, masters)
        loss_out.copy_(loss.detach())
        model.zero_grad(set_to_none=True)

    return step, loss_out


def unpacked(named, size):
    """Tensors of the packed projections under the names, and as the parts, that the naive model has."""
    c, f, _, _ = SIZES[size]
    packs = {"qkv": (("q", "k", "v"), c), "gate_up": (("gate", "up"), f)}
    found = {}
    for name, tensor in named.items():
        stem, _, leaf = name.rpartition(".")
        block, _, last = stem.rpartition(".")
        if last not in packs:
            found[name] = tensor
            continue
        parts, rows = packs[last]
        for part, piece in zip(parts, tensor.split(rows)):
            found["%s.%s.%s" % (block, part, leaf)] = piece
    return found


def check(torch, order):
    """The row's gate: loss and gradients of two blocks against the naive model in fp32, on the same weights."""
    mode, bf16 = order["mode"], order["dtype"] == "bf16"
    torch.compiler.reset()  # what was compiled for the timed shape has had its time
    build = (torch, order["size"], CHECK["ctx"], order["vocab"])
    model, constants = build_model(*build, mode == "naive", CHECK["layers"])
    if bf16 and order["policy"] in ("master", "pure"):
        model = model.to(torch.bfloat16)
    exact, exact_constants = build_model(*build, True, CHECK["layers"])
    weights = {name: p.detach().float() for name, p in model.named_parameters()}
    exact.load_state_dict(unpacked(weights, order["size"]))
    shape = (CHECK["batch"], CHECK["ctx"])
    tokens = torch.randint(0, order["vocab"], shape, device="cuda")
    targets = torch.randint(0, order["vocab"], shape, device="cuda")
    call = torch.compile(model) if mode in ("compile", "graph") else model
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16 and order["policy"] == "autocast"):
        loss = call(tokens, targets, *constants)
    loss.backward()
    torch.backends.cuda.matmul.allow_tf32 = False
    right = exact(tokens, targets, *exact_constants)
    right.backward()
    expected = {name: p.grad for name, p in exact.named_parameters()}
    errors = {"loss": abs(loss.item() - right.item()) / abs(right.item())}
    grads = {name: p.grad.float() for name, p in model.named_parameters()}
    for name, grad in unpacked(grads, order["size"]).items():
        errors[name] = ((grad - expected[name]).norm() / expected[name].norm()).item()
    limits = {name: LIMITS[order["dtype"]][name != "loss"] for name in errors}
    worst = max(errors, key=lambda name: errors[name] / limits[name] if math.isfinite(errors[name]) else math.inf)
    passed = all(errors[name] <= limits[name] for name in errors)  # a NaN is not
    error = errors[worst] if math.isfinite(errors[worst]) else None  # JSON has no word for the others
    return {"gate": "passed" if passed else "failed", "relative_error": error, "allowed_error": limits[worst],
            "worst_tensor": worst, "checked_shape": dict(CHECK)}  # fmt: skip


def gate_of(torch, order):
    try:
        return check(torch, order)
    except Exception as why:  # the times are worth keeping; without a gate they enter no table
        return {"gate": "not-verified", "gate_reason": " ".join(str(why).split())[:200] or type(why).__name__}


def worker(order):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = order["dtype"] == "tf32"
    begin = time.perf_counter()
    step, loss = make_step(torch, order)
    first = None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(order["warmup"]):
            step()
            if i == 0:
                torch.cuda.synchronize()
                first = time.perf_counter() - begin
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    run, graph = step, None
    if order["mode"] == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        first = time.perf_counter() - begin
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(order["steps"] + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    if not torch.isfinite(loss).item():
        raise RuntimeError("the loss is %s" % loss.item())
    # Of the whole process: a replay allocates nothing, its peak was that of the capture.
    peak = torch.cuda.max_memory_allocated()
    answer = {"ms": times, "peak": peak, "reserved": torch.cuda.max_memory_reserved(), "first_s": first,
              "loss": loss.item(), "torch": torch.__version__}  # fmt: skip
    run = graph = step = loss = None  # gives the timed model's memory back
    answer["gate"] = gate_of(torch, order)
    print(json.dumps(answer))


# --- the table -------------------------------------------------------------------------------------------------------


def measure(order, limit):
    command = [sys.executable, __file__, "--worker", json.dumps(order)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": "not done after %d s" % limit, "status": "timeout"}
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["exit status %d" % done.returncode]
        return {"error": lines[-1][:200], "status": "oom" if "OutOfMemoryError" in lines[-1] else "failed"}
    return json.loads(done.stdout.splitlines()[-1])


def stored_row(order, answer, version, host):
    """For --rows. The step is kiln's `full` one: one micro-step, no clipping."""
    what = {key: order[key] for key in ("size", "dtype", "policy", "batch", "ctx", "vocab")}
    what.update(mode="full", micro_steps=1, clip=0, warmups=order["warmup"])
    peer = ("PyTorch", order["mode"], version)
    if "error" in answer:
        return peer_rows.row("bench step", what, peer, host, answer["status"], reason=answer["error"])
    flops = model_flops(order["size"], order["batch"], order["ctx"], order["vocab"])
    timing = peer_rows.timing_of(answer["ms"])
    gate = dict(answer["gate"])
    status = "failed" if gate["gate"] == "failed" else "ok"
    return peer_rows.row("bench step", what, peer, host, status, gate.pop("gate"), **gate, **timing, flops=flops,
                         tflops=flops / timing["p50_ms"] / 1e9, peak_bytes=answer["peak"],
                         reserved_bytes=answer["reserved"], first_step_ms=1e3 * answer["first_s"],
                         last_loss=answer["loss"])  # fmt: skip


def row_of(order, answer):
    row = {key: order[key] for key in ("mode", "size", "dtype", "policy", "batch", "ctx", "vocab")}
    if "error" in answer:
        return dict(row, error=answer["error"])
    p50 = statistics.median(answer["ms"])
    flops = model_flops(order["size"], order["batch"], order["ctx"], order["vocab"])
    return dict(row, p50_ms=p50, mean_ms=statistics.fmean(answer["ms"]),
                std_ms=statistics.stdev(answer["ms"]) if len(answer["ms"]) > 1 else 0.0,
                peak_mib=answer["peak"] / 2**20, reserved_mib=answer["reserved"] / 2**20,
                tokens_per_s=order["batch"] * order["ctx"] / p50 * 1e3, tflops=flops / p50 / 1e9,
                first_step_s=answer["first_s"], loss=answer["loss"], torch=answer["torch"], gate=answer["gate"])  # fmt: skip


def line_of(row):
    head = "%-8s %-8s %-5s %-8s" % (row["size"], row["mode"], row["dtype"], row["policy"])
    if "error" in row:
        return head + "  " + row["error"]
    return head + "%9.3f %9.3f %8.3f %10.0f %8.1f %9.0f %8.1f  %s" % (
        row["p50_ms"], row["mean_ms"], row["std_ms"], row["tokens_per_s"], row["tflops"], row["peak_mib"],
        row["first_step_s"], row["gate"]["gate"])  # fmt: skip


def names(text, known, parser, option):
    items = [item.strip().lower() for item in text.split(",")]
    for item in items:
        if item not in known:
            parser.error("%s is '%s'; expected some of %s" % (option, item, ", ".join(known)))
    return items


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="small", help="of " + ", ".join(SIZES))
    parser.add_argument("--modes", default="eager,compile,graph", help="of " + ", ".join(MODES))
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp32", "tf32"])
    parser.add_argument("--policy", default="master", choices=["master", "autocast", "pure"], help="of bf16")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--limit", type=float, default=110, help="seconds for a mode of a size (default 110)")
    parser.add_argument("--json", help="write the table to this file as well")
    parser.add_argument("--rows", help="append a line of JSON for each row to this file: what kiln report --peers reads")
    arguments = parser.parse_args()
    sizes = names(arguments.sizes, list(SIZES), parser, "--sizes")
    modes = names(arguments.modes, MODES, parser, "--modes")
    torch = torch_or_none()
    if torch is None:
        return 3
    version, host = peer_rows.version_of(torch), peer_rows.host_of(torch)
    print("%-8s %-8s %-5s %-8s%9s %9s %8s %10s %8s %9s %8s  %s" % (
        "size", "mode", "dtype", "policy", "ms p50", "mean", "std", "tokens/s", "TFLOP/s", "peak MiB", "first s", "gate"))  # fmt: skip
    rows = []
    for size in sizes:
        for mode in modes:
            order = {"size": size, "mode": mode, "dtype": arguments.dtype, "policy": arguments.policy,
                     "batch": arguments.batch, "ctx": arguments.ctx, "vocab": arguments.vocab,
                     "warmup": max(3, arguments.warmup), "steps": arguments.steps}  # fmt: skip
            answer = measure(order, arguments.limit)
            rows.append(row_of(order, answer))
            if arguments.rows:
                peer_rows.append(arguments.rows, [stored_row(order, answer, version, host)])
            print(line_of(rows[-1]), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="ascii") as file:
            json.dump(rows, file, indent=1)
    return 1 if any("error" in row or row["gate"]["gate"] != "passed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
