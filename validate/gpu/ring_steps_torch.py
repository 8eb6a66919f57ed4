#!/usr/bin/env python3
"""How long a ring's hop stands beside FlashAttention-2's call, and what such steps take, through PyTorch.

usage: ring_steps_torch.py --out FILE.csv [--rows TOKENS] [--heads Q:K,...]

Steps as the public rings run them (github zhuzilin/ring-flash-attention @8996282): keys and values leave by
batch_isend_irecv, the attention call of what is there follows, then the merge with what was there before (fp32,
log-sum-exp, fused by TorchScript), then the wait for the hop. Backward also adds dK and dV to fp32 sums that go round a
step later. Every step has the same call, without a mask; which half of its rows a zigzag ring takes changes the shape
alone:
  whole      all queries on all keys
  half-keys  all queries on half of the keys (zigzag, steps up to the rank); the hop moves all
  half-rows  half of the queries on all keys (the other steps)
Two ranks exchange with each other, so a hop is one message each way over NVLink, as in a ring of more. bf16, head
dimension 128.

Columns: compute_ms, hop_ms = of a step with calls and merges alone, with hops alone; together_ms = with both (events
around STEPS steps, by STEPS; median, least and most of REPS such loops on the slower rank). From the profiler, LOOPS
loops of both without a barrier between them: hop_blocks = of NCCL's kernel; skew_ms = median of how far apart the two
ranks start a hop; attention_alone_ms = median of the attention kernel without hops (backward: of the one between the
row sums of dO and the rounding of dQ); for rank 0 and 1: attention_ms = the same with hops, held = mean share of its
time in which a kernel of NCCL stood beside it, hop_start_ms, hop_end_ms = medians after its start, of the hop that was
launched right before it. Needs two GPUs: says so and leaves with 77 where there are fewer.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile

HEAD_DIM, STEPS, REPS, WARM_UPS, LOOPS = 128, 8, 7, 2, 6
SHAPES = ("whole", "half-keys", "half-rows")
OF_A_RANK = ["attention_ms", "held", "hop_start_ms", "hop_end_ms"]
COLUMNS = ["pass", "shape", "rows", "heads", "key_heads", "hop_bytes", "compute_ms", "hop_ms", "together_ms",
           "together_min", "together_max", "hop_blocks", "skew_ms", "attention_alone_ms",
           *(f"{name}_{rank}" for rank in (0, 1) for name in OF_A_RANK)]


def merge_function(torch):
    """Of a part and its log-sum-exp into the sums, as one fused kernel."""

    @torch.jit.script
    def merge(out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor):
        part = part.to(torch.float32)
        part_lse = part_lse.transpose(-2, -1).unsqueeze(-1)
        out = out - torch.sigmoid(part_lse - lse) * (out - part)
        lse = lse - torch.nn.functional.logsigmoid(lse - part_lse)
        return out, lse

    return merge


class Ring:
    """The tensors of one rank and its steps."""

    def __init__(self, torch, dist, merge, shape, rows, heads, key_heads):
        self.torch, self.dist, self.merge = torch, dist, merge
        self.peer = 1 - dist.get_rank()

        def tensor(count, dtype=torch.bfloat16, width=heads):
            return torch.randn(count, width, HEAD_DIM, device="cuda", dtype=dtype)

        self.q_rows = rows // 2 if shape == "half-rows" else rows
        self.k_rows = rows // 2 if shape == "half-keys" else rows
        self.q, self.grad = tensor(self.q_rows), tensor(self.q_rows)
        self.kv = [tensor(rows, width=key_heads), tensor(rows, width=key_heads)]
        self.arriving = [torch.empty_like(x) for x in self.kv]
        self.sums = [tensor(rows, torch.float32, key_heads), tensor(rows, torch.float32, key_heads)]
        self.arriving_sums = [torch.empty_like(x) for x in self.sums]
        self.out = tensor(self.q_rows, torch.float32)
        self.lse = torch.randn(self.q_rows, heads, 1, device="cuda")
        self.dq = torch.zeros_like(self.out)
        ends = [torch.tensor([0, count], dtype=torch.int32, device="cuda") for count in (self.q_rows, self.k_rows)]
        self.lengths = (*ends, self.q_rows, self.k_rows, 0.0, False)
        self.result = self.call(*self.kv)

    def hop(self, leaving, arriving):
        pairs = zip(leaving, arriving)
        ops = [op for out, into in pairs
               for op in (self.dist.P2POp(self.dist.isend, out, self.peer),
                          self.dist.P2POp(self.dist.irecv, into, self.peer))]
        return self.dist.batch_isend_irecv(ops)

    @staticmethod
    def wait(requests):
        for request in requests:
            request.wait()

    def call(self, k, v):
        return self.torch.ops.aten._flash_attention_forward(
            self.q, k[: self.k_rows], v[: self.k_rows], *self.lengths, False, scale=HEAD_DIM**-0.5)[:4]

    def forward(self, hops, calls):
        for _ in range(STEPS):
            requests = self.hop(self.kv, self.arriving) if hops else []
            if calls:
                out, lse = self.call(*self.kv)[:2]
                self.out, self.lse = self.merge(self.out, self.lse, out, lse)
            self.wait(requests)
            if hops:
                self.kv, self.arriving = self.arriving, self.kv

    def backward(self, hops, calls):
        out, lse, seed, offset = self.result
        sums_on_their_way = []
        for _ in range(STEPS):
            requests = self.hop(self.kv, self.arriving) if hops else []
            if calls:
                dq, dk, dv = self.torch.ops.aten._flash_attention_backward(
                    self.grad, self.q, self.kv[0][: self.k_rows], self.kv[1][: self.k_rows], out, lse, *self.lengths,
                    seed, offset, scale=HEAD_DIM**-0.5)
                self.dq += dq
            self.wait(sums_on_their_way)
            if calls:
                self.sums[0][: self.k_rows] += dk
                self.sums[1][: self.k_rows] += dv
            self.wait(requests)
            if hops:
                self.kv, self.arriving = self.arriving, self.kv
                self.sums, self.arriving_sums = self.arriving_sums, self.sums
                sums_on_their_way = self.hop(self.arriving_sums, self.sums)
        self.wait(sums_on_their_way)


def loop_ms(torch, dist, run):
    """Of a step, on the slower rank, in each of REPS loops."""
    samples = []
    for rep in range(WARM_UPS + REPS):
        dist.barrier()
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        slower = torch.tensor([start.elapsed_time(end) / STEPS], device="cuda")
        dist.all_reduce(slower, op=dist.ReduceOp.MAX)
        if rep >= WARM_UPS:
            samples.append(slower.item())
    return samples


def kernels(torch, run):
    """(name, start, end in ms, blocks) of the kernels of `run`, in order of their starts, by a clock of the host."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path) as file:
            trace = json.load(file)
    base = trace.get("baseTimeNanoseconds", 0) * 1e-6
    found = [(event["name"], base + event["ts"] * 1e-3, base + (event["ts"] + event["dur"]) * 1e-3,
              event["args"]["grid"][0]) for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    return sorted(found, key=lambda kernel: kernel[1])


def spans(found, part):
    return [(start, end) for name, start, end, _ in found if part in name]


def is_hop(name):
    return "nccl" in name.lower() and "sendrecv" in name.lower()


def calls_and_hops(found, backward):
    """Attention calls, all hops, and the first hop of each step, of as many steps as were profiled."""
    attention = spans(found, "flash_bwd_dq_dk_dv" if backward else "flash_fwd")
    hops = [(start, end) for name, start, end, _ in found if is_hop(name)]
    firsts = hops[::2] if backward else hops  # keys and values, then sums, in turn
    if len(attention) != STEPS * LOOPS or len(firsts) != len(attention):
        sys.exit(f"{len(hops)} hops and {len(attention)} attention kernels in {STEPS * LOOPS} steps")
    return attention, hops, firsts


def shared(a, b):
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0]))


def of_a_rank(attention, hops, firsts):
    """The columns of OF_A_RANK."""
    held = [sum(shared(call, hop) for hop in hops) / (call[1] - call[0]) for call in attention]
    median = statistics.median
    return [median(end - start for start, end in attention), statistics.mean(held),
            median(hop[0] - call[0] for hop, call in zip(firsts, attention)),
            median(hop[1] - call[0] for hop, call in zip(firsts, attention))]


def measure(torch, dist, ring, name):
    backward = name == "bwd"
    run = ring.backward if backward else ring.forward
    compute = loop_ms(torch, dist, lambda: run(False, True))
    hop = loop_ms(torch, dist, lambda: run(True, False))
    together = loop_ms(torch, dist, lambda: run(True, True))
    part = "flash_bwd_dq_dk_dv" if backward else "flash_fwd"
    dist.barrier()
    alone = spans(kernels(torch, lambda: run(False, True)), part)
    dist.barrier()
    found = kernels(torch, lambda: [run(True, True) for _ in range(LOOPS)])
    mine = (*calls_and_hops(found, backward), max(blocks for text, _, _, blocks in found if is_hop(text)))
    ranks = [None, None]
    dist.all_gather_object(ranks, mine)
    median = statistics.median
    skew = median(abs(a[0] - b[0]) for a, b in zip(ranks[0][2], ranks[1][2]))
    hop_bytes = sum(x.numel() * x.element_size() for x in (ring.kv + ring.sums if backward else ring.kv))
    return [hop_bytes, median(compute), median(hop), median(together), min(together), max(together), mine[3], skew,
            median(end - start for start, end in alone), *of_a_rank(*ranks[0][:3]), *of_a_rank(*ranks[1][:3])]


def header(torch):
    device = torch.cuda.get_device_properties(0)
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k == "NCCL_NVLS_ENABLE")
    return [
        "source: validate/gpu/ring_steps_torch.py",
        f"device: {torch.cuda.device_count()} x {device.name}, {device.multi_processor_count} multiprocessors, "
        f"{device.total_memory} bytes of memory",
        f"PyTorch: {torch.__version__}, CUDA {torch.version.cuda}; FlashAttention-2 through aten",
        "NCCL: " + ".".join(str(part) for part in torch.cuda.nccl.version()),
        *settings,
        f"method: loops of {STEPS} steps, {REPS} of them after {WARM_UPS}; {LOOPS} profiled",
        f"date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
    ]


def rank_main(rank, options):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    out = open(options.out, "w") if rank == 0 else None
    if out:
        out.writelines(f"# {line}\n" for line in header(torch))
        out.write(",".join(COLUMNS) + "\n")
    merge = merge_function(torch)
    for heads, key_heads in options.heads:
        for shape in SHAPES:
            ring = Ring(torch, dist, merge, shape, options.rows, heads, key_heads)
            for name in ("fwd", "bwd"):
                values = [options.rows, heads, key_heads, *measure(torch, dist, ring, name)]
                if not out:
                    continue
                text = [f"{value:.5f}" if isinstance(value, float) else str(value) for value in values]
                out.write(",".join([name, shape, *text]) + "\n")
                out.flush()
                print(name, shape, *text, file=sys.stderr, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def heads_of(text):
    pairs = [tuple(int(part) for part in pair.split(":")) for pair in text.split(",")]
    if any(len(pair) != 2 or min(pair) < 1 or pair[0] % pair[1] for pair in pairs):
        raise argparse.ArgumentTypeError("pairs Q:K of heads, Q a multiple of K")
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="CSV file to write")
    parser.add_argument("--rows", type=int, default=8192, help="tokens a GPU, a multiple of 2")
    parser.add_argument("--heads", type=heads_of, default="32:32,5:5,32:8", help="query and key heads of each ring")
    options = parser.parse_args()
    if options.rows < 2 or options.rows % 2 != 0:
        parser.error("--rows: a positive multiple of 2")
    try:
        import torch
    except ImportError:
        print("ring_steps_torch.py: PyTorch is not installed", file=sys.stderr)
        return 77
    if torch.cuda.device_count() < 2:
        print(f"ring_steps_torch.py: needs 2 GPUs, {torch.cuda.device_count()} are there", file=sys.stderr)
        return 77
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29533")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.multiprocessing.spawn(rank_main, args=(options,), nprocs=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
