"""PyTorch with a GPU, or the reason why not: the first step of every GPU peer."""

import sys


def torch_or_none():
    try:
        import torch
    except ImportError:
        print("this Python has no PyTorch: run it where `import torch` works", file=sys.stderr)
        return None
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU here", file=sys.stderr)
        return None
    print("torch %s on %s" % (torch.__version__, torch.cuda.get_device_name(0)))
    return torch
