#!/usr/bin/env python3
"""Writes tests/golden/<op>.json: what PyTorch computes for every op, forward and backward, on small odd shapes.

    python3 tools/make_golden.py [--out tests/golden] [--only rms_norm,attention]

Run by hand on a machine with PyTorch (2.4 or newer; the CPU build will do), and the files committed. Neither the build
nor the tests need it: tests/ops/golden_test.cpp reads the files.

Inputs are drawn in fp32 from fixed seeds. Everything else is computed in fp64 from those values, so that the files
hold the answer and not PyTorch's own rounding; numbers are written with 9 significant digits, which name every fp32
exactly. A file:

    {"op": "rms_norm", "torch": "2.11.0", "cases": [
      {"name": "3x5", "options": {"eps": 1e-05},
       "inputs":  {"x": {"shape": [3, 5], "data": [...]}, "weight": {...}},
       "outputs": {"y": {"shape": [3, 5], "data": [...]}},
       "dout":    {"y": {...}},     the gradient that comes in, one per output
       "grads":   {"x": {...}, "weight": {...}}}]}

Integers (token ids, targets, positions) are inputs with whole numbers and no gradient. Optimizers have no dout and no
grads; their inputs are the first weights and the gradient of every step, their outputs the weights after every step.
Nor have the sums and the norm of a step.
"""

import argparse
import json
import math
import os
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("make_golden.py needs PyTorch, and this Python has none: run it where `import torch` works")

MOST_BYTES = 400 * 1000  # total of all files: they live in the repository
IGNORE = -100


# --- drawing and recording -------------------------------------------------------------------------------------------


class Draw:
    """Random inputs of one case; the seed comes from the names, so cases can be added without moving others."""

    def __init__(self, op, case):
        seed = 7
        for c in op + "/" + case:
            seed = (seed * 131 + ord(c)) % (2**31 - 1)
        self.generator = torch.Generator(device="cpu")
        self.generator.manual_seed(seed)

    def normal(self, *shape, scale=1.0, shift=0.0):
        # Rounded to fp32 before it is widened: a reader that parses the file into floats has the very same numbers.
        x = torch.randn(*shape, generator=self.generator, dtype=torch.float32) * scale + shift
        return x.to(torch.float32).to(torch.float64)

    def ids(self, below, *shape):
        return torch.randint(0, below, shape, generator=self.generator, dtype=torch.int64)


def differentiable(op, name, function, inputs, options=None):
    """One case: runs function(**inputs), draws a gradient for every output and goes backward."""
    leaves = {
        k: v.detach().clone().requires_grad_(True) if v.is_floating_point() else v for k, v in inputs.items()
    }
    outputs = function(**leaves)
    if not isinstance(outputs, dict):
        outputs = {"y": outputs}
    draw = Draw(op, name + "/dout")
    dout = {k: draw.normal(*v.shape) if v.dim() > 0 else draw.normal(1).reshape(()) for k, v in outputs.items()}
    total = sum((outputs[k] * dout[k]).sum() for k in outputs)
    wanted = [k for k, v in leaves.items() if v.requires_grad]
    grads = torch.autograd.grad(total, [leaves[k] for k in wanted], allow_unused=False)
    return {
        "name": name,
        "options": options or {},
        "inputs": inputs,
        "outputs": {k: v.detach() for k, v in outputs.items()},
        "dout": dout,
        "grads": dict(zip(wanted, grads)),
    }


# --- the ops ---------------------------------------------------------------------------------------------------------


def rms_norm_by(x, weight, eps):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (x.shape[-1],), weight, eps)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rms_norm():
    for name, shape, scale, eps in [
        ("1x1", (1, 1), 1.0, 1e-5),
        ("3x5", (3, 5), 1.0, 1e-5),
        ("2x3x17", (2, 3, 17), 1.0, 1e-6),
        ("tiny_values", (3, 31), 1e-3, 1e-5),
    ]:
        d = Draw("rms_norm", name)
        inputs = {"x": d.normal(*shape, scale=scale), "weight": d.normal(shape[-1], scale=0.3, shift=1.0)}
        yield differentiable("rms_norm", name, lambda x, weight, e=eps: rms_norm_by(x, weight, e), inputs, {"eps": eps})


def add_rms_norm():
    def run(x, residual, weight, eps):
        total = x + residual
        return {"sum": total, "y": rms_norm_by(total, weight, eps)}

    for name, shape in [("3x5", (3, 5)), ("2x3x17", (2, 3, 17))]:
        d = Draw("add_rms_norm", name)
        inputs = {
            "x": d.normal(*shape),
            "residual": d.normal(*shape),
            "weight": d.normal(shape[-1], scale=0.3, shift=1.0),
        }
        yield differentiable("add_rms_norm", name, lambda **i: run(**i, eps=1e-5), inputs, {"eps": 1e-5})


def layer_norm():
    for name, shape in [("3x5", (3, 5)), ("2x3x17", (2, 3, 17)), ("4x33", (4, 33))]:
        d = Draw("layer_norm", name)
        inputs = {
            "x": d.normal(*shape),
            "weight": d.normal(shape[-1], scale=0.3, shift=1.0),
            "bias": d.normal(shape[-1], scale=0.3),
        }
        run = lambda x, weight, bias: F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)
        yield differentiable("layer_norm", name, run, inputs, {"eps": 1e-5})


def swiglu():
    for name, shape, scale in [("1x1", (1, 1), 1.0), ("2x3x13", (2, 3, 13), 1.0), ("large_gates", (3, 7), 12.0)]:
        d = Draw("swiglu", name)
        inputs = {"gate": d.normal(*shape, scale=scale), "up": d.normal(*shape)}
        yield differentiable("swiglu", name, lambda gate, up: F.silu(gate) * up, inputs)


def pointwise(op, function):
    for name, shape, scale in [("5x7", (5, 7), 1.0), ("large", (3, 11), 12.0)]:
        yield differentiable(op, name, function, {"x": Draw(op, name).normal(*shape, scale=scale)})


def pair(op, function):
    for name, shape in [("1x1", (1, 1)), ("2x3x7", (2, 3, 7))]:
        d = Draw(op, name)
        yield differentiable(op, name, function, {"a": d.normal(*shape), "b": d.normal(*shape)})


def add():
    return pair("add", lambda a, b: a + b)


def mul():
    return pair("mul", lambda a, b: a * b)


def sub():
    return pair("sub", lambda a, b: a - b)


def relu():
    return pointwise("relu", lambda x: F.relu(x))


def square():
    return pointwise("square", lambda x: x * x)


def scale():
    for name, shape, factor in [("5x7", (5, 7), -0.375), ("by_zero", (2, 3), 0.0)]:
        x = Draw("scale", name).normal(*shape)
        yield differentiable("scale", name, lambda x, f=factor: x * f, {"x": x}, {"factor": factor})


def rsqrt():
    """Of something positive, as a mean of squares is."""
    for name, shape, eps in [("5x7", (5, 7), 0.25), ("small_eps", (3, 4), 1e-5)]:
        x = Draw("rsqrt", name).normal(*shape).square().add(0.125).to(torch.float32).to(torch.float64)
        yield differentiable("rsqrt", name, lambda x, e=eps: torch.rsqrt(x + e), {"x": x}, {"eps": eps})


# A matrix and a vector: one value a row, or one a column.
MATRICES = [("1x1", (1, 1)), ("3x5", (3, 5)), ("2x3x7", (2, 3, 7))]


def row_mean():
    for name, shape in MATRICES:
        x = Draw("row_mean", name).normal(*shape)
        yield differentiable("row_mean", name, lambda x: x.mean(-1), {"x": x})


def mul_rows():
    for name, shape in MATRICES:
        d = Draw("mul_rows", name)
        inputs = {"x": d.normal(*shape), "s": d.normal(*shape[:-1])}
        yield differentiable("mul_rows", name, lambda x, s: x * s[..., None], inputs)


def mul_columns():
    for name, shape in MATRICES:
        d = Draw("mul_columns", name)
        inputs = {"x": d.normal(*shape), "weight": d.normal(shape[-1])}
        yield differentiable("mul_columns", name, lambda x, weight: x * weight, inputs)


def silu():
    return pointwise("silu", lambda x: F.silu(x))


def softmax():
    for name, shape, scale in [("1x1", (1, 1), 1.0), ("2x3x17", (2, 3, 17), 1.0), ("large", (3, 9), 30.0)]:
        x = Draw("softmax", name).normal(*shape, scale=scale)
        yield differentiable("softmax", name, lambda x: torch.softmax(x, -1), {"x": x})


def masked_softmax():
    """Scores [..., Tq, Tk]; causal masks are aligned at the bottom right, and a query that sees no key gets zeros."""

    def run(x, factor, causal):
        tq, tk = x.shape[-2:]
        blind = max(0, tq - tk) if causal else 0  # the first queries, which see nothing
        hidden = torch.zeros(tq, tk, dtype=torch.bool)
        if causal:
            hidden = ~torch.ones(tq, tk, dtype=torch.bool).tril(tk - tq)
        seen = (x * factor).masked_fill(hidden, -math.inf)[..., blind:, :]
        return torch.cat([torch.zeros_like(x[..., :blind, :]), torch.softmax(seen, -1)], -2)

    for name, shape, factor, causal in [
        ("causal", (2, 4, 4), 1.0, True),
        ("full_scaled", (3, 5), 0.25, False),
        ("fewer_queries_than_keys", (2, 3, 7), 0.5, True),
        ("more_queries_than_keys", (2, 5, 3), 2.0, True),
    ]:
        x = Draw("masked_softmax", name).normal(*shape)
        call = lambda x, f=factor, c=causal: run(x, f, c)
        yield differentiable("masked_softmax", name, call, {"x": x}, {"scale": factor, "causal": causal})


def batched_matmul():
    """a and b as [B, heads, rows, cols], or as [B, rows, heads*cols] where `in_columns`; neighbouring heads of a share
    one of b."""

    def stacked(t, heads, in_columns):
        return t.reshape(t.shape[0], t.shape[1], heads, -1).transpose(1, 2) if in_columns else t

    def run(a, b, o):
        left = stacked(a, o["heads"], o["in_columns"])
        right = stacked(b, o["b_heads"], o["in_columns"]).repeat_interleave(o["heads"] // o["b_heads"], dim=1)
        y = torch.matmul(left, right.transpose(-1, -2) if o["transpose_b"] else right)
        return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1) if o["y_in_columns"] else y

    for name, (batch, heads, b_heads, m, n, k), transpose_b, in_columns, y_in_columns in [
        ("plain_batch", (2, 1, 1, 3, 4, 5), False, True, True),
        ("stacked", (1, 2, 2, 3, 2, 4), False, False, False),
        ("scores_of_grouped_heads", (1, 4, 2, 3, 5, 2), True, True, False),
        ("values_of_one_shared_head", (2, 3, 1, 2, 3, 4), False, False, True),
    ]:
        d = Draw("batched_matmul", name)
        b_rows, b_cols = (n, k) if transpose_b else (k, n)
        shape = lambda h, rows, cols: (batch, rows, h * cols) if in_columns else (batch, h, rows, cols)
        inputs = {"a": d.normal(*shape(heads, m, k)), "b": d.normal(*shape(b_heads, b_rows, b_cols))}
        options = {
            "heads": heads,
            "b_heads": b_heads,
            "transpose_b": transpose_b,
            "in_columns": in_columns,
            "y_in_columns": y_in_columns,
        }
        yield differentiable("batched_matmul", name, lambda a, b, o=options: run(a, b, o), inputs, options)


def rope():
    """Rotate-half, as Hugging Face's LLaMA: pair (i, i + D/2), angle position * theta^(-2i/D)."""

    def run(x, positions, theta):  # x [B, T, H, D], positions [T]
        half = x.shape[-1] // 2
        frequency = theta ** (-torch.arange(half, dtype=torch.float64) * 2 / x.shape[-1])
        angle = positions.to(torch.float64)[:, None] * frequency[None, :]  # [T, D/2]
        cos = torch.cat([angle.cos(), angle.cos()], -1)[None, :, None, :]
        sin = torch.cat([angle.sin(), angle.sin()], -1)[None, :, None, :]
        rotated = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * cos + rotated * sin

    for name, (b, t, h, dim), first, theta in [
        ("two_wide", (1, 3, 1, 2), 0, 10000.0),
        ("heads", (2, 5, 3, 6), 0, 10000.0),
        ("from_position_37", (1, 4, 2, 8), 37, 500000.0),
    ]:
        inputs = {"x": Draw("rope", name).normal(b, t, h, dim), "positions": torch.arange(first, first + t)}
        options = {"theta": theta, "heads": h, "head_dim": dim, "first_position": first}
        yield differentiable("rope", name, lambda x, positions, th=theta: run(x, positions, th), inputs, options)


def attention():
    """q [B, Tq, H*D], k and v [B, Tk, Hkv*D]; causal masks are aligned at the bottom right."""

    def run(q, k, v, heads, kv_heads, causal):
        b, tq, width = q.shape
        tk, dim = k.shape[1], width // heads
        split = lambda t, n: t.reshape(b, t.shape[1], n, dim).transpose(1, 2)
        group = lambda t: split(t, kv_heads).repeat_interleave(heads // kv_heads, dim=1)
        mask = torch.ones(tq, tk, dtype=torch.bool)
        if causal:
            mask = mask.tril(tk - tq)
        o = F.scaled_dot_product_attention(split(q, heads), group(k), group(v), attn_mask=mask)
        return o.transpose(1, 2).reshape(b, tq, width)

    for name, (b, tq, tk, h, hkv, dim), causal in [
        ("one_token", (1, 1, 1, 1, 1, 3), True),
        ("causal", (2, 5, 5, 2, 2, 4), True),
        ("full_other_length", (1, 3, 7, 2, 2, 5), False),
        ("grouped_heads", (1, 7, 7, 4, 2, 4), True),
        ("one_kv_head", (1, 5, 5, 3, 1, 4), True),
        ("fewer_queries_than_keys", (1, 3, 8, 2, 1, 4), True),
    ]:
        d = Draw("attention", name)
        inputs = {
            "q": d.normal(b, tq, h * dim),
            "k": d.normal(b, tk, hkv * dim),
            "v": d.normal(b, tk, hkv * dim),
        }
        options = {"heads": h, "kv_heads": hkv, "causal": causal, "scale": 1 / math.sqrt(dim)}
        call = lambda q, k, v, h=h, hkv=hkv, c=causal: run(q, k, v, h, hkv, c)
        yield differentiable("attention", name, call, inputs, options)


def some_ignored(targets, every):
    if every:
        targets.view(-1)[::every] = IGNORE
    return targets


def cross_entropy():
    def run(logits, targets):
        flat = logits.reshape(-1, logits.shape[-1])
        return F.cross_entropy(flat, targets.reshape(-1), ignore_index=IGNORE).reshape(1)

    for name, shape, every, scale in [
        ("1x3", (1, 3), 0, 1.0),
        ("2x3x17_some_ignored", (2, 3, 17), 2, 1.0),
        ("large_logits", (5, 9), 0, 30.0),
    ]:
        d = Draw("cross_entropy", name)
        inputs = {
            "logits": d.normal(*shape, scale=scale),
            "targets": some_ignored(d.ids(shape[-1], *shape[:-1]), every),
        }
        yield differentiable("cross_entropy", name, run, inputs, {"ignore_index": IGNORE})


def linear_cross_entropy():
    def run(x, weight, targets):
        logits = F.linear(x.reshape(-1, x.shape[-1]), weight)
        return F.cross_entropy(logits, targets.reshape(-1), ignore_index=IGNORE).reshape(1)

    for name, shape, vocab, every in [("3x5_to_7", (3, 5), 7, 0), ("2x3x6_to_19_some_ignored", (2, 3, 6), 19, 3)]:
        d = Draw("linear_cross_entropy", name)
        inputs = {
            "x": d.normal(*shape),
            "weight": d.normal(vocab, shape[-1], scale=0.5),
            "targets": some_ignored(d.ids(vocab, *shape[:-1]), every),
        }
        yield differentiable("linear_cross_entropy", name, run, inputs, {"ignore_index": IGNORE})


def linear():
    for name, shape, out in [("1x1_to_1", (1, 1), 1), ("5x3_to_7", (5, 3), 7), ("2x3x13_to_9", (2, 3, 13), 9)]:
        d = Draw("linear", name)
        inputs = {"x": d.normal(*shape), "weight": d.normal(out, shape[-1], scale=0.5)}
        yield differentiable("linear", name, lambda x, weight: F.linear(x, weight), inputs)


def embedding():
    for name, shape, vocab, cols in [("1_of_1", (1,), 1, 3), ("many_repeats", (2, 11), 4, 5), ("unused", (3, 3), 13, 7)]:
        d = Draw("embedding", name)
        inputs = {"tokens": d.ids(vocab, *shape), "weight": d.normal(vocab, cols)}
        yield differentiable("embedding", name, lambda tokens, weight: F.embedding(tokens, weight), inputs)


def weighted_sum():
    for name, shape in [("1x1", (1, 1)), ("3x5", (3, 5)), ("2x3x17", (2, 3, 17))]:
        d = Draw("weighted_sum", name)
        inputs = {"x": d.normal(*shape), "weight": d.normal(shape[-1])}
        yield differentiable("weighted_sum", name, lambda x, weight: (weight * x).sum(-1), inputs)


def optimizer_case(op, name, make, options, steps=3, count=23):
    d = Draw(op, name)
    weight = d.normal(count)
    inputs = {"weight": weight.clone()}
    leaf = weight.clone().requires_grad_(True)
    optimizer = make([leaf], options)
    outputs = {}
    for step in range(1, steps + 1):
        grad = d.normal(count)
        inputs["grad%d" % step] = grad
        leaf.grad = grad.clone()
        optimizer.step()
        outputs["weight%d" % step] = leaf.detach().clone()
    return {"name": name, "options": dict(options, steps=steps), "inputs": inputs, "outputs": outputs}


def adamw():
    def make(leaves, o):
        return torch.optim.AdamW(
            leaves, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], weight_decay=o["decay"]
        )

    for name, lr, beta1, beta2, decay in [("defaults", 1e-3, 0.9, 0.999, 0.01), ("large_steps", 0.1, 0.8, 0.95, 0.1)]:
        options = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": 1e-8, "decay": decay}
        yield optimizer_case("adamw", name, make, options)


def sgd():
    def make(leaves, o):
        return torch.optim.SGD(leaves, lr=o["lr"], momentum=o["momentum"], weight_decay=o["decay"])

    for name, momentum, decay in [("plain", 0.0, 0.0), ("decay", 0.0, 0.1), ("momentum", 0.9, 0.0)]:
        yield optimizer_case("sgd", name, make, {"lr": 0.05, "momentum": momentum, "decay": decay})


# What a step does besides: the loss of its micro-steps, the squares of its gradients, the norm and the clip factor.


def accumulate_loss():
    for name, count, weight in [("one", 1, 1.0), ("four_on_two_ranks", 4, 0.125)]:
        losses = Draw("accumulate_loss", name).normal(count, shift=3.0)
        yield {
            "name": name,
            "options": {"weight": weight},
            "inputs": {"losses": losses},
            "outputs": {"loss": torch.cumsum(losses * weight, 0)},  # after every micro-step
        }


def square_sum():
    for name, count, scale in [("23", 23, 1.0), ("small_gradients", 117, 1e-3)]:
        grads = Draw("square_sum", name).normal(count, scale=scale)
        outputs = {"square_sum": torch.linalg.vector_norm(grads).square().reshape(1)}
        yield {"name": name, "options": {}, "inputs": {"grads": grads}, "outputs": outputs}


def finish_step_scalars():
    for name, max_norm in [("clipped", 1.0), ("within", 1000.0)]:
        leaf = torch.zeros(97, dtype=torch.float64, requires_grad=True)
        grads = Draw("finish_step_scalars", name).normal(97)
        leaf.grad = grads.clone()
        norm = torch.nn.utils.clip_grad_norm_([leaf], max_norm)
        clip = torch.linalg.vector_norm(leaf.grad) / norm  # PyTorch divides by norm + 1e-6
        yield {
            "name": name,
            "options": {"max_norm": max_norm},
            "inputs": {"grads": grads},
            "outputs": {"norm": norm.reshape(1), "clip": clip.reshape(1)},
        }


# Every op of `kiln ops` but init_weights, whose numbers are those of our own generator (tests/base/rng_test.cpp).
OPS = [
    accumulate_loss, adamw, add, add_rms_norm, attention, batched_matmul, cross_entropy, embedding, finish_step_scalars,
    layer_norm, linear, linear_cross_entropy, masked_softmax, mul, mul_columns, mul_rows, relu, rms_norm, rope,
    row_mean, rsqrt, scale, sgd, silu, softmax, square, square_sum, sub, swiglu, weighted_sum,
]  # fmt: skip


# --- writing ---------------------------------------------------------------------------------------------------------


def text_of(value):
    """JSON, with floats at 9 significant digits and tensors as {"shape", "data"}."""
    if isinstance(value, torch.Tensor):
        shape = list(value.shape) or [1]
        return '{"shape": %s, "data": [%s]}' % (shape, ", ".join(text_of(v) for v in value.reshape(-1).tolist()))
    if isinstance(value, dict):
        return "{" + ", ".join("%s: %s" % (json.dumps(k), text_of(v)) for k, v in value.items()) + "}"
    if isinstance(value, bool) or not isinstance(value, float):
        return json.dumps(value)
    if not math.isfinite(value):
        raise ValueError("a golden value is %r: choose inputs that stay finite" % value)
    return "%.9g" % value


def file_text(op, cases):
    lines = ['{"op": %s, "torch": %s, "cases": [' % (json.dumps(op), json.dumps(torch.__version__.split("+")[0]))]
    for i, case in enumerate(cases):
        parts = ["  %s: %s" % (json.dumps(k), text_of(v)) for k, v in case.items()]
        lines.append(" {\n" + ",\n".join(parts) + "\n }" + ("," if i + 1 < len(cases) else ""))
    lines.append("]}")
    text = "\n".join(lines) + "\n"
    json.loads(text)  # what we wrote is JSON
    return text


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=os.path.join(here, "tests", "golden"), help="folder to write to")
    parser.add_argument("--only", default="", help="these ops, comma-separated (default all)")
    arguments = parser.parse_args()
    names = [f.__name__ for f in OPS]
    wanted = [n for n in arguments.only.split(",") if n] or names
    for n in wanted:
        if n not in names:
            parser.error("there is no op '%s'; there are %s" % (n, ", ".join(names)))

    torch.set_num_threads(1)  # sums in one order
    torch.use_deterministic_algorithms(True)
    texts = {f.__name__: file_text(f.__name__, list(f())) for f in OPS if f.__name__ in wanted}
    total = sum(len(t) for t in texts.values())
    if total > MOST_BYTES:
        sys.exit("the files would take %d bytes, %d is the most: use smaller shapes" % (total, MOST_BYTES))
    os.makedirs(arguments.out, exist_ok=True)
    for name, text in texts.items():  # all computed before the first is written
        path = os.path.join(arguments.out, name + ".json")
        with open(path + ".part", "w", encoding="ascii", newline="\n") as f:
            f.write(text)
        os.replace(path + ".part", path)
        print("%-22s %6d bytes  %d cases" % (name, len(text), text.count('"name":')))
    print("%d bytes in total, torch %s" % (total, torch.__version__))


if __name__ == "__main__":
    main()
