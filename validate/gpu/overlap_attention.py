#!/usr/bin/env python3
"""How much attention and NCCL's collectives slow each other down on the GPUs of this host, through PyTorch.

usage: overlap_attention.py --out FILE.csv [--covered] [--sizes BYTES,...] [--ctas N,...]

The counterpart of `longhaul-measure overlap` for attention, with the same method and columns: one process a GPU;
cuDNN's attention through scaled_dot_product_attention (bf16, 32 query and 8 KV heads, head dimension 128, causal, one
sequence of 16,384 tokens), forward and backward (autograd, dQ, dK, dV); collectives of torch.distributed in fp32, on a
stream of normal or high priority. Both ways of that program: loops beside loops, or compute covered by one long
collective. Needs PyTorch with CUDA; says so and leaves with 77 where there is no GPU.
"""

import argparse
import datetime
import math
import os
import statistics
import sys
import time

TOKENS, HEADS, KV_HEADS, HEAD_DIM = 16384, 32, 8, 128
LOOP_MS, CALLS_OF_THE_LONGER, MAX_CALLS, MIN_SAMPLES, TURNS, MOST_TURNS = 15.0, 6, 1000, 9, 3, 6
COVERED_TURNS, SLOW_DOWN, MOST_SLOW_DOWN, MIB = 5, 2.0, 20, 1 << 20
STATISTICS = ("ms", "min_ms", "max_ms", "mean_ms")
KEY = ["compute", "beside", "bytes", "ctas", "priority", "gpus"]
COLUMNS = KEY + [f"{what}_{s}" for what in ("alone", "together", "beside_alone", "beside_together") for s in STATISTICS]
COLUMNS += ["samples", "beside_samples"]


def summary(samples):
    return [statistics.median(samples), min(samples), max(samples), statistics.fmean(samples)]


def run_loops(torch, loops, first_ahead=False):
    """Enqueues loops (call, stream, estimate_ms, calls) at once; returns the (start, end) of every call in ms."""

    def record(stream):
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def call(i):
        function, stream, _, _ = loops[i]
        with torch.cuda.stream(stream):
            function()
        events[i].append(record(stream))

    base = record(loops[0][1])
    events = [[record(loops[0][1])]]
    if first_ahead:
        call(0)
        base.synchronize()
        time.sleep(0.001)
    for _, stream, _, _ in loops[1:]:
        stream.wait_event(base)
        events.append([record(stream)])
    while any(len(events[i]) <= loop[3] for i, loop in enumerate(loops)):
        i = min((len(events[i]) * loop[2], i) for i, loop in enumerate(loops) if len(events[i]) <= loop[3])[1]
        call(i)
    torch.cuda.synchronize()
    times = [[base.elapsed_time(event) for event in row] for row in events]
    return [list(zip(row, row[1:])) for row in times]


def lengths(spans, start, end):
    return [b - a for a, b in spans if a >= start and b <= end]


class Pair:
    """Measures one compute call beside one collective on every rank."""

    def __init__(self, torch, dist, control):
        self.torch, self.dist, self.control = torch, dist, control
        self.streams = {
            "compute": torch.cuda.Stream(),
            "normal": torch.cuda.Stream(),
            "high": torch.cuda.Stream(priority=-5),
        }

    def gather(self, values):
        parts = [None] * self.dist.get_world_size()
        self.dist.all_gather_object(parts, values, group=self.control)
        return [value for part in parts for value in part]

    def any(self, flag):
        return max(self.gather([1 if flag else 0])) > 0

    def loop(self, call, stream):
        """A loop of the call with its estimated time, the same on every rank."""
        self.dist.barrier(group=self.control)
        spans = run_loops(self.torch, [(call, stream, 1.0, 3)])[0]
        return call, stream, max(self.gather([(spans[-1][1] - spans[1][0]) / 2]))

    def alone(self, loop, skip):
        self.dist.barrier(group=self.control)
        return self.gather(lengths(run_loops(self.torch, [loop])[0][skip:], -math.inf, math.inf))

    def loops(self, compute, beside, priority):
        a, b = self.loop(compute, self.streams["compute"]), self.loop(beside, self.streams[priority])
        loop_ms = max(LOOP_MS, CALLS_OF_THE_LONGER * max(a[2], b[2]))
        samples = [[], [], [], []]
        for turn in range(MOST_TURNS):
            if turn >= TURNS:
                if min(len(samples[1]), len(samples[3])) >= MIN_SAMPLES * self.dist.get_world_size():
                    break
                loop_ms *= 2
            loops = [(*a, calls(loop_ms, a[2])), (*b, calls(loop_ms, b[2]))]
            samples[0] += self.alone(loops[0], 1)
            samples[2] += self.alone(loops[1], 1)
            self.dist.barrier(group=self.control)
            spans = run_loops(self.torch, loops)
            start = max(spans[0][0][0], spans[1][0][0])
            end = min(spans[0][-1][1], spans[1][-1][1])
            samples[1] += self.gather(lengths(spans[0], start, end))
            samples[3] += self.gather(lengths(spans[1], start, end))
        return samples

    def covered(self, compute, beside, priority):
        a, b = self.loop(compute, self.streams["compute"]), self.loop(beside, self.streams[priority])
        samples, slow_down, turn = [[], [], [], []], SLOW_DOWN, 0
        while turn < COVERED_TURNS:
            # Compute alone follows a collective, as it does together: clocks that fall with power start as high.
            samples[2] += self.alone((*b, 1), 0)
            samples[0] += self.alone((*a, calls(b[2], a[2])), 1)
            samples[2] += self.alone((*b, 1), 0)
            self.dist.barrier(group=self.control)
            loops = [(*b, 1), (*a, calls(slow_down * b[2], a[2]))]
            (collective,), computes = run_loops(self.torch, loops, first_ahead=True)
            if self.any(computes[-1][1] < collective[1]):  # compute ended first
                slow_down *= 2
                if slow_down > MOST_SLOW_DOWN:
                    raise RuntimeError("the collective takes too long beside compute")
                continue
            samples[1] += self.gather(lengths(computes, -math.inf, collective[1]))
            samples[3] += self.gather([collective[1] - collective[0]])
            turn += 1
        return samples

    def measure(self, covered, compute, beside, priority):
        """The values of a row: four statistics of each of the four samples, and how many there were."""
        samples = (self.covered if covered else self.loops)(compute, beside, priority)
        return [value for part in samples for value in summary(part)] + [len(samples[1]), len(samples[3])]


def calls(loop_ms, estimate_ms):
    return min(max(math.ceil(loop_ms / estimate_ms), CALLS_OF_THE_LONGER), MAX_CALLS)


def attention_calls(torch):
    def tensor(heads, grad=True):
        return torch.randn(1, heads, TOKENS, HEAD_DIM, device="cuda", dtype=torch.bfloat16, requires_grad=grad)

    q, k, v, d_out = tensor(HEADS), tensor(KV_HEADS), tensor(KV_HEADS), tensor(HEADS, False)
    attention = torch.nn.functional.scaled_dot_product_attention

    def forward():
        with torch.no_grad():
            attention(q, k, v, is_causal=True, enable_gqa=True)

    out = attention(q, k, v, is_causal=True, enable_gqa=True)

    def backward():
        torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)

    return [(f"attn_fwd_{TOKENS}_causal", forward), (f"attn_bwd_{TOKENS}_causal", backward)]


def collective_calls(torch, dist, group, size, send, receive):
    """Name and call; `size` is in bytes as nccl-tests counts it: the larger of a rank's two buffers."""
    count = size // 4
    part = count // dist.get_world_size()
    return [
        ("all_reduce", lambda: dist.all_reduce(receive[:count], group=group)),
        ("all_gather", lambda: dist.all_gather_into_tensor(receive[:count], send[:part], group=group)),
        ("reduce_scatter", lambda: dist.reduce_scatter_tensor(receive[:part], send[:count], group=group)),
        ("alltoall", lambda: dist.all_to_all_single(receive[:count], send[:count], group=group)),
    ]


def header(torch, covered):
    device = torch.cuda.get_device_properties(0)
    nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
    others = ("NCCL_DEBUG", "NCCL_VERSION")  # the log, and what container images say of their packages
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NCCL_") and not k.startswith(others))
    return [
        "source: validate/gpu/overlap_attention.py: attention through PyTorch, not through our own wrapper",
        f"device: {torch.cuda.device_count()} x {device.name}, {device.multi_processor_count} multiprocessors, "
        f"{device.total_memory} bytes of memory",
        f"PyTorch: {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()} (attention)",
        f"NCCL: {nccl}",
        *settings,
        f"method: as longhaul-measure overlap{' --covered' if covered else ''}, one process a GPU; all_reduce in "
        "place, on zeros; ctas: ncclConfig maxCTAs; backward through autograd",
        f"date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
    ]


def rank_main(rank, world, options):
    import torch
    import torch.distributed as dist
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.cuda.set_device(rank)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    control = dist.group.WORLD
    groups = {}
    for ctas in options.ctas:
        config = dist.ProcessGroupNCCL.Options()
        if ctas > 0:
            config.config.max_ctas = ctas
        groups[ctas] = dist.new_group(backend="nccl", pg_options=config)
    # A block of NCCL moves about 20 GB/s between two H200: long calls last 30 to 60 ms.
    long_sizes = {ctas: [min(ctas or 16, 16) * 1024 * MIB] for ctas in options.ctas}
    sizes = long_sizes if options.covered else {ctas: options.sizes for ctas in options.ctas}
    count = max(size for row in sizes.values() for size in row) // 4
    send, receive = torch.rand(count, device="cuda"), torch.zeros(count, device="cuda")
    pair = Pair(torch, dist, control)
    out = open(options.out, "w") if rank == 0 else None
    if out:
        out.writelines(f"# {line}\n" for line in header(torch, options.covered))
        out.write(",".join(COLUMNS) + "\n")
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        # Autograd runs a backward on the stream of its forward.
        with torch.cuda.stream(pair.streams["compute"]):
            computes = attention_calls(torch)
        torch.cuda.synchronize()
        points = (
            (compute, ctas, size, collective, priority)
            for compute in computes
            for ctas in options.ctas
            for size in sizes[ctas]
            for collective in collective_calls(torch, dist, groups[ctas], size, send, receive)
            for priority in (["normal"] if options.covered else ["normal", "high"])
        )
        for (compute_name, compute), ctas, size, (name, beside), priority in points:
            receive.zero_()
            torch.cuda.synchronize()
            values = pair.measure(options.covered, compute, beside, priority)
            if not out:
                continue
            key = [compute_name, name, size, ctas or "default", priority, world]
            text = [f"{value:.5f}" if isinstance(value, float) else str(value) for value in key + values]
            out.write(",".join(text) + "\n")
            out.flush()
            ratios = f"compute x {values[7] / values[3]:.3f}, beside x {values[15] / values[11]:.3f}"
            print(*key, ratios, file=sys.stderr, flush=True)
    dist.barrier(group=control)
    # A process that leaves while its peer destroys the groups would make the peer wait.
    dist.destroy_process_group()


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="CSV file to write")
    parser.add_argument("--covered", action="store_true", help="one long collective beside the compute loop")
    parser.add_argument("--sizes", type=numbers, default=[64 * MIB, 256 * MIB, 1024 * MIB], help="bytes")
    parser.add_argument("--ctas", type=numbers, default=[0, 16, 8, 4], help="limits of NCCL's blocks; 0: NCCL's choice")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("overlap_attention.py: PyTorch is not installed", file=sys.stderr)
        return 77
    world = torch.cuda.device_count()
    if world < 2:
        print(f"overlap_attention.py: needs 2 GPUs, {world} are there", file=sys.stderr)
        return 77
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29533")
    torch.multiprocessing.spawn(rank_main, args=(world, options), nprocs=world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
