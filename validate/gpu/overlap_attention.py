#!/usr/bin/env python3
"""How much attention and NCCL's collectives slow each other down on the GPUs of this host, through PyTorch.

usage: overlap_attention.py --out FILE.csv [--sizes BYTES,...] [--ctas N,...]

The counterpart of `longhaul-measure overlap` for attention, with the same method and columns: one process a GPU; cuDNN's
attention through scaled_dot_product_attention (bf16, 32 query and 8 KV heads, head dimension 128, causal, one sequence
of 16,384 tokens), forward and backward (autograd, dQ, dK, dV); collectives of torch.distributed in fp32, on a stream of
normal or high priority. Loops of back-to-back calls with an event after each; only calls that lie wholly within the time
in which both loops ran count. Needs PyTorch with CUDA; says so and leaves with 77 where there is no GPU.
"""

import argparse
import datetime
import math
import os
import statistics
import sys

TOKENS, HEADS, KV_HEADS, HEAD_DIM = 16384, 32, 8, 128
LOOP_MS, CALLS_OF_THE_LONGER, MAX_CALLS, MIN_SAMPLES, TRIES = 40.0, 14, 1000, 9, 4
STATISTICS = ("ms", "min_ms", "max_ms", "mean_ms")
KEY = ["compute", "beside", "bytes", "ctas", "priority", "gpus"]
COLUMNS = KEY + [f"{what}_{s}" for what in ("alone", "together", "beside_alone", "beside_together") for s in STATISTICS]
COLUMNS += ["samples", "beside_samples"]


def summary(samples):
    return [statistics.median(samples), min(samples), max(samples), statistics.fmean(samples)]


def run_loops(torch, loops):
    """Enqueues loops (call, stream, estimate_ms, calls) at once; returns the (start, end) of every call in ms."""
    base = torch.cuda.Event(enable_timing=True)
    base.record(loops[0][1])
    events, done = [], [0] * len(loops)
    for _, stream, _, _ in loops:
        stream.wait_event(base)
        first = torch.cuda.Event(enable_timing=True)
        first.record(stream)
        events.append([first])
    while any(done[i] < loop[3] for i, loop in enumerate(loops)):
        ready = [(done[i] * loop[2], i) for i, loop in enumerate(loops) if done[i] < loop[3]]
        i = min(ready)[1]
        call, stream, _, _ = loops[i]
        with torch.cuda.stream(stream):
            call()
            event = torch.cuda.Event(enable_timing=True)
            event.record(stream)
        events[i].append(event)
        done[i] += 1
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

    def estimate(self, call, stream):
        spans = run_loops(self.torch, [(call, stream, 1.0, 5)])[0]
        return max(self.gather([(spans[-1][1] - spans[1][0]) / 4]))

    def alone(self, loop):
        self.dist.barrier(group=self.control)
        spans = run_loops(self.torch, [loop])[0]
        return summary(self.gather(lengths(spans[1:], -math.inf, math.inf)))

    def measure(self, compute, beside, priority):
        a, b = self.streams["compute"], self.streams[priority]
        a_ms, b_ms = self.estimate(compute, a), self.estimate(beside, b)
        loop_ms = max(LOOP_MS, CALLS_OF_THE_LONGER * max(a_ms, b_ms))

        def loops():
            def calls(ms):
                return min(max(math.ceil(loop_ms / ms), CALLS_OF_THE_LONGER), MAX_CALLS)

            return [(compute, a, a_ms, calls(a_ms)), (beside, b, b_ms, calls(b_ms))]

        compute_alone, beside_alone = (self.alone(loop) for loop in loops())
        for _ in range(TRIES):
            self.dist.barrier(group=self.control)
            spans = run_loops(self.torch, loops())
            start = max(spans[0][0][0], spans[1][0][0])
            end = min(spans[0][-1][1], spans[1][-1][1])
            computes = self.gather(lengths(spans[0], start, end))
            besides = self.gather(lengths(spans[1], start, end))
            if min(len(computes), len(besides)) >= MIN_SAMPLES * self.dist.get_world_size():
                together = summary(computes), summary(besides)
                return [*compute_alone, *together[0], *beside_alone, *together[1], len(computes), len(besides)]
            loop_ms *= 2
        raise RuntimeError("the loops never lay beside each other for long enough")


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


def header(torch):
    device = torch.cuda.get_device_properties(0)
    nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NCCL_") and "DEBUG" not in k)
    return [
        "source: validate/gpu/overlap_attention.py: attention through PyTorch, not through our own wrapper",
        f"device: {torch.cuda.device_count()} x {device.name}, {device.multi_processor_count} multiprocessors, "
        f"{device.total_memory} bytes of memory",
        f"PyTorch: {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, cuDNN attention",
        f"NCCL: {nccl}",
        *settings,
        "method: as longhaul-measure overlap, one process a GPU; all_reduce in place, on zeros; ctas: ncclConfig maxCTAs; "
        "backward through autograd",
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
    count = max(options.sizes) // 4
    send, receive = torch.rand(count, device="cuda"), torch.zeros(count, device="cuda")
    pair = Pair(torch, dist, control)
    out = open(options.out, "w") if rank == 0 else None
    if out:
        out.writelines(f"# {line}\n" for line in header(torch))
        out.write(",".join(COLUMNS) + "\n")
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        # Autograd runs a backward on the stream of its forward.
        with torch.cuda.stream(pair.streams["compute"]):
            computes = attention_calls(torch)
        torch.cuda.synchronize()
        for compute_name, compute in computes:
            for ctas, group in groups.items():
                for size in options.sizes:
                    for name, beside in collective_calls(torch, dist, group, size, send, receive):
                        for priority in ("normal", "high"):
                            receive.zero_()
                            torch.cuda.synchronize()
                            values = pair.measure(compute, beside, priority)
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
    parser.add_argument("--sizes", type=numbers, default=[64 << 20, 256 << 20, 1 << 30], help="bytes")
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
