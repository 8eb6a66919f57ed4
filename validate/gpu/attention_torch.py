"""Times what PyTorch offers for rows of attention-bench: FlexAttention for block diffusion, FlashAttention-2's
variable-length calls for packed documents and plain causal sequences.

    attention_torch.py BENCH.csv --out OUT.csv [--names NAME,NAME...]
    attention_torch.py ROWS.csv --warm [--names NAME,NAME...]

The first writes rows of the same columns, in the order of the names. Times are of one call: medians of
triton.testing.do_bench (L2 flushed before each call, events around it); backward goes through autograd, whose launch
cost is in the time where the kernels are short. The second compiles only, from `attention-bench --list`: several such
processes at once fill the caches (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR) that the first then reads.

FlexAttention is compiled for each row by itself with all lengths known (dynamic=False), the best case for it; a call
that would fall back to uncompiled code ends the program.
"""

import argparse
import csv
import sys

import torch
import torch._dynamo.config
import torch._functorch.config
import triton.testing
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def pieces_of(text):
    return [tuple(int(side) for side in part.split("x")) for part in text.split(";")]


def diffusion_rule(length, block, token_causal):
    """csbp.md 2.1: rows 0 .. length-1 are the corrupted copy, the next ones the clean sequence."""

    def rule(b, h, q, k):
        noisy_q, noisy_k = q < length, k < length
        token_q = torch.where(noisy_q, q, q - length)
        token_k = torch.where(noisy_k, k, k - length)
        block_q, block_k = token_q // block, token_k // block
        among_clean = token_k <= token_q if token_causal else block_k <= block_q
        of_clean = torch.where(noisy_q, block_k < block_q, among_clean)
        return torch.where(noisy_k, noisy_q & (block_q == block_k), of_clean)

    return rule


def random_rows(*shape):
    return torch.rand(shape, device="cuda", dtype=torch.float32).mul_(2).sub_(1).bfloat16().requires_grad_(True)


def flex_call(row):
    (length, _), = pieces_of(row["pieces"])
    kind, block = row["mask"].split(":")
    rule = diffusion_rule(length, int(block), kind.endswith("token"))
    torch._dynamo.reset()  # each row compiles for its own lengths, and none counts against a limit of recompiling
    blocks = torch.compile(create_block_mask, dynamic=False)
    mask = blocks(rule, None, None, 2 * length, 2 * length, device="cuda")
    heads, kv_heads, dim = int(row["q_heads"]), int(row["kv_heads"]), int(row["head_dim"])
    q = random_rows(1, heads, 2 * length, dim)
    k, v = random_rows(1, kv_heads, 2 * length, dim), random_rows(1, kv_heads, 2 * length, dim)
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True), [q, k, v]


def varlen_call(row):
    pieces = pieces_of(row["pieces"])
    ends = torch.tensor([0] + [q for q, _ in pieces]).cumsum(0).int().cuda()
    longest = max(q for q, _ in pieces)
    heads, kv_heads, dim = int(row["q_heads"]), int(row["kv_heads"]), int(row["head_dim"])
    total = int(ends[-1])
    q, k, v = random_rows(total, heads, dim), random_rows(total, kv_heads, dim), random_rows(total, kv_heads, dim)
    return lambda: torch.ops.aten._flash_attention_forward(
        q, k, v, ends, ends, longest, longest, 0.0, True, False, scale=dim**-0.5)[0], [q, k, v]


def seconds_of(call):
    """Of one call, by events, after one that compiles."""
    call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3


def median_least_most(call, inputs=None):
    milliseconds = max(150, 4e3 * seconds_of(call))  # at least three calls of those that take long
    return triton.testing.do_bench(
        call, warmup=20, rep=milliseconds, quantiles=[0.5, 0.0, 1.0], grad_to_none=inputs)


def times(call, inputs):
    """Of each pass: median, least and most, in ms."""
    forward = median_least_most(call)
    out = call()
    gradient = torch.randn_like(out)
    return {"fwd": forward,
            "bwd": median_least_most(lambda: out.backward(gradient, retain_graph=True), inputs)}


def compile_only(call):
    out = call()
    out.backward(torch.randn_like(out))
    torch.cuda.synchronize()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", help="file of attention-bench")
    parser.add_argument("--out", help="CSV file to write")
    parser.add_argument("--names", help="rows to take, in this order", type=lambda text: text.split(","))
    parser.add_argument("--warm", action="store_true", help="compile, time nothing")
    options = parser.parse_args()
    if options.warm == bool(options.out):
        parser.error("needs either --out FILE or --warm")
    return options


def runs_here(row):
    diffusion = row["mask"].startswith("block-diffusion")
    return diffusion or (row["mask"] == "causal" and all(q == k for q, k in pieces_of(row["pieces"])))


def chosen(options):
    """Comment lines, and a row for each name; of a bench file those of our own kernel, whose pairs set the rates."""
    with open(options.rows) as file:
        lines = file.readlines()
    rows = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        if options.warm or (row["impl"] == "longhaul-hopper" and row["pass"] == "fwd"):
            rows.setdefault(row["name"], row)
    names = options.names or [name for name, row in rows.items() if runs_here(row)]
    wrong = [name for name in names if name not in rows or not runs_here(rows[name])]
    if wrong:
        sys.exit(f"{options.rows}: no row of PyTorch's named {', '.join(wrong)}")
    return [line for line in lines if line.startswith("#")], [rows[name] for name in names]


def time_rows(comments, rows, target):
    with open(target, "w", newline="") as file:
        file.writelines(comments)
        file.write(f"# PyTorch {torch.__version__}; medians of triton.testing.do_bench\n")
        out = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        out.writeheader()
        for row in rows:
            diffusion = row["mask"].startswith("block-diffusion")
            impl = "torch-flex" if diffusion else "torch-fa2-varlen"
            flops = float(row["tflops"]) * float(row["ms_median"])
            call, inputs = (flex_call if diffusion else varlen_call)(row)
            for name, (median, least, most) in times(call, inputs).items():
                rate = flops * (2.5 if name == "bwd" else 1.0) / median
                out.writerow({**row, "pass": name, "impl": impl, "ms_median": f"{median:.5f}", "ms_min": f"{least:.5f}",
                              "ms_max": f"{most:.5f}", "samples": "", "batch_ms": "", "tflops": f"{rate:.1f}"})
                file.flush()
                print(f"{row['name']:28} {impl:18} {name} {median:9.4f} ms {rate:7.1f} TFLOP/s", flush=True)
            del call, inputs
            torch.cuda.empty_cache()


def main():
    options = arguments()
    torch._functorch.config.donated_buffer = False  # backward runs many times over one graph
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    comments, rows = chosen(options)
    if options.warm:
        for row in rows:
            if row["mask"].startswith("block-diffusion"):
                compile_only(flex_call(row)[0])
        return
    time_rows(comments, rows, options.out)


if __name__ == "__main__":
    main()
