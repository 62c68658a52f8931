"""include/kiln/attention.h by ctypes: its structs, its functions, and where the library is found. Needs no torch."""
import ctypes
import functools
import os
import threading
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

ABI_VERSION = 2
CPU = -1
OK, BAD_ARGUMENT, NOT_AVAILABLE, CUDA_FAILURE, INTERNAL_ERROR = range(5)
FP32, BF16, FP16 = 1, 2, 3


class Problem(Structure):
    """kiln_attention_problem"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("batch", c_int64),
        ("queries", c_int64),
        ("keys", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("scale", c_float),
        ("causal", c_int32),
        ("allow_atomic", c_int32),
        ("reserved", c_int32),
        ("variant", c_char_p),
        ("cu_queries", c_void_p),
        ("cu_keys", c_void_p),
        ("host_cu_queries", POINTER(c_int32)),
        ("host_cu_keys", POINTER(c_int32)),
        ("query_rows", c_int64),
        ("key_rows", c_int64),
    ]

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(Problem), **fields)


class View(Structure):
    """kiln_attention_view"""

    _fields_ = [("data", c_void_p), ("batch_stride", c_int64), ("row_stride", c_int64), ("head_stride", c_int64)]


class KilnError(RuntimeError):
    """A call that could not be done; `status` is its kiln_status."""

    status = INTERNAL_ERROR


class BadArgument(KilnError, ValueError):
    """The call is wrong."""

    status = BAD_ARGUMENT


class NotAvailable(KilnError):
    """The call is right, but not on this machine, GPU or build."""

    status = NOT_AVAILABLE


class CudaFailure(KilnError):
    """CUDA refused, or an earlier kernel of the process failed."""

    status = CUDA_FAILURE


def candidates():
    """Where libkiln.so is looked for by default: next to the package, then in the build folder of its source."""
    here = Path(__file__).resolve().parent
    return [here / "libkiln.so", here.parent.parent / "build-cuda" / "libkiln.so"]


def find_library(path=None):
    """The given path, else $KILN_LIBRARY, else the first of candidates() that exists. What was given by name and is
    not there is an error."""
    asked = path or os.environ.get("KILN_LIBRARY")
    if asked:
        if not os.path.exists(asked):
            whose = "" if path else "KILN_LIBRARY names "
            raise NotAvailable(f"{whose}{asked}, which does not exist")
        return str(asked)
    for place in candidates():
        if place.exists():
            return str(place)
    tried = ", ".join(str(place) for place in candidates())
    raise NotAvailable(f"libkiln.so was not found (tried {tried}): run `make cuda`, or set KILN_LIBRARY")


class Library:
    """A loaded libkiln.so and its contexts, one for each device, made when it is first used."""

    def __init__(self, path):
        self.path = path
        try:
            self._c = ctypes.CDLL(path)
            self._declare()
        except (OSError, AttributeError) as error:
            raise NotAvailable(f"{path} is no libkiln that can be loaded: {error}") from error
        ours = (ABI_VERSION, ctypes.sizeof(Problem), ctypes.sizeof(View))
        theirs = (self._c.kiln_abi_version(), self._c.kiln_attention_problem_size(), self._c.kiln_attention_view_size())
        if ours != theirs:
            raise NotAvailable(
                f"{path} has version and struct sizes {theirs}, this package {ours}: take both from one release"
            )
        self._contexts = {}
        self._lock = threading.Lock()

    def _declare(self):
        problem, view, context = POINTER(Problem), POINTER(View), c_void_p
        signatures = {
            "kiln_abi_version": (c_int, []),
            "kiln_version": (c_char_p, []),
            "kiln_last_error": (c_char_p, []),
            "kiln_attention_problem_size": (c_size_t, []),
            "kiln_attention_view_size": (c_size_t, []),
            "kiln_attention_create": (c_int, [c_int, POINTER(context)]),
            "kiln_attention_destroy": (None, [context]),
            "kiln_attention_variant": (c_int, [context, problem, POINTER(c_char_p)]),
            "kiln_attention_workspace": (c_int, [context, problem, POINTER(c_size_t), POINTER(c_size_t)]),
            "kiln_attention_forward": (c_int, [context, problem] + 4 * [view] + [c_void_p, c_void_p, c_size_t, c_void_p]),
            "kiln_attention_backward": (
                c_int,
                [context, problem] + 4 * [view] + [c_void_p] + 4 * [view] + [c_void_p, c_size_t, c_void_p],
            ),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._c, name)
            function.restype, function.argtypes = result, arguments

    @property
    def version(self):
        return self._c.kiln_version().decode()

    def _check(self, status):
        if status == OK:
            return
        message = self._c.kiln_last_error().decode(errors="replace")
        kinds = {kind.status: kind for kind in (BadArgument, NotAvailable, CudaFailure)}
        raise kinds.get(status, KilnError)(message)

    def _context(self, device):
        context = self._contexts.get(device)
        if context is None:
            with self._lock:
                context = self._contexts.get(device)
                if context is None:
                    context = c_void_p()
                    self._check(self._c.kiln_attention_create(device, byref(context)))
                    self._contexts[device] = context  # for the life of the process, as a GPU's own context is
        return context

    def variant(self, device, problem):
        """The name of the variant that runs `problem` on the device, an index or CPU."""
        name = c_char_p()
        self._check(self._c.kiln_attention_variant(self._context(device), problem, byref(name)))
        return name.value.decode()

    def workspace(self, device, problem):
        """Bytes of scratch of forward and backward."""
        forward, backward = c_size_t(), c_size_t()
        self._check(self._c.kiln_attention_workspace(self._context(device), problem, byref(forward), byref(backward)))
        return forward.value, backward.value

    def forward(self, device, problem, q, k, v, o, lse, workspace, workspace_bytes, stream):
        """Views, then addresses as integers; `stream` is a cudaStream_t, 0 the default one."""
        self._check(
            self._c.kiln_attention_forward(
                self._context(device), problem, q, k, v, o, lse, workspace, workspace_bytes, stream
            )
        )

    def backward(self, device, problem, q, k, v, o, lse, dout, dq, dk, dv, workspace, workspace_bytes, stream):
        """A gradient that is not needed is None."""
        self._check(
            self._c.kiln_attention_backward(
                self._context(device), problem, q, k, v, o, lse, dout, dq, dk, dv, workspace, workspace_bytes, stream
            )
        )


@functools.lru_cache(maxsize=None)
def _loaded(path):
    return Library(path)


def load(path=None):
    """The library at `path`, $KILN_LIBRARY, or where `make cuda` leaves it; each file is loaded once."""
    return _loaded(find_library(path))
