#!/usr/bin/env python3
"""Checks kiln's model folders against Hugging Face transformers, both ways. Not needed to build or test.

usage: tools/check_hf.py write BUILD FOLDER    kiln's half: models and their logits (BUILD: build, with kiln, kiln_logits)
       tools/check_hf.py check FOLDER          transformers' half: loads them and compares; saves models of its own
       tools/check_hf.py read  BUILD FOLDER    kiln's half again: reads those and compares
       tools/check_hf.py all   BUILD FOLDER    all three, where both are installed

Three steps, so that they can run on two machines. Logits are computed in fp32 on both sides, from the same rounded
weights, and may differ by 1e-4 of the largest one. Exit status 0 when all agree.
"""
import glob
import json
import os
import shutil
import subprocess
import sys

TOLERANCE = 1e-4
TOKENS = [1, 5, 60, 2, 2, 33, 17, 0, 44, 58, 9, 21]

# Positions scaled in the ways that kiln knows. TOKENS are more than `dynamic` was trained on.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 64}

# name, changes of the configuration, arguments of kiln convert
KILN_MODELS = [
    ("plain", {}, []),
    ("grouped", {"num_key_value_heads": 2, "rope_theta": 500000.0}, []),
    ("tied", {"tie_word_embeddings": True, "num_key_value_heads": 1}, []),
    ("sharded", {"num_key_value_heads": 2}, ["--max-shard", "20KB"]),
    ("bf16", {}, ["--dtype", "bf16", "--max-shard", "15KB"]),
    ("fp16", {"rms_norm_eps": 1e-6}, ["--dtype", "fp16"]),
    ("wide_heads", {"head_dim": 16, "num_key_value_heads": 2}, []),
    ("llama3", {"rope_scaling": LLAMA3, "rope_theta": 500000.0}, []),
    ("linear", {"rope_scaling": LINEAR}, []),
    ("dynamic", {"rope_scaling": DYNAMIC, "max_position_embeddings": 8}, []),
    ("mistral", {**MISTRAL, "num_key_value_heads": 2}, []),
]


def small_config(**changes):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 61, "hidden_size": 48,
        "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    }
    config.update(changes)
    return config


def compare(name, ours, theirs):
    """Two lists of rows of logits; True when they agree."""
    if len(ours) != len(theirs) or any(len(a) != len(b) for a, b in zip(ours, theirs)):
        print(f"{name:28} OTHER SHAPES")
        return False
    largest = max(abs(x) for row in theirs for x in row)
    apart = max(abs(a - b) for x, y in zip(ours, theirs) for a, b in zip(x, y))
    good = apart <= TOLERANCE * max(1.0, largest)  # a NaN is not
    print(f"{name:28} max abs difference {apart:.3e}, largest logit {largest:.3f}  {'ok' if good else 'DIFFER'}")
    return good


def kiln_logits(build, folder):
    done = subprocess.run([f"{build}/kiln_logits", folder, *map(str, TOKENS)], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["logits"]


def write(build, folder):
    os.makedirs(folder, exist_ok=True)
    for name, changes, arguments in KILN_MODELS:
        config = f"{folder}/kiln_{name}.config.json"
        with open(config, "w", encoding="utf-8") as file:
            json.dump(small_config(**changes), file)
        out = f"{folder}/kiln_{name}"
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([f"{build}/kiln", "convert", "--config", config, "--to", out, "--seed", "3", *arguments],
                       check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/kiln_{name}.logits.json", "w", encoding="utf-8") as file:
            json.dump(kiln_logits(build, out), file)
    print(f"{len(KILN_MODELS)} models written to {folder}")


def load_in_fp32(folder):
    import torch
    from transformers import AutoModelForCausalLM
    options = {"output_loading_info": True, "attn_implementation": "eager"}
    try:
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
    except TypeError:  # transformers before 4.56
        model, info = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, **options)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(key), f"{folder}: {key}: {info[key]}"
    return model.float().eval()


def hf_logits(model):
    import torch
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].float().tolist()


def old_keys(config):
    """As transformers 4 writes it."""
    rope = config.pop("rope_parameters", None) or {}
    config["rope_theta"] = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype", None) or config.get("torch_dtype", "float32")
    return config


def new_keys(config):
    """As transformers 5 writes it."""
    theta = (config.get("rope_parameters") or {}).get("rope_theta", config.get("rope_theta", 10000.0))
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    config.pop("rope_theta", None)
    config.pop("rope_scaling", None)
    config["dtype"] = config.pop("torch_dtype", None) or config.get("dtype", "float32")
    return config


def save_hf_models(folder):
    """Random models of transformers' own, for kiln to read: name, dtype, size of shards, keys of config.json."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    models = [
        ("as_saved", {}, torch.float32, "5GB", None),
        ("old_keys", {"num_key_value_heads": 2, "rope_theta": 500000.0}, torch.float32, "5GB", old_keys),
        ("new_keys", {"num_key_value_heads": 2, "rope_theta": 500000.0}, torch.float32, "5GB", new_keys),
        ("sharded", {"num_key_value_heads": 1}, torch.float32, "20KB", None),
        ("bf16", {}, torch.bfloat16, "15KB", None),
        ("fp16", {}, torch.float16, "5GB", old_keys),
        ("tied", {"tie_word_embeddings": True}, torch.float32, "5GB", None),
        ("wide_heads", {"head_dim": 16}, torch.float32, "5GB", None),
        ("llama3", {"rope_scaling": LLAMA3, "rope_theta": 500000.0}, torch.float32, "5GB", None),
        ("linear", {"rope_scaling": LINEAR}, torch.float32, "5GB", None),
        ("dynamic", {"rope_scaling": DYNAMIC, "max_position_embeddings": 8}, torch.float32, "5GB", None),
        ("mistral", {**MISTRAL, "num_key_value_heads": 2}, torch.float32, "5GB", None),
    ]
    for i, (name, changes, dtype, shard, keys) in enumerate(models):
        torch.manual_seed(i)
        page = small_config(initializer_range=0.2, **changes)
        theta = page["rope_theta"]
        page["rope_parameters"] = {**(page.get("rope_scaling") or {"rope_type": "default"}), "rope_theta": theta}  # each version takes its own key
        out = f"{folder}/hf_{name}"
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        with open(out + "/config.json", "w", encoding="utf-8") as file:
            json.dump(page, file)
        config = AutoConfig.from_pretrained(out)
        parameters = getattr(config, "rope_parameters", None) or {}
        assert parameters.get("rope_theta", getattr(config, "rope_theta", None)) == theta, config
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for key, weight in model.named_parameters():
                if "norm" in key:
                    weight.add_(0.2 * torch.randn_like(weight))
        model.to(dtype).save_pretrained(out, max_shard_size=shard)
        if keys is not None:
            with open(out + "/config.json", encoding="utf-8") as file:
                page = keys(json.load(file))
            with open(out + "/config.json", "w", encoding="utf-8") as file:
                json.dump(page, file, indent=2)
        with open(f"{folder}/hf_{name}.logits.json", "w", encoding="utf-8") as file:
            json.dump(hf_logits(load_in_fp32(out)), file)
    print(f"{len(models)} models of transformers saved in {folder}")


def check(folder):
    import safetensors.torch
    import transformers
    bad = 0
    for path in sorted(glob.glob(folder + "/kiln_*/*.safetensors")):
        safetensors.torch.load_file(path)
    for name, _, _ in KILN_MODELS:
        with open(f"{folder}/kiln_{name}.logits.json", encoding="utf-8") as file:
            ours = json.load(file)
        theirs = hf_logits(load_in_fp32(f"{folder}/kiln_{name}"))
        bad += not compare(f"transformers reads {name}", ours, theirs)
    save_hf_models(folder)
    print(f"transformers {transformers.__version__}, safetensors {safetensors.__version__}")
    return bad


def read(build, folder):
    bad = 0
    found = sorted(glob.glob(folder + "/hf_*.logits.json"))
    assert found, f"{folder} has no models of transformers; run `check` first"
    for path in found:
        with open(path, encoding="utf-8") as file:
            theirs = json.load(file)
        out = path[: -len(".logits.json")]
        bad += not compare(f"kiln reads {os.path.basename(out)}", kiln_logits(build, out), theirs)
    return bad


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) == 3 and arguments[0] == "write":
        write(*arguments[1:])
    elif len(arguments) == 2 and arguments[0] == "check":
        sys.exit(1 if check(arguments[1]) else 0)
    elif len(arguments) == 3 and arguments[0] == "read":
        sys.exit(1 if read(*arguments[1:]) else 0)
    elif len(arguments) == 3 and arguments[0] == "all":
        write(*arguments[1:])
        wrong = check(arguments[2]) + read(*arguments[1:])
        sys.exit(1 if wrong else 0)
    else:
        sys.exit(__doc__)
