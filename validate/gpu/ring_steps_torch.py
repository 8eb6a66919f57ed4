#!/usr/bin/env python3
"""When a ring's hop starts and ends beside FlashAttention-2's call, and what such steps take, through PyTorch.

usage: ring_steps_torch.py --out FILE.csv [--rows TOKENS] [--heads N,...]

Steps as the public rings run them (github zhuzilin/ring-flash-attention @8996282): keys and values leave by
batch_isend_irecv, the attention call of what is there follows, then the merge with what was there before (fp32,
log-sum-exp), then the wait for the hop. Backward also adds dK and dV to fp32 sums that go round a step later. Every
step has the same call, without a mask; which half of its rows a zigzag ring takes changes the shape alone:
  whole      all queries on all keys
  half-keys  all queries on half of the keys (zigzag, steps up to the rank); the hop moves all
  half-rows  half of the queries on all keys (the other steps)
Two ranks exchange with each other, so a hop is one message each way over NVLink, as in a ring of more. bf16, head
dimension 128, as many key heads as query heads.

Columns: compute_ms, hop_ms = of a step with calls and merges alone, with hops alone; together_ms = with both (events
around STEPS steps, by STEPS; median, least and most of REPS such loops on the slower rank); from the profiler, in the
loop of both, medians over steps: hop_start_ms, hop_end_ms = of NCCL's kernel after the start of the attention kernel
that was launched right after it; attention_ms = of that kernel (backward: of the one between dO's row sums and the
rounding of dQ), attention_alone_ms = the same without hops. Needs two GPUs: says so and leaves with 77 where there are
fewer.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile

HEAD_DIM, STEPS, REPS, WARM_UPS = 128, 8, 7, 2
SHAPES = ("whole", "half-keys", "half-rows")
COLUMNS = ["pass", "shape", "rows", "heads", "hop_bytes", "compute_ms", "hop_ms", "together_ms", "together_min",
           "together_max", "hop_start_ms", "hop_end_ms", "attention_ms", "attention_alone_ms"]


class Ring:
    """The tensors of one rank and its steps."""

    def __init__(self, torch, dist, shape, rows, heads):
        self.torch, self.dist = torch, dist
        self.peer = 1 - dist.get_rank()

        def tensor(count, dtype=torch.bfloat16):
            return torch.randn(count, heads, HEAD_DIM, device="cuda", dtype=dtype)

        self.q_rows = rows // 2 if shape == "half-rows" else rows
        self.k_rows = rows // 2 if shape == "half-keys" else rows
        self.q, self.grad = tensor(self.q_rows), tensor(self.q_rows)
        self.kv = [tensor(rows), tensor(rows)]
        self.arriving = [torch.empty_like(x) for x in self.kv]
        self.sums = [tensor(rows, torch.float32), tensor(rows, torch.float32)]
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
        functional = self.torch.nn.functional
        for _ in range(STEPS):
            requests = self.hop(self.kv, self.arriving) if hops else []
            if calls:
                out, lse = self.call(*self.kv)[:2]
                lse = lse.transpose(-2, -1).reshape(self.lse.shape)
                self.out = self.out - self.torch.sigmoid(lse - self.lse) * (self.out - out)
                self.lse = self.lse - functional.logsigmoid(self.lse - lse)
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
    """(name, start, end) in ms of the kernels of one loop, in order of their starts."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    found = [(event["name"], event["ts"] * 1e-3, (event["ts"] + event["dur"]) * 1e-3)
             for event in events if event.get("cat") == "kernel"]
    return sorted(found, key=lambda kernel: kernel[1])


def attention_kernels(found, backward):
    part = "flash_bwd_dq_dk_dv" if backward else "flash_fwd"
    return [kernel for kernel in found if part in kernel[0]]


def median_length(spans):
    return statistics.median(end - start for _, start, end in spans)


def hop_spans(found, attention, backward):
    """Of each step's first hop: start and end after the attention kernel launched right after it."""
    hops = [kernel for kernel in found if "nccl" in kernel[0].lower() and "sendrecv" in kernel[0].lower()]
    hops = hops[::2] if backward else hops  # keys and values, then sums, in turn
    if len(hops) != STEPS or len(attention) != STEPS:
        sys.exit(f"{len(hops)} hops and {len(attention)} attention kernels in a loop of {STEPS} steps")
    return [(hop[1] - call[1], hop[2] - call[1]) for hop, call in zip(hops, attention)]


def measure(torch, dist, ring, name, heads, rows):
    backward = name == "bwd"
    run = ring.backward if backward else ring.forward
    compute = loop_ms(torch, dist, lambda: run(False, True))
    hop = loop_ms(torch, dist, lambda: run(True, False))
    together = loop_ms(torch, dist, lambda: run(True, True))
    dist.barrier()
    alone = attention_kernels(kernels(torch, lambda: run(False, True)), backward)
    dist.barrier()
    found = kernels(torch, lambda: run(True, True))
    attention = attention_kernels(found, backward)
    spans = hop_spans(found, attention, backward)
    hop_bytes = sum(x.numel() * x.element_size() for x in (ring.kv + ring.sums if backward else ring.kv))
    median = statistics.median
    return [rows, heads, hop_bytes, median(compute), median(hop), median(together), min(together), max(together),
            median(start for start, _ in spans), median(end for _, end in spans), median_length(attention),
            median_length(alone)]


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
        f"method: loops of {STEPS} steps, {REPS} of them after {WARM_UPS}",
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
    for heads in options.heads:
        for shape in SHAPES:
            ring = Ring(torch, dist, shape, options.rows, heads)
            for name in ("fwd", "bwd"):
                values = measure(torch, dist, ring, name, heads, options.rows)
                if not out:
                    continue
                text = [f"{value:.5f}" if isinstance(value, float) else str(value) for value in values]
                out.write(",".join([name, shape, *text]) + "\n")
                out.flush()
                print(name, shape, *text, file=sys.stderr, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="CSV file to write")
    parser.add_argument("--rows", type=int, default=8192, help="tokens a GPU, a multiple of 2")
    parser.add_argument("--heads", type=lambda text: [int(part) for part in text.split(",")], default=[5, 32])
    options = parser.parse_args()
    if options.rows < 2 or options.rows % 2 != 0 or min(options.heads) < 1:
        parser.error("--rows: a positive multiple of 2; --heads: 1 and more")
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
