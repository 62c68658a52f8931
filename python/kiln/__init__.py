"""kiln from Python: its attention for PyTorch, through the C interface of libkiln.so, and its commands as functions; nothing
here is compiled.

    import kiln
    o = kiln.attention(q, k, v, causal=True)       # q [B, T, H, D]; k, v [B, T, Hkv, D]; with gradients
    o = kiln.attention_varlen(q, k, v, cu_queries, cu_keys, max_queries, max_keys)   # q [rows, H, D]; offsets on the GPU

    rows = kiln.bench_step(size=["nano", "micro"], ctx=64)     # what `kiln bench step --json` says; needs no torch

torch is imported when one of the functions is first used. docs/attention-library.md says more.
"""
from . import _commands
from ._commands import *  # noqa: F403
from ._library import BadArgument, CudaFailure, KilnError, Library, NotAvailable, load

__all__ = ["attention", "attention_varlen", "load", "Library", "KilnError", "BadArgument", "NotAvailable", "CudaFailure",
           *_commands.COMMANDS]
__version__ = "0.1.0"


def __getattr__(name):
    if name in ("attention", "attention_varlen"):
        from . import _attention

        return getattr(_attention, name)
    raise AttributeError(f"module 'kiln' has no attribute {name!r}")
