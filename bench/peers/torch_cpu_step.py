#!/usr/bin/env python3
"""A whole training step on the CPU, PyTorch's and kiln's, in one run.

    python3 bench/peers/torch_cpu_step.py --kiln build/kiln --threads 16 8 2 [--compile] [--json rows.json]

Both train the same model (embedding, pre-norm blocks with rotary attention and SwiGLU, untied head) on the same number
of tokens a step: forward, loss, backward, clipping at 1.0, AdamW. PyTorch's is written as one would write it for speed:
q, k and v in one matmul, gate and up in one, scaled_dot_product_attention, F.rms_norm, fused AdamW; bf16 is
torch.autocast over fp32 weights, against kiln's bf16 with exact master weights. --compile adds torch.compile.

They alternate in every round: PyTorch's process waits, idle, while kiln's runs. A figure is the median of the steps of
all rounds after warm-up; kiln's come from the seconds in its metrics.jsonl, without the first and the last step, so its
start does not count. Exit status 1 when one of the two could not be measured.
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# As `kiln sizes` names them.
SIZES = {
    "tiny": {"d_model": 256, "d_ff": 768, "layers": 6, "heads": 4, "vocab": 2048},
    "small": {"d_model": 768, "d_ff": 3072, "layers": 12, "heads": 12, "vocab": 10000},
}
# size, batch, context, precision
WORKLOADS = [("small", 1, 256, "fp32"), ("small", 4, 512, "bf16")]
WARM_UP = 2
FEWEST, MOST = 5, 60  # steps of one round


def param_count(size, vocab):
    c, f = size["d_model"], size["d_ff"]
    return 2 * vocab * c + size["layers"] * (4 * c * c + 3 * c * f + 2 * c) + c


# --- PyTorch's half: its own process, told what to do in lines of JSON ------------------------------------------


def build_model(torch, size, vocab, context):
    """The model as an nn.Module. torch is handed in: this file can be read where there is none."""
    nn, F = torch.nn, torch.nn.functional
    C, H, D = size["d_model"], size["heads"], size["d_model"] // size["heads"]

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(C))

        def forward(self, x):
            return F.rms_norm(x, (C,), self.weight, 1e-5)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = RmsNorm(), RmsNorm()
            self.qkv = nn.Linear(C, 3 * C, bias=False)
            self.out = nn.Linear(C, C, bias=False)
            self.gate_up = nn.Linear(C, 2 * size["d_ff"], bias=False)
            self.down = nn.Linear(size["d_ff"], C, bias=False)

        def forward(self, x, cos, sin):
            B, T, _ = x.shape
            q, k, v = self.qkv(self.attention_norm(x)).view(B, T, 3, H, D).unbind(2)  # [B, T, H, D] each
            cos, sin = cos.to(q.dtype), sin.to(q.dtype)  # autocast leaves them wide, and q and k would become so
            q, k, v = turned(q, cos, sin).transpose(1, 2), turned(k, cos, sin).transpose(1, 2), v.transpose(1, 2)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(o.transpose(1, 2).reshape(B, T, C))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)

    def turned(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab, C)
            self.blocks = nn.ModuleList(Block() for _ in range(size["layers"]))
            self.norm = RmsNorm()
            self.head = nn.Linear(C, vocab, bias=False)
            angle = torch.arange(context)[:, None] * 10000.0 ** (-torch.arange(D // 2)[None, :] * 2.0 / D)
            angle = torch.cat((angle, angle), dim=-1)[:, None, :]  # [T, 1, D]
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def forward(self, tokens, targets):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, vocab).float(), targets.view(-1))

    torch.manual_seed(0)
    return Llama()


def make_optimizer(torch, model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    try:
        return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    except (RuntimeError, TypeError) as why:  # before PyTorch 2.4 the CPU had none
        print("fused AdamW is not available (%s); the plain one is used" % why, file=sys.stderr)
        return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95))


class TorchStep:
    def __init__(self, torch, order):
        self.torch = torch
        size = SIZES[order["size"]]
        self.model = build_model(torch, size, order["vocab"], order["context"])
        found = sum(p.numel() for p in self.model.parameters())
        if found != param_count(size, order["vocab"]):
            raise RuntimeError("the model has %d parameters, not %d" % (found, param_count(size, order["vocab"])))
        self.optimizer = make_optimizer(torch, self.model)
        self.bf16 = order["precision"] == "bf16"
        shape = (order["batch"], order["context"])
        self.tokens = torch.randint(0, order["vocab"], shape)
        self.targets = torch.randint(0, order["vocab"], shape)
        self.forward = torch.compile(self.model) if order["compile"] else self.model
        for _ in range(WARM_UP):
            self.step()

    def step(self):
        torch = self.torch
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.forward(self.tokens, self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def samples(self, seconds):
        self.step()  # kiln had the machine to itself until now
        times = []
        begin = time.perf_counter()
        while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() - begin < seconds):
            before = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - before)
        return times


def worker(threads):
    import torch

    torch.set_num_threads(threads)
    built = {}
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        key = (order["size"], order["batch"], order["context"], order["precision"], order["compile"])
        try:
            if key not in built:
                built.clear()  # one model at a time
                built[key] = TorchStep(torch, order)
            print(json.dumps({"seconds": built[key].samples(order["seconds"])}), flush=True)
        except Exception as why:  # torch.compile fails in many ways; a row says so and the rest continues
            built.clear()
            print(json.dumps({"error": " ".join(str(why).split())[:200] or type(why).__name__}), flush=True)


class Torch:
    """The worker, from the outside."""

    def __init__(self, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.version = self.answer().get("torch", "?")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            return {"error": "PyTorch's process exited with status %s" % self.process.wait()}
        return json.loads(line)

    def measure(self, order):
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why
        return self.answer()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()


# --- kiln's half -----------------------------------------------------------------------------------------------------


def run_kiln(kiln, order, threads, steps):
    """One run of `kiln train`: {"seconds": [...], "parameters": n} or {"error": text}."""
    folder = tempfile.mkdtemp(prefix="kiln_peer_")
    command = [
        kiln, "train", "--json", "--out", os.path.join(folder, "run"), "--size", order["size"],
        "--train-bpe", str(order["vocab"]), "--batch", str(order["batch"]), "--ctx", str(order["context"]),
        "--precision", order["precision"], "--threads", str(threads), "--steps", str(steps), "--lr", "1e-4", "--sample-tokens", "0",
        "--val-fraction", "0",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            last = [line for line in done.stderr.splitlines() if line.startswith("kiln:")] or ["no message"]
            return {"error": "%s (exit status %d)" % (last[-1], done.returncode)}
        result = json.loads(done.stdout)
        with open(result["metrics"], encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        seconds = [line["seconds"] for line in lines if "loss" in line]
        return {"seconds": seconds[1:-1], "parameters": result["parameters"]}
    except (OSError, ValueError, KeyError) as why:
        return {"error": str(why)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- the table -------------------------------------------------------------------------------------------------------


def kiln_steps(torch_seconds, seconds):
    """As many as PyTorch would do in the time given, and the two that are not counted."""
    return 2 + max(FEWEST, min(MOST, int(seconds / max(torch_seconds, 1e-3))))


def compare(arguments, make_torch=Torch, kiln=run_kiln):
    rows = []
    for threads in arguments.threads:
        torch = make_torch(threads)
        for size, batch, context, precision in WORKLOADS:
            order = {"size": size, "batch": batch, "context": context, "precision": precision,
                     "vocab": SIZES[size]["vocab"], "seconds": arguments.seconds}  # fmt: skip
            programs = ["torch", "torch.compile"] if arguments.compile else ["torch"]
            samples = {p: [] for p in programs + ["kiln"]}
            errors = {}
            for _ in range(arguments.rounds):
                for p in programs:
                    if p in errors:
                        continue
                    answer = torch.measure(dict(order, compile=p == "torch.compile"))
                    samples[p] += answer.get("seconds", [])
                    if "error" in answer:
                        errors[p] = answer["error"]
                guess = statistics.median(samples["torch"]) if samples["torch"] else 1.0
                answer = kiln(arguments.kiln, order, threads, kiln_steps(guess, arguments.seconds))
                samples["kiln"] += answer.get("seconds", [])
                expected = param_count(SIZES[size], order["vocab"])
                if "error" not in answer and answer["parameters"] != expected:
                    answer = {"error": "kiln's model has %d parameters, not %d" % (answer["parameters"], expected)}
                if "error" in answer:
                    errors["kiln"] = answer["error"]
                    break
            for p, times in samples.items():
                row = {"workload": "%s b%d ctx %d %s" % (size, batch, context, precision), "threads": threads,
                       "program": p, "version": torch.version if p != "kiln" else "", "steps": len(times)}  # fmt: skip
                if p in errors or not times:
                    row["error"] = errors.get(p, "no samples")
                else:
                    row["ms"] = 1e3 * statistics.median(times)
                    row["tokens_per_s"] = batch * context / statistics.median(times)
                rows.append(row)
        torch.close()
    return rows


def table(rows):
    titles = ("workload", "threads", "program", "ms a step", "tokens/s", "kiln/torch")
    lines = ["%-24s %7s  %-14s %9s %10s %12s" % titles]
    for r in rows:
        head = "%-24s %7d  %-14s " % (r["workload"], r["threads"], r["program"])
        if "error" in r:
            lines.append(head + r["error"])
            continue
        peers = [o for o in rows if o["workload"] == r["workload"] and o["threads"] == r["threads"]
                 and o["program"] != "kiln" and "ms" in o]  # fmt: skip
        # Beside the faster of the two, where torch.compile was requested as well.
        ratio = min(o["ms"] for o in peers) / r["ms"] if r["program"] == "kiln" and peers else None
        lines.append(head + "%9.1f %10.0f %12s" % (r["ms"], r["tokens_per_s"], "%.2fx" % ratio if ratio else ""))
    return "\n".join(lines)


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kiln", default="build/kiln", help="the program (default build/kiln)")
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count() or 1], help="alternately")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each program (default 2)")
    parser.add_argument("--seconds", type=float, default=2.5, help="seconds of steps in each round (default 2.5)")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--json", help="write the rows to this file as well")
    arguments = parser.parse_args()
    if min(arguments.threads) < 1 or arguments.rounds < 1:
        parser.error("threads and rounds are 1 or more")
    if not os.access(arguments.kiln, os.X_OK):
        parser.error("there is no program %s: make build, or name it with --kiln" % arguments.kiln)
    if importlib.util.find_spec("torch") is None:
        print("this Python has no PyTorch: run it where `import torch` works", file=sys.stderr)
        return 3
    begin = time.time()
    rows = compare(arguments)
    print(table(rows))
    versions = sorted({r["version"] for r in rows if r["version"]})
    print("\nmedians; torch %s; %d s total" % (", ".join(versions), time.time() - begin))
    if arguments.json:
        with open(arguments.json, "w", encoding="ascii") as file:
            json.dump(rows, file, indent=1)
    return 1 if any("error" in r for r in rows if r["program"] != "torch.compile") else 0


if __name__ == "__main__":
    sys.exit(main())
