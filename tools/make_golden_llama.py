#!/usr/bin/env python3
"""Writes tests/golden/llama_steps.safetensors: what PyTorch computes for a whole small LLaMA and ten AdamW steps of it.

    python3 tools/make_golden_llama.py [--out tests/golden]

Run by hand on a machine with PyTorch (2.0 or newer, CPU build; no other package), and the file committed. Neither the
build nor the tests need it: tests/model/llama_golden_test.cpp reads the file.

The model is written out in plain tensor operations here, so that it says what is expected and shares nothing with
kiln. Weights are drawn in fp32 from a fixed seed; everything is computed in fp64 from those values, and a second time
in fp32: the losses and norms of that run, and how far its tensors are from the fp64 ones, say what fp32 can reach.

Two models, `untied` and `tied` (the head uses the embedding's weight); of each, under Hugging Face's names:

    <model>/weight/<name>   F32   before the first step
    <model>/logits          F64   [B, T, V] of the first batch
    <model>/grad/<name>     F64   of the first batch's loss, not clipped
    <model>/final/<name>    F64   the weight after ten steps
    <model>/loss            F64   [10] of every step; .../loss_fp32 the same in fp32
    <model>/grad_norm       F64   [10] before clipping; .../grad_norm_fp32
    tokens, targets         I32   [10, B, T]; target -100 counts nowhere
    lr                      F64   [10]

The file's metadata has "options": the shape, AdamW's numbers and the distances of the fp32 run, as JSON.
"""

import argparse
import json
import math
import os
import struct
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("make_golden_llama.py needs PyTorch, and this Python has none: run it where `import torch` works")

MOST_BYTES = 1000 * 1000  # the file lives in the repository
IGNORE = -100
STEPS, BATCH, CONTEXT = 10, 2, 9
VOCAB, D_MODEL, D_FF, LAYERS, HEADS, KV_HEADS = 61, 32, 48, 2, 4, 2
HEAD_DIM = D_MODEL // HEADS
ROPE_THETA = 10000.0
as_float = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
NORM_EPS, ATTENTION_SCALE = as_float(1e-5), as_float(1 / math.sqrt(HEAD_DIM))  # kiln holds both as floats, in fp64 too
BETA1, BETA2, ADAM_EPS, DECAY, MAX_NORM = 0.9, 0.95, 1e-8, 0.1, 1.0
# Adam divides by the gradient's own size: where that is nearly zero, its rounding becomes a step of the learning rate.
# At 1e-2 PyTorch's fp32 ends 2e-5 from its fp64, at 1e-3 3e-7.
LEARNING_RATES = [1e-3 * f for f in (0.5, 1.0, 1.0, 1.0, 1.0, 0.9, 0.7, 0.5, 0.3, 0.1)]


def shapes(tied):
    """Every weight, in the order it is used."""
    kv = KV_HEADS * HEAD_DIM
    all_shapes = {"model.embed_tokens.weight": (VOCAB, D_MODEL)}
    for i in range(LAYERS):
        p = "model.layers.%d." % i
        all_shapes[p + "input_layernorm.weight"] = (D_MODEL,)
        all_shapes[p + "self_attn.q_proj.weight"] = (D_MODEL, D_MODEL)
        all_shapes[p + "self_attn.k_proj.weight"] = (kv, D_MODEL)
        all_shapes[p + "self_attn.v_proj.weight"] = (kv, D_MODEL)
        all_shapes[p + "self_attn.o_proj.weight"] = (D_MODEL, D_MODEL)
        all_shapes[p + "post_attention_layernorm.weight"] = (D_MODEL,)
        all_shapes[p + "mlp.gate_proj.weight"] = (D_FF, D_MODEL)
        all_shapes[p + "mlp.up_proj.weight"] = (D_FF, D_MODEL)
        all_shapes[p + "mlp.down_proj.weight"] = (D_MODEL, D_FF)
    all_shapes["model.norm.weight"] = (D_MODEL,)
    if not tied:
        all_shapes["lm_head.weight"] = (VOCAB, D_MODEL)
    return all_shapes


def decays(name):
    return not name.endswith("norm.weight")


def init_weights(tied):
    """fp32. Norms are not all ones, so that a norm whose weight were left out would show."""
    generator = torch.Generator(device="cpu")
    generator.manual_seed(20260 + tied)
    weights = {}
    for name, shape in shapes(tied).items():
        x = torch.randn(*shape, generator=generator, dtype=torch.float32)
        if not decays(name):
            x = 1 + 0.2 * x
        elif name == "model.embed_tokens.weight":
            x = 0.5 * x
        else:
            x = x * math.sqrt(2.0 / sum(shape))
        weights[name] = x
    return weights


def draw_batches():
    """Two alternating batches, so that ten steps learn something: tokens at random; most targets follow from the token."""
    generator = torch.Generator(device="cpu")
    generator.manual_seed(31)
    size = (2, BATCH, CONTEXT)
    tokens = torch.randint(0, VOCAB, size, generator=generator, dtype=torch.int64)
    noise = torch.randint(0, VOCAB, size, generator=generator, dtype=torch.int64)
    surprise = torch.rand(*size, generator=generator) < 0.2
    targets = torch.where(surprise, noise, (tokens * 7 + 3) % VOCAB)
    targets[0, 0, :2] = IGNORE
    targets[1, 1, 4:] = IGNORE
    return tokens.repeat(STEPS // 2, 1, 1), targets.repeat(STEPS // 2, 1, 1)


# --- the model -------------------------------------------------------------------------------------------------------


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPS) * weight


def turned(x):
    """Rotary embedding of [B, T, heads, D]: pair (i, i + D/2) of position t by the angle t * theta^(-2i/D)."""
    half = HEAD_DIM // 2
    frequency = ROPE_THETA ** (-torch.arange(half, dtype=torch.float64) * 2 / HEAD_DIM)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequency[None, :]
    cos = torch.cat([angle.cos(), angle.cos()], -1)[None, :, None, :].to(x.dtype)
    sin = torch.cat([angle.sin(), angle.sin()], -1)[None, :, None, :].to(x.dtype)
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attention(x, w, prefix):
    b, t, _ = x.shape
    heads = lambda name, n: F.linear(x, w[prefix + name + ".weight"]).reshape(b, t, n, HEAD_DIM)
    q = turned(heads("q_proj", HEADS)).transpose(1, 2)  # [B, H, T, D]
    k = turned(heads("k_proj", KV_HEADS)).transpose(1, 2).repeat_interleave(HEADS // KV_HEADS, dim=1)
    v = heads("v_proj", KV_HEADS).transpose(1, 2).repeat_interleave(HEADS // KV_HEADS, dim=1)
    scores = q @ k.transpose(-1, -2) * ATTENTION_SCALE
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    o = torch.softmax(scores.masked_fill(future, -math.inf), -1) @ v
    return F.linear(o.transpose(1, 2).reshape(b, t, D_MODEL), w[prefix + "o_proj.weight"])


def mlp(x, w, prefix):
    gate, up = F.linear(x, w[prefix + "gate_proj.weight"]), F.linear(x, w[prefix + "up_proj.weight"])
    return F.linear(gate * torch.sigmoid(gate) * up, w[prefix + "down_proj.weight"])


def logits_of(w, tokens):
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        p = "model.layers.%d." % i
        x = x + attention(rms_norm(x, w[p + "input_layernorm.weight"]), w, p + "self_attn.")
        x = x + mlp(rms_norm(x, w[p + "post_attention_layernorm.weight"]), w, p + "mlp.")
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return F.linear(rms_norm(x, w["model.norm.weight"]), head)


def loss_of(logits, targets):
    log_p = torch.log_softmax(logits.reshape(-1, VOCAB), -1)
    flat = targets.reshape(-1)
    counted = flat != IGNORE
    return -log_p[counted].gather(1, flat[counted][:, None]).mean()


# --- training --------------------------------------------------------------------------------------------------------


def train(weights, tokens, targets, dtype):
    w = {k: v.to(dtype).clone().requires_grad_(True) for k, v in weights.items()}
    m = {k: torch.zeros_like(v, requires_grad=False) for k, v in w.items()}
    v = {k: torch.zeros_like(x, requires_grad=False) for k, x in w.items()}
    out = {"loss": [], "grad_norm": []}
    for step in range(STEPS):
        logits = logits_of(w, tokens[step])
        loss = loss_of(logits, targets[step])
        grads = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
        norm = math.sqrt(sum(g.to(torch.float64).pow(2).sum().item() for g in grads.values()))
        if step == 0:
            out["logits"] = logits.detach()
            out["grad"] = {k: g.clone() for k, g in grads.items()}
        out["loss"].append(loss.item())
        out["grad_norm"].append(norm)
        clip = min(1.0, MAX_NORM / norm)
        lr = LEARNING_RATES[step]
        with torch.no_grad():
            for k, g in grads.items():
                g = g * clip
                m[k].mul_(BETA1).add_(g, alpha=1 - BETA1)
                v[k].mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
                m_hat = m[k] / (1 - BETA1 ** (step + 1))
                v_hat = v[k] / (1 - BETA2 ** (step + 1))
                if decays(k):
                    w[k].mul_(1 - lr * DECAY)
                w[k].sub_(lr * m_hat / (v_hat.sqrt() + ADAM_EPS))
    out["final"] = {k: x.detach().clone() for k, x in w.items()}
    return out


def distance(got, expected):
    """Norm-relative, as the tests measure it."""
    return ((got.to(torch.float64) - expected).norm() / expected.norm()).item()


def check_by_torch_adamw(weights, tokens, targets, wanted):
    """The steps once more with torch.optim.AdamW and clip_grad_norm_, fp64: our own update must be theirs."""
    w = {k: v.to(torch.float64).clone().requires_grad_(True) for k, v in weights.items()}
    groups = [{"params": [x for k, x in w.items() if decays(k) == d], "weight_decay": DECAY * d} for d in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=(BETA1, BETA2), eps=ADAM_EPS)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(logits_of(w, tokens[step]), targets[step]).backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), MAX_NORM)
        for g in optimizer.param_groups:
            g["lr"] = LEARNING_RATES[step]
        optimizer.step()
    worst = max(distance(w[k].detach(), wanted[k]) for k in w)
    if worst > 1e-5:  # clip_grad_norm_ divides by norm + 1e-6
        sys.exit("torch.optim.AdamW ends %g away from the steps written here" % worst)
    return worst


# --- writing ---------------------------------------------------------------------------------------------------------

FORMATS = {"F32": ("f", 4), "F64": ("d", 8), "I32": ("i", 4)}


def safetensors(tensors, metadata):
    """tensors: {name: (dtype, torch tensor)}. The header is padded to 8 bytes with spaces, widest elements first."""
    header, data = {"__metadata__": metadata}, []
    at = 0
    for name, (dtype, t) in sorted(tensors.items(), key=lambda item: (-FORMATS[item[1][0]][1], item[0])):
        letter, size = FORMATS[dtype]
        values = t.reshape(-1).tolist()
        if dtype != "I32" and not all(math.isfinite(x) for x in values):
            sys.exit("%s holds values that are not finite" % name)
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + size * len(values)]}
        data.append(struct.pack("<%d%s" % (len(values), letter), *values))
        at += size * len(values)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data)


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=os.path.join(here, "tests", "golden"), help="folder to write to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    torch.use_deterministic_algorithms(True)

    tokens, targets = draw_batches()
    tensors = {
        "tokens": ("I32", tokens),
        "targets": ("I32", targets),
        "lr": ("F64", torch.tensor(LEARNING_RATES, dtype=torch.float64)),
    }
    options = {
        "vocab": VOCAB, "d_model": D_MODEL, "d_ff": D_FF, "layers": LAYERS, "heads": HEADS, "kv_heads": KV_HEADS,
        "rope_theta": ROPE_THETA, "norm_eps": NORM_EPS, "beta1": BETA1, "beta2": BETA2, "adam_eps": ADAM_EPS,
        "decay": DECAY, "max_norm": MAX_NORM, "fp32_distance": {},
    }  # fmt: skip
    for model, tied in (("untied", False), ("tied", True)):
        weights = init_weights(tied)
        wide = train(weights, tokens, targets, torch.float64)
        narrow = train(weights, tokens, targets, torch.float32)
        worst = lambda part: max(distance(narrow[part][k], wide[part][k]) for k in weights)
        far = {"logits": distance(narrow["logits"], wide["logits"]), "grad": worst("grad"), "final": worst("final")}
        options["fp32_distance"][model] = far
        theirs = check_by_torch_adamw(weights, tokens, targets, wide["final"])
        for k in weights:
            tensors["%s/weight/%s" % (model, k)] = ("F32", weights[k])
            tensors["%s/grad/%s" % (model, k)] = ("F64", wide["grad"][k])
            tensors["%s/final/%s" % (model, k)] = ("F64", wide["final"][k])
        tensors[model + "/logits"] = ("F64", wide["logits"])
        for part in ("loss", "grad_norm"):
            tensors["%s/%s" % (model, part)] = ("F64", torch.tensor(wide[part], dtype=torch.float64))
            tensors["%s/%s_fp32" % (model, part)] = ("F64", torch.tensor(narrow[part], dtype=torch.float64))
        print("%-6s loss %.4f to %.4f, norms %.2f to %.2f; fp32 is off by %.1e (logits) %.1e (gradients) %.1e (after "
              "%d steps); torch.optim.AdamW by %.1e" % (
                  model, wide["loss"][0], wide["loss"][-1], min(wide["grad_norm"]), max(wide["grad_norm"]),
                  far["logits"], far["grad"], far["final"], STEPS, theirs))  # fmt: skip

    metadata = {"torch": torch.__version__.split("+")[0], "options": json.dumps(options)}
    content = safetensors(tensors, metadata)
    if len(content) > MOST_BYTES:
        sys.exit("the file would take %d bytes, %d is the most" % (len(content), MOST_BYTES))
    os.makedirs(arguments.out, exist_ok=True)
    path = os.path.join(arguments.out, "llama_steps.safetensors")
    with open(path + ".part", "wb") as f:
        f.write(content)
    os.replace(path + ".part", path)
    print("%s: %d bytes, torch %s" % (path, len(content), torch.__version__))


if __name__ == "__main__":
    main()
