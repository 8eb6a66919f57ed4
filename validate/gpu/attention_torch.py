"""Times what PyTorch offers for the rows of an attention-bench file: FlexAttention for block diffusion,
FlashAttention-2's variable-length calls for packed documents and plain causal sequences.

    attention_torch.py BENCH.csv OUT.csv [NAME_PART ...]

Writes rows of the same columns. Times are medians of triton.testing.do_bench (L2 flushed before each call, events
around it); backward goes through autograd, whose launch cost is in the time where the kernels are short.
"""

import csv
import sys

import torch
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


def times(call, inputs):
    forward = triton.testing.do_bench(call, warmup=20, rep=150, quantiles=[0.5, 0.0, 1.0])
    out = call()
    gradient = torch.randn_like(out)
    backward = triton.testing.do_bench(
        lambda: out.backward(gradient, retain_graph=True), warmup=20, rep=150, quantiles=[0.5, 0.0, 1.0],
        grad_to_none=inputs)
    return {"fwd": forward, "bwd": backward}


def flex_times(row, compiled):
    (length, _), = pieces_of(row["pieces"])
    kind, block = row["mask"].split(":")
    rule = diffusion_rule(length, int(block), kind.endswith("token"))
    mask = create_block_mask(rule, None, None, 2 * length, 2 * length, device="cuda", _compile=True)
    heads, kv_heads, dim = int(row["q_heads"]), int(row["kv_heads"]), int(row["head_dim"])
    q = random_rows(1, heads, 2 * length, dim)
    k, v = random_rows(1, kv_heads, 2 * length, dim), random_rows(1, kv_heads, 2 * length, dim)
    return times(lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True), [q, k, v])


def varlen_times(row):
    pieces = pieces_of(row["pieces"])
    ends = torch.tensor([0] + [q for q, _ in pieces]).cumsum(0).int().cuda()
    longest = max(q for q, _ in pieces)
    heads, kv_heads, dim = int(row["q_heads"]), int(row["kv_heads"]), int(row["head_dim"])
    total = int(ends[-1])
    q, k, v = random_rows(total, heads, dim), random_rows(total, kv_heads, dim), random_rows(total, kv_heads, dim)
    call = lambda: torch.ops.aten._flash_attention_forward(  # noqa: E731
        q, k, v, ends, ends, longest, longest, 0.0, True, False, scale=dim**-0.5)[0]
    return times(call, [q, k, v])


def main():
    source, target, *parts = sys.argv[1:]
    with open(source) as file:
        comments = [line for line in file if line.startswith("#")]
    with open(source) as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    torch._functorch.config.donated_buffer = False  # backward runs many times over one graph
    compiled = torch.compile(flex_attention)
    with open(target, "w", newline="") as file:
        file.writelines(comments)
        file.write(f"# PyTorch {torch.__version__}; medians of triton.testing.do_bench\n")
        out = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        out.writeheader()
        for row in rows:
            if row["impl"] != "longhaul-hopper" or row["pass"] != "fwd":
                continue
            if parts and not any(part in row["name"] for part in parts):
                continue
            diffusion = row["mask"].startswith("block-diffusion")
            if not diffusion and (row["mask"] != "causal" or any(q != k for q, k in pieces_of(row["pieces"]))):
                continue
            impl = "torch-flex" if diffusion else "torch-fa2-varlen"
            flops = float(row["tflops"]) * float(row["ms_median"])
            for name, (median, least, most) in (flex_times(row, compiled) if diffusion else varlen_times(row)).items():
                rate = flops * (2.5 if name == "bwd" else 1.0) / median
                out.writerow({**row, "pass": name, "impl": impl, "ms_median": f"{median:.5f}", "ms_min": f"{least:.5f}",
                              "ms_max": f"{most:.5f}", "samples": "", "batch_ms": "", "tflops": f"{rate:.1f}"})
                file.flush()
                print(f"{row['name']:28} {impl:18} {name} {median:9.4f} ms {rate:7.1f} TFLOP/s", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
