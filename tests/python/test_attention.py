"""kiln.attention against PyTorch's own formula: values and gradients, layouts, lengths that vary, errors.

The measure is the plain formula in fp64 from the same rounded inputs: kiln may be at most twice as far from it as the
same formula in kiln's dtype is. Run on every device there is: the CPU, and a GPU."""
import unittest

try:
    import torch
    import torch.nn.attention
except ImportError:
    torch = None

import kiln


def formula(q, k, v, causal, scale):
    """q [B, Tq, H, D], k and v [B, Tk, Hkv, D], in their own dtype; a query that sees nothing gets 0."""
    group = q.shape[2] // k.shape[2]
    q = q.transpose(1, 2)
    k, v = (t.transpose(1, 2).repeat_interleave(group, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~seen, float("-inf"))
        p = torch.softmax(scores, -1).masked_fill(~seen.any(-1, keepdim=True), 0)
    else:
        p = torch.softmax(scores, -1)
    return (p @ v).transpose(1, 2)


def with_gradients(run, tensors, dout):
    tensors = [t.detach().clone().requires_grad_() for t in tensors]
    o = run(*tensors)
    return [o.detach(), *torch.autograd.grad(o, tensors, dout.to(o.dtype))]


def captured_graph(step):
    """The graph of a step that has run once before, and the results that replays write."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    return graph, captured


@unittest.skipIf(torch is None, "torch is not installed")
class AttentionOnCpu(unittest.TestCase):
    device = "cpu"
    dtypes = ("float32", "bfloat16", "float16")

    def setUp(self):
        try:
            kiln.load()
        except kiln.NotAvailable as error:
            self.skipTest(str(error))
        torch.manual_seed(11)

    def normal(self, *shape, dtype=None):
        return torch.randn(*shape, device=self.device).to(dtype or torch.bfloat16)

    def run_or_skip(self, *arguments, **options):
        """kiln.attention; a dtype or width that has no kernel on this device yet is a skip with kiln's reason."""
        try:
            return kiln.attention(*arguments, **options)
        except kiln.NotAvailable as error:
            self.skipTest(str(error))

    def compare(self, got, exact, plain, name):
        self.assertEqual(got.shape, exact.shape, name)
        self.assertTrue(torch.isfinite(got).all().item(), f"{name} is not finite")
        wanted = exact.double()
        error = (got.double() - wanted).abs().max().item()
        plain_error = (plain.double() - wanted).abs().max().item()
        least = 8 * torch.finfo(got.dtype).eps * max(1e-3, wanted.abs().max().item())
        self.assertLessEqual(error, 2 * max(plain_error, least), f"{name}: plain {got.dtype} is off by {plain_error}")

    def check(self, q, k, v, causal=True, scale=None, **options):
        dout = torch.randn(q.shape, device=q.device).to(q.dtype)
        usual = q.shape[-1] ** -0.5 if scale is None else scale
        got = with_gradients(lambda *t: self.run_or_skip(*t, causal=causal, scale=scale, **options), (q, k, v), dout)
        plain = with_gradients(lambda *t: formula(*t, causal, usual), (q, k, v), dout)
        exact = with_gradients(lambda *t: formula(*t, causal, usual), [t.double() for t in (q, k, v)], dout.double())
        for name, g, e, p in zip(("o", "dq", "dk", "dv"), got, exact, plain):
            self.compare(g, e, p, name)

    def test_dtypes_and_widths(self):
        for dtype in self.dtypes:
            for width in (16, 64, 80, 128, 192, 256):
                with self.subTest(dtype=dtype, width=width):
                    t = [self.normal(2, 130, 3, width, dtype=getattr(torch, dtype)) for _ in range(3)]
                    self.check(*t)

    def test_odd_lengths_and_grouped_heads(self):
        for queries, keys, causal in ((1, 1, True), (67, 131, True), (131, 67, False), (1, 257, True), (9, 4, True)):
            with self.subTest(queries=queries, keys=keys, causal=causal):
                q = self.normal(3, queries, 6, 64)
                k, v = self.normal(3, keys, 2, 64), self.normal(3, keys, 2, 64)
                self.check(q, k, v, causal=causal, scale=0.2)

    def test_agrees_with_torchs_own_attention(self):
        q, k, v = (self.normal(2, 96, 4, 64) for _ in range(3))
        heads_first = [t.float().transpose(1, 2) for t in (q, k, v)]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            wanted = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)
        self.compare(self.run_or_skip(q, k, v), wanted, formula(q, k, v, True, 0.125), "o")

    def test_packed_qkv_is_read_in_place(self):
        heads, kv_heads, width = 4, 2, 64
        packed = self.normal(2, 77, (heads + 2 * kv_heads) * width).requires_grad_()
        q, k, v = (
            t.unflatten(-1, (-1, width)) for t in packed.split([heads * width, kv_heads * width, kv_heads * width], -1)
        )
        self.assertFalse(q.is_contiguous())
        o = self.run_or_skip(q, k, v)
        dout = torch.randn_like(o)
        (grad,) = torch.autograd.grad(o, packed, dout)
        dense = with_gradients(lambda *t: kiln.attention(*t), [t.contiguous() for t in (q, k, v)], dout)
        self.assertTrue(torch.equal(o, dense[0]))
        self.assertTrue(torch.equal(grad, torch.cat([t.flatten(-2) for t in dense[1:]], -1)))

    def test_any_layout_gives_the_same_bits(self):
        q, k, v = (self.normal(2, 70, 4, 64) for _ in range(3))
        wanted = self.run_or_skip(q, k, v)
        shifted = torch.empty(q.numel() + 1, dtype=q.dtype, device=q.device)[1:].view(q.shape).copy_(q)
        layouts = {
            "rows outside": q.transpose(0, 1).contiguous().transpose(0, 1),
            "heads outside": q.transpose(1, 2).contiguous().transpose(1, 2),
            "last axis strided": torch.stack([q, q], -1)[..., 0],
            "misaligned": shifted,
        }
        for name, strided in layouts.items():
            with self.subTest(name):
                self.assertEqual(strided.stride() == q.stride() and strided.data_ptr() % 16 == 0, False)
                self.assertTrue(torch.equal(kiln.attention(strided, k, v), wanted))

    def test_one_key_for_the_whole_batch(self):
        q, k, v = self.normal(3, 20, 2, 32), self.normal(1, 20, 2, 32), self.normal(1, 20, 2, 32)
        shared = self.run_or_skip(q, k.expand(3, -1, -1, -1), v.expand(3, -1, -1, -1))
        self.assertTrue(torch.equal(shared, kiln.attention(q, k.repeat(3, 1, 1, 1), v.repeat(3, 1, 1, 1))))

    def test_only_the_gradients_asked_for(self):
        q, k, v = (self.normal(2, 40, 2, 32) for _ in range(3))
        dout = torch.randn_like(q)
        every = with_gradients(self.run_or_skip, (q, k, v), dout)[1:]
        for n in range(3):
            tensors = [t.detach().clone().requires_grad_(i == n) for i, t in enumerate((q, k, v))]
            (grad,) = torch.autograd.grad(kiln.attention(*tensors), tensors[n], dout)
            self.assertTrue(torch.equal(grad, every[n]), f"gradient {n}")

    def test_lse(self):
        q, k, v = (self.normal(2, 33, 2, 64) for _ in range(3))
        o, lse = self.run_or_skip(q, k, v, causal=False, return_lse=True)
        scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) * 0.125
        self.assertEqual(lse.dtype, torch.float32)
        self.assertFalse(lse.requires_grad)
        self.assertLess((lse.double() - scores.logsumexp(-1)).abs().max().item(), 1e-3)

    def test_lengths_that_vary(self):
        cu_q, cu_k = [0, 5, 5, 38, 139], [0, 5, 12, 52, 153]
        q = self.normal(139, 4, 64).requires_grad_()
        k, v = self.normal(153, 2, 64).requires_grad_(), self.normal(153, 2, 64).requires_grad_()
        try:
            o, lse = kiln.attention_varlen(q, k, v, cu_q, torch.tensor(cu_k, dtype=torch.int32), return_lse=True)
        except kiln.NotAvailable as error:
            self.skipTest(str(error))
        dout = torch.randn_like(o)
        grads = torch.autograd.grad(o, (q, k, v), dout)
        for b in range(4):
            rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
            one = [q[None, rows], k[None, keys], v[None, keys]]
            wanted_o, wanted_lse = kiln.attention(*one, return_lse=True)
            self.assertTrue(torch.equal(o[None, rows], wanted_o), b)
            self.assertTrue(torch.equal(lse[None, :, rows], wanted_lse), b)
            wanted = torch.autograd.grad(wanted_o, one, dout[None, rows])
            for name, grad, part, whole in zip("qkv", wanted, (rows, keys, keys), grads):
                self.assertTrue(torch.equal(grad[0], whole[part]), f"d{name} of sequence {b}")

    def test_the_same_bits_every_time(self):
        q, k, v = (self.normal(2, 300, 4, 64) for _ in range(3))
        dout = torch.randn_like(q)
        first = with_gradients(self.run_or_skip, (q, k, v), dout)
        for _ in range(10):
            for a, b in zip(first, with_gradients(kiln.attention, (q, k, v), dout)):
                self.assertTrue(torch.equal(a, b))

    def test_atomics_when_allowed(self):
        self.check(*(self.normal(2, 200, 4, 64) for _ in range(3)), deterministic=False)

    def test_nothing_to_do(self):
        for shape in ((0, 8, 2, 32), (2, 0, 2, 32)):
            q = self.normal(*shape).requires_grad_()
            o = self.run_or_skip(q, q, q)
            self.assertEqual(o.shape, q.shape)
            self.assertEqual(torch.autograd.grad(o.sum(), q)[0].shape, q.shape)

    def test_queries_without_keys_get_zero(self):
        q, k = self.normal(2, 5, 2, 32), self.normal(2, 0, 2, 32)
        self.assertEqual(self.run_or_skip(q, k, k, causal=False).abs().max().item(), 0)

    def test_errors(self):
        q, k, v = (self.normal(2, 8, 4, 32) for _ in range(3))
        wide = self.normal(1, 4, 1, 300)
        cases = [
            (r"q has shape \[8, 4, 32\]", (q[0], k, v), {}),
            (r"k has shape .* v has", (q, k, v[:, :7]), {}),
            (r"q has a batch of 2, k and v of 1", (q, k[:1], v[:1]), {}),
            (r"q has heads of 32, k and v of 16", (q, k[..., :16], v[..., :16]), {}),
            (r"4 heads do not share 3", (q, k[:, :, :3], v[:, :, :3]), {}),
            (r"k is torch.float32", (q, k.float(), v), {}),
            (r"float32, bfloat16 and float16 are known", (q.double(), k.double(), v.double()), {}),
            (r"head_dim is 300; 256 is the most", (wide, wide, wide), {}),
            (r"scale is 0", (q, k, v), {"scale": 0}),
            (r"scale is nan", (q, k, v), {"scale": float("nan")}),
            (r"no variant 'flush'", (q, k, v), {"variant": "flush"}),
            (r"k on meta", (q, k.to("meta"), v), {}),
        ]
        for reason, tensors, options in cases:
            with self.subTest(reason), self.assertRaisesRegex(kiln.BadArgument, reason):
                kiln.attention(*tensors, **options)
        with self.assertRaisesRegex(kiln.NotAvailable, "lse"):
            kiln.attention(q, k, v, variant="naive")
        rows = self.normal(8, 4, 32)
        with self.assertRaisesRegex(kiln.BadArgument, "cu_keys ends at 7"):
            kiln.attention_varlen(rows, rows, rows, [0, 8], [0, 7])
        with self.assertRaisesRegex(kiln.BadArgument, "falls from 9 to 8"):
            kiln.attention_varlen(rows, rows, rows, [0, 9, 8], [0, 4, 8])


class AttentionOnGpu(AttentionOnCpu):
    device = "cuda"

    def setUp(self):
        if not torch.cuda.is_available():
            self.skipTest("PyTorch sees no GPU")
        super().setUp()

    def test_on_a_stream_of_ones_own(self):
        q, k, v = (self.normal(4, 512, 8, 64) for _ in range(3))
        wanted = self.run_or_skip(q, k, v)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Only an op on the same stream sees the doubled values in time.
            o = kiln.attention(q * 1, k * 1, (v * 2).mul_(0.5))
        torch.cuda.current_stream().wait_stream(stream)
        self.assertTrue(torch.equal(o, wanted))

    def test_captured_in_a_graph(self):
        q, k, v = (self.normal(2, 256, 4, 64).requires_grad_() for _ in range(3))
        dout = torch.randn_like(q)

        def step():
            o = self.run_or_skip(q, k, v)
            return (o, *torch.autograd.grad(o, (q, k, v), dout))

        graph, captured = captured_graph(step)
        with torch.no_grad():
            for t in (q, k, v):
                t.copy_(torch.randn_like(t))
        graph.replay()
        for a, b in zip(captured, step()):
            self.assertTrue(torch.equal(a, b))

    def test_tensors_on_the_host_and_the_gpu(self):
        q = self.normal(1, 8, 2, 32)
        with self.assertRaisesRegex(kiln.BadArgument, "q is on cuda:0, k on cpu"):
            kiln.attention(q, q.cpu(), q)
        rows, on_gpu = self.normal(8, 2, 32), torch.tensor([0, 8], dtype=torch.int32, device="cuda")
        with self.assertRaisesRegex(kiln.BadArgument, "in one place"):
            kiln.attention_varlen(rows, rows, rows, on_gpu, [0, 8])
        with self.assertRaisesRegex(kiln.BadArgument, "need max_queries and max_keys"):
            kiln.attention_varlen(rows, rows, rows, on_gpu, on_gpu)
        with self.assertRaisesRegex(kiln.BadArgument, "cu_queries is torch.int64"):
            kiln.attention_varlen(rows, rows, rows, on_gpu.long(), on_gpu.long(), 8, 8)
        with self.assertRaisesRegex(kiln.BadArgument, "cu_queries has 3 entries, cu_keys 2"):
            kiln.attention_varlen(rows, rows, rows, torch.cat([on_gpu, on_gpu[1:]]), on_gpu, 8, 8)

    def varlen(self, dtype):
        """Sequences of 5, 0, 33, 101 and 1 queries beside other numbers of keys, none in one place."""
        cu_q, cu_k = [0, 5, 5, 38, 139, 140], [0, 5, 12, 52, 52, 300]
        q = self.normal(140, 4, 64, dtype=dtype).requires_grad_()
        k, v = (self.normal(300, 2, 64, dtype=dtype).requires_grad_() for _ in range(2))
        return (q, k, v), (cu_q, cu_k), [torch.tensor(c, dtype=torch.int32, device="cuda") for c in (cu_q, cu_k)]

    def test_offsets_on_the_gpu(self):
        """Against plain attention of each sequence, in fp64; twice, to the same bits."""
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for causal in (True, False):
                with self.subTest(dtype=dtype, causal=causal):
                    t, (cu_q, cu_k), on_gpu = self.varlen(dtype)
                    dout = torch.randn_like(t[0])

                    def run():
                        o, lse = kiln.attention_varlen(*t, *on_gpu, 101, 248, causal=causal, return_lse=True)
                        return [o.detach(), lse, *torch.autograd.grad(o, t, dout)]

                    got, again = run(), run()
                    for a, b in zip(got, again):
                        self.assertTrue(torch.equal(a, b))
                    for b in range(5):
                        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
                        one = [x[None, part].detach() for x, part in zip(t, (rows, keys, keys))]
                        if cu_k[b] == cu_k[b + 1]:
                            self.assertEqual(got[0][rows].abs().max().item(), 0)
                            self.assertEqual(got[2][rows].abs().max().item(), 0)
                            self.assertTrue((got[1][:, rows] == float("-inf")).all().item())
                            continue
                        if cu_q[b] == cu_q[b + 1]:
                            self.assertEqual(got[3][keys].abs().max().item(), 0)
                            self.assertEqual(got[4][keys].abs().max().item(), 0)
                            continue
                        part = dout[None, rows]
                        plain = with_gradients(lambda *x: formula(*x, causal, 0.125), one, part)
                        exact = with_gradients(lambda *x: formula(*x, causal, 0.125), [x.double() for x in one], part)
                        parts = (rows, rows, keys, keys)
                        for name, g, s, e, p in zip(("o", "dq", "dk", "dv"), (got[0], *got[2:]), parts, exact, plain):
                            self.compare(g[None, s], e, p, f"{name} of sequence {b}")

    def test_offsets_that_change_in_a_captured_graph(self):
        t, _, on_gpu = self.varlen(torch.bfloat16)
        dout = torch.randn_like(t[0])

        def step():
            o = kiln.attention_varlen(*t, *on_gpu, 140, 300)
            return (o, *torch.autograd.grad(o, t, dout))

        graph, captured = captured_graph(step)
        for values, c in zip(([0, 70, 70, 71, 80, 140], [0, 1, 100, 190, 280, 300]), on_gpu):
            c.copy_(torch.tensor(values, dtype=torch.int32))
        graph.replay()
        for a, b in zip(captured, step()):
            self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
