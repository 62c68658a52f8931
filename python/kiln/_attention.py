"""Attention as a torch.autograd.Function over libkiln."""
import ctypes

import torch
from torch.autograd.function import once_differentiable

from ._library import BF16, CPU, FP16, FP32, BadArgument, Library, Problem, View, load

_DTYPES = {torch.float32: FP32, torch.bfloat16: BF16, torch.float16: FP16}
_ALIGNMENT = 16  # bytes, of tensors
_SCRATCH_ALIGNMENT = 256


def attention(
    q, k, v, causal=True, scale=None, deterministic=True, variant=None, *, return_lse=False, library=None
):
    """softmax(scale * q k^T + mask) v, per head.

    q is [B, Tq, H, D], k and v are [B, Tk, Hkv, D] with H a multiple of Hkv; bf16, fp16 or fp32, on a GPU or the CPU.
    Strided tensors are taken as they are (slices of a packed QKV, [T, B, H, D] transposed) as long as a row's heads lie
    side by side; others are copied. causal aligns the last query with the last key. scale is 1 / sqrt(D) unless given.
    deterministic=False allows a backward that may differ in its last bits from run to run. variant names one of kiln's
    variants, which then runs or raises NotAvailable with the reason. With return_lse also the logarithm of the sum of
    exponentials, [B, H, Tq] in fp32, without a gradient. library is a path or a Library; by default kiln.load()."""
    _check_tensors(q, k, v, 4, "[batch, rows, heads, head_dim]")
    if q.shape[0] != k.shape[0]:
        raise BadArgument(f"q has a batch of {q.shape[0]}, k and v of {k.shape[0]}")
    problem = _problem(q, k, q.shape[0], q.shape[1], k.shape[1], causal, scale, deterministic, variant)
    o, lse = _Attention.apply(q, k, v, _Call(library, problem, q.device, (q.shape[0], q.shape[2], q.shape[1])))
    return (o, lse) if return_lse else o


def attention_varlen(
    q, k, v, cu_queries, cu_keys, max_queries=None, max_keys=None, causal=True, scale=None, deterministic=True,
    variant=None, *, return_lse=False, library=None
):
    """The same for sequences of any lengths, one behind the other: q [rows, H, D], k and v [rows, Hkv, D]. Sequence b
    has rows cu_queries[b] .. cu_queries[b + 1] - 1 of q, and of k and v likewise. lse is [H, rows].

    The offsets are int32 tensors on the GPU with max_queries and max_keys, the longest lengths, as numbers: one launch
    takes the batch, nothing waits for the GPU, and the call can be captured in a CUDA graph. They are then taken as
    right: the first 0, never falling, never further apart than the longest; rows behind the last sequence are not
    written. Or they are lists or tensors on the CPU, which are checked; on a GPU one sequence is then started after the
    other."""
    _check_tensors(q, k, v, 3, "[rows, heads, head_dim]")
    on_gpu = [isinstance(c, torch.Tensor) and c.is_cuda for c in (cu_queries, cu_keys)]
    if on_gpu[0] != on_gpu[1]:
        raise BadArgument("cu_queries and cu_keys must be in one place, the GPU or the host")
    problem_of = _offsets_on_gpu if on_gpu[0] else _offsets_on_host
    problem, kept = problem_of(q, k, cu_queries, cu_keys, max_queries, max_keys, (causal, scale, deterministic, variant))
    call = _Call(library, problem, q.device, (q.shape[1], q.shape[0]), kept)
    o, lse = _Attention.apply(q[None], k[None], v[None], call)
    return (o[0], lse) if return_lse else o[0]


def _offsets_on_gpu(q, k, cu_queries, cu_keys, max_queries, max_keys, options):
    for name, c in (("cu_queries", cu_queries), ("cu_keys", cu_keys)):
        if c.device != q.device:
            raise BadArgument(f"{name} is on {c.device}, q on {q.device}")
        if c.dtype != torch.int32 or c.dim() != 1 or c.shape[0] == 0 or not c.is_contiguous():
            raise BadArgument(f"{name} is {c.dtype} {list(c.shape)}; int32 without gaps is needed, one more than sequences")
    if len(cu_queries) != len(cu_keys):
        raise BadArgument(f"cu_queries has {len(cu_queries)} entries, cu_keys {len(cu_keys)}")
    if max_queries is None or max_keys is None:
        raise BadArgument("offsets on the GPU need max_queries and max_keys: to look for them would wait for the GPU")
    problem = _problem(q, k, len(cu_queries) - 1, int(max_queries), int(max_keys), *options)
    problem.cu_queries, problem.cu_keys = cu_queries.data_ptr(), cu_keys.data_ptr()
    problem.query_rows, problem.key_rows = q.shape[0], k.shape[0]
    return problem, (cu_queries, cu_keys)


def _offsets_on_host(q, k, cu_queries, cu_keys, max_queries, max_keys, options):
    offsets_q, offsets_k = _offsets("cu_queries", cu_queries, q), _offsets("cu_keys", cu_keys, k)
    if len(offsets_q) != len(offsets_k):
        raise BadArgument(f"cu_queries has {len(offsets_q)} entries, cu_keys {len(offsets_k)}")
    count = len(offsets_q) - 1
    longest = [max((c[b + 1] - c[b] for b in range(count)), default=0) for c in (offsets_q, offsets_k)]
    for n, given in enumerate((max_queries, max_keys)):
        longest[n] = max(0, longest[n]) if given is None else int(given)
    problem = _problem(q, k, count, *longest, *options)
    problem.host_cu_queries, problem.host_cu_keys = offsets_q, offsets_k
    return problem, (offsets_q, offsets_k)


def _check_tensors(q, k, v, axes, form):
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dim() != axes:
            raise BadArgument(f"{name} has shape {list(t.shape)}, {form} is needed")
        if t.device != q.device:
            raise BadArgument(f"q is on {q.device}, {name} on {t.device}")
        if t.dtype != q.dtype:
            raise BadArgument(f"q is {q.dtype}, {name} is {t.dtype}")
    if q.dtype not in _DTYPES:
        raise BadArgument(f"q is {q.dtype}; float32, bfloat16 and float16 are known")
    if q.device.type not in ("cuda", "cpu"):
        raise BadArgument(f"q is on {q.device}; a GPU or the CPU is needed")
    if k.shape != v.shape:
        raise BadArgument(f"k has shape {list(k.shape)}, v has {list(v.shape)}")
    if k.shape[-1] != q.shape[-1]:
        raise BadArgument(f"q has heads of {q.shape[-1]}, k and v of {k.shape[-1]}")


def _offsets(name, values, rows):
    if isinstance(values, torch.Tensor):
        values = values.tolist()
    if len(values) == 0 or values[-1] != rows.shape[0]:
        raise BadArgument(f"{name} ends at {values[-1] if len(values) else None}, and there are {rows.shape[0]} rows")
    return (ctypes.c_int32 * len(values))(*values)


def _problem(q, k, batch, queries, keys, causal, scale, deterministic, variant):
    if scale is not None and not scale > 0:
        raise BadArgument(f"scale is {scale}; a positive number is needed")
    return Problem(
        dtype=_DTYPES[q.dtype],
        batch=batch,
        queries=queries,
        keys=keys,
        heads=q.shape[-2],
        kv_heads=k.shape[-2],
        head_dim=q.shape[-1],
        scale=scale or 0.0,
        causal=bool(causal),
        allow_atomic=not deterministic,
        variant=variant.encode() if variant is not None else None,
    )


def _usable(t):
    """t [B, T, H, D] itself where libkiln takes its strides, else a copy."""
    if t.numel() == 0:
        return t
    (batch, rows, heads, width), (batch_stride, row_stride, head_stride, last_stride) = t.shape, t.stride()
    good = (last_stride == 1 or width == 1) and (heads == 1 or head_stride == width)
    # The two outer axes, inner one first: neither their rows nor their blocks of rows overlap.
    room = heads * width
    for stride, count in sorted([(row_stride, rows), (batch_stride, batch)]):
        if count > 1:
            good = good and stride >= room
            room = stride * count
    if good and t.data_ptr() % _ALIGNMENT == 0:
        return t
    return t.clone(memory_format=torch.contiguous_format)


def _view(t):
    if t is None:
        return None
    return View(t.data_ptr(), t.stride(0), t.stride(1), t.stride(2))


class _Call:
    """What forward and backward share: the library, the problem, and where it runs."""

    def __init__(self, library, problem, device, lse_shape, kept=()):
        self.loaded = library if isinstance(library, Library) else load(library)
        self.problem = problem
        self.kept = kept  # what the problem points to
        self.device = device
        self.index = CPU if device.type == "cpu" else device.index
        self.lse_shape = lse_shape
        self.forward_bytes, self.backward_bytes = self.loaded.workspace(self.index, problem)

    def _scratch(self, size):
        """Memory, and its first aligned address."""
        spare = _SCRATCH_ALIGNMENT if self.index == CPU else 0  # a GPU's are aligned
        memory = torch.empty(size + spare, dtype=torch.uint8, device=self.device)
        return memory, -(-memory.data_ptr() // _SCRATCH_ALIGNMENT) * _SCRATCH_ALIGNMENT

    def _stream(self):
        return None if self.index == CPU else torch.cuda.current_stream(self.device).cuda_stream

    def forward(self, q, k, v):
        o = torch.empty(q.shape, dtype=q.dtype, device=self.device)
        lse = torch.empty(self.lse_shape, dtype=torch.float32, device=self.device)
        size = self.forward_bytes
        memory, scratch = self._scratch(size)  # `memory` lives until the call is queued
        self.loaded.forward(
            self.index, self.problem, _view(q), _view(k), _view(v), _view(o), lse.data_ptr(), scratch, size, self._stream()
        )
        return o, lse

    def backward(self, q, k, v, o, lse, dout, wanted):
        grads = [
            torch.empty(t.shape, dtype=t.dtype, device=self.device) if want else None
            for t, want in zip((q, k, v), wanted)
        ]
        size = self.backward_bytes
        memory, scratch = self._scratch(size)
        views = [_view(t) for t in (q, k, v, o)]
        self.loaded.backward(
            self.index, self.problem, *views, lse.data_ptr(), _view(dout), *map(_view, grads), scratch, size, self._stream()
        )
        return grads


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, call):
        q, k, v = _usable(q), _usable(k), _usable(v)
        o, lse = call.forward(q, k, v)
        ctx.call = call
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)  # or lse would get zeros for a gradient
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, _):
        if dout is None:
            return None, None, None, None
        grads = ctx.call.backward(*ctx.saved_tensors, _usable(dout), ctx.needs_input_grad[:3])
        return (*grads, None)
