#!/usr/bin/env python3
"""The clock and power at which FlashAttention-2's calls run back to back, through PyTorch and nvidia-smi.

usage: torch_clocks.py --out FILE.csv [--seconds S]

What a call takes on another device depends on the clock that it ran at here, which a card at its power limit sets by
itself. Each call (bf16, head dimension 128) runs in a loop for S seconds while nvidia-smi is read every 50 ms; readings
of the first half are dropped. A GEMM through cuBLAS and a copy stand beside them: one at the limit, one far from it.

Columns: call_ms = of a call in the loop's later half; clock_mhz, power_w = medians of the readings, their least and
most; readings = how many. Needs a GPU and nvidia-smi: says so and leaves with 77 without.
"""

import argparse
import datetime
import shutil
import statistics
import subprocess
import sys
import threading
import time

HEAD_DIM = 128
COLUMNS = ["call", "call_ms", "clock_mhz", "clock_min", "clock_max", "power_w", "power_min", "power_max", "readings"]
# name, heads, rows, causal, backward
ATTENTION = [(f"fa2-{'bwd' if backward else 'fwd'}-{'causal' if causal else 'full'}-{rows}-h{heads}",
              heads, rows, causal, backward)
             for heads, rows, causal in ((32, 8192, False), (32, 8192, True), (32, 32768, True), (5, 8192, False))
             for backward in (False, True)]


class Readings(threading.Thread):
    """(time, clock, power) of nvidia-smi's lines until it is stopped."""

    def __init__(self, device):
        super().__init__(daemon=True)
        self.rows = []
        self.smi = subprocess.Popen(
            ["nvidia-smi", "-i", device, "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms",
             "50"], stdout=subprocess.PIPE, text=True)

    def run(self):
        for line in self.smi.stdout:
            parts = line.split(",")
            if len(parts) == 2:
                self.rows.append((time.perf_counter(), float(parts[0]), float(parts[1])))

    def stop(self):
        self.smi.terminate()
        self.join()


def attention_call(torch, heads, rows, causal, backward):
    q, k, v, grad = (torch.randn(rows, heads, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    ends = torch.tensor([0, rows], dtype=torch.int32, device="cuda")
    shape = (ends, ends, rows, rows, 0.0, causal)

    def forward():
        return torch.ops.aten._flash_attention_forward(q, k, v, *shape, False, scale=HEAD_DIM**-0.5)[:4]

    out, lse, seed, offset = forward()
    if not backward:
        return forward
    return lambda: torch.ops.aten._flash_attention_backward(
        grad, q, k, v, out, lse, *shape, seed, offset, scale=HEAD_DIM**-0.5)


def calls(torch):
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    yield "gemm-8192", lambda: a @ b
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    yield "copy-1GiB", lambda: target.copy_(source)
    for name, *rest in ATTENTION:
        yield name, attention_call(torch, *rest)


def run(torch, call, seconds, readings):
    """A row's numbers: the later half of a loop of so many seconds."""
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    middle, done = None, 0
    while (now := time.perf_counter()) - begin < seconds:
        if middle is None and now - begin >= seconds / 2:
            middle, done = now, 0
        for _ in range(4):
            call()
        torch.cuda.synchronize()  # a few calls at a time: the host does not run ahead by seconds
        done += 4
    end = time.perf_counter()
    late = [row for row in readings.rows if middle <= row[0] <= end]
    if len(late) < 3:
        sys.exit(f"nvidia-smi gave {len(late)} readings in {end - middle:.2f} s; a longer --seconds is needed")
    numbers = [1e3 * (end - middle) / done]
    for column in (1, 2):
        values = [row[column] for row in late]
        numbers += [statistics.median(values), min(values), max(values)]
    return numbers, len(late)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="CSV file to write")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each loop")
    options = parser.parse_args()
    if not options.seconds > 0:
        parser.error("--seconds: more than 0")
    try:
        import torch
    except ImportError:
        print("torch_clocks.py: PyTorch is not installed", file=sys.stderr)
        return 77
    if not torch.cuda.is_available() or shutil.which("nvidia-smi") is None:
        print("torch_clocks.py: needs a GPU and nvidia-smi", file=sys.stderr)
        return 77
    device = torch.cuda.get_device_properties(0)
    readings = Readings(str(device.uuid) if str(device.uuid).startswith("GPU-") else f"GPU-{device.uuid}")
    readings.start()
    with open(options.out, "w") as out:
        out.write(f"# source: validate/gpu/torch_clocks.py, loops of {options.seconds:g} s\n"
                  f"# device: {device.name}, {device.multi_processor_count} multiprocessors, {device.total_memory} "
                  f"bytes of memory\n# PyTorch: {torch.__version__}, CUDA {torch.version.cuda}\n"
                  f"# date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}\n")
        out.write(",".join(COLUMNS) + "\n")
        for name, call in calls(torch):
            numbers, count = run(torch, call, options.seconds, readings)
            text = [name, *(f"{number:.4f}" for number in numbers), str(count)]
            out.write(",".join(text) + "\n")
            out.flush()
            print(*text, file=sys.stderr, flush=True)
            torch.cuda.empty_cache()
    readings.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
