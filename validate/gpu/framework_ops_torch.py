#!/usr/bin/env python3
"""Times what eager code around context-parallel attention runs, on one GPU, through PyTorch.

usage: framework_ops_torch.py OUT.csv [GROUP ...]

Groups:
  cat     rows of one tensor taken slice by slice and joined; `slices` views are made within the call
  add     `x[a:b] += y[a:b]`, slice by slice (bf16)
  copy    clone, a transposed tensor made contiguous, casts, zeros, sums, empty
  index   half the rows of a tensor: by a mask on the host, a mask or a list of indices on the device; read and written
  permute rows, heads and ranks of a tensor in another order made contiguous, as around Ulysses' exchanges; log-sum-exps
          of padded rows; weight and bias gradients of the projections
  gather  torch.gather and scatter_ of rows by one index a row, expanded over heads and columns
  merge   a partial output joined with the sum so far (fp32): one TorchScript function, or op by op
  host    what the host does with documents' boundaries that lie on the device: single values read, a mask of halves
          built from them, rows of halves copied document by document
  fa2     FlashAttention-2's variable-length calls, forward and backward, on lists that separate work from the blocks
          of the grid that have none (`longest` larger than the longest piece adds such blocks alone)

Three times a row, each the median, least and most of `reps` calls, in ms:
  device  between events around the call, the GPU kept busy beforehand, so that the host is ahead of it; a call that
          waits for the GPU cannot be ahead: its device time has the host's share after each wait
  host    until the Python call returns, the GPU idle beforehand
  loop    of one call in a loop of calls (once a row)
Operands are random bf16 unless said, the L2 is not flushed. `bytes` is what the op must read and write at least. Needs
a GPU: says so and leaves with 77 where there is none. A row that cannot run is a comment line with its reason.
"""

import csv
import datetime
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch_timing import wall

COLUMNS = ["group", "op", "shape", "slices", "bytes", "device_ms", "device_min", "device_max", "host_ms", "host_min",
           "host_max", "loop_ms", "reps"]
HEAD_DIM, WIDTH, MIB = 128, 4096, 1 << 20  # a row of 32 heads: 8 KiB of bf16
ROW_SECONDS, MOST_REPS, LEAST_REPS = 0.05, 15, 3
DEVICE = "cuda"


def spread(samples):
    return [f"{value * 1e3:.5f}" for value in (statistics.median(samples), min(samples), max(samples))]


def device_seconds(call, cycles):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def timed(call):
    """Columns of times. The busy wait before a call lasts twice the host's time (2 GHz), 60 ms at most."""
    for _ in range(3):
        host, both = wall(call)
    reps = max(LEAST_REPS, min(MOST_REPS, int(ROW_SECONDS / max(both, 1e-5))))
    hosts = [wall(call)[0] for _ in range(reps)]
    cycles = int(2e9 * min(0.06, 2 * statistics.median(hosts) + 2e-5))
    devices = [device_seconds(call, cycles) for _ in range(reps)]
    loop = wall(call, reps)[1] / reps
    return spread(devices) + spread(hosts) + [f"{loop * 1e3:.5f}", reps]


class Table:
    def __init__(self, file):
        self.file = file
        self.writer = csv.writer(file, lineterminator="\n")

    def row(self, group, op, shape, slices, size, make):
        """`make` gives the call; operands live as long as it."""
        try:
            with torch.no_grad():
                columns = timed(make())
        except Exception as error:  # one row's fault is no reason to lose the others
            self.file.write(f"# {group} {op} {shape}: {type(error).__name__}: {str(error).splitlines()[0]}\n")
            torch.cuda.synchronize()
            return
        self.writer.writerow([group, op, shape, slices, int(size)] + columns)
        self.file.flush()


def rows_of(rows, width=WIDTH, dtype=torch.bfloat16):
    return torch.randn(rows, width, device=DEVICE, dtype=dtype)


def ends_of(rows, slices):
    return [(rows * i // slices, rows * (i + 1) // slices) for i in range(slices)]


def join(table):
    for mib in (1, 16, 128, 1024):
        rows = mib * MIB // (2 * WIDTH)
        for slices in (1, 2, 16, 128, 512, 1664, 4096):
            if slices > rows:
                continue

            def make(rows=rows, slices=slices):
                source, ends = rows_of(rows), list(reversed(ends_of(rows, slices)))
                return lambda: torch.cat([source[a:b] for a, b in ends], dim=0)

            table.row("cat", "slices", f"{rows}x{WIDTH}", slices, 2 * mib * MIB, make)

    def views():
        source, ends = rows_of(4096), ends_of(4096, 1024)
        return lambda: [source[a:b] for a, b in ends]

    table.row("cat", "views_alone", f"4096x{WIDTH}", 1024, 0, views)

    def outputs():
        parts = [rows_of(8192), rows_of(8192)]
        return lambda: torch.cat(parts, dim=0)

    table.row("cat", "outputs", f"16384x{WIDTH}", 2, 4 * 8192 * WIDTH * 2, outputs)


def add_slices(table):
    for mib, slices in ((1024, 1), (1024, 16), (1024, 128), (1024, 512), (1024, 1664), (128, 1), (128, 128), (16, 128),
                        (16, 512)):
        rows = mib * MIB // (2 * WIDTH)

        def make(rows=rows, slices=slices):
            total, part, ends = rows_of(rows), rows_of(rows), ends_of(rows, slices)

            def call():
                for a, b in ends:
                    total[a:b] += part[a:b]

            return call

        table.row("add", "slices", f"{rows}x{WIDTH}", slices, 3 * mib * MIB, make)


def copies(table):
    for mib in (1, 16, 128, 1024):
        rows = mib * MIB // (2 * WIDTH)
        size = mib * MIB
        shape = f"{rows}x{WIDTH}"

        def unary(function, dtype=torch.bfloat16, rows=rows):
            def make():
                source = rows_of(rows, dtype=dtype)
                return lambda: function(source)

            return make

        def binary(function, a=torch.bfloat16, b=torch.bfloat16, rows=rows):
            def make():
                left, right = rows_of(rows, dtype=a), rows_of(rows, dtype=b)
                return lambda: function(left, right)

            return make

        half = torch.bfloat16
        table.row("copy", "clone", shape, 1, 2 * size, unary(lambda x: x.clone()))
        table.row("copy", "assign", shape, 1, 2 * size, binary(lambda x, y: x.copy_(y)))
        table.row("copy", "heads_first", shape, 1, 2 * size,
                  unary(lambda x: x.view(x.shape[0], -1, HEAD_DIM).transpose(0, 1).contiguous()))
        table.row("copy", "to_fp32", shape, 1, 3 * size, unary(lambda x: x.to(torch.float32)))
        table.row("copy", "to_bf16", shape, 1, 3 * size, unary(lambda x: x.to(half), torch.float32))
        table.row("copy", "zeros", shape, 1, size, unary(torch.zeros_like))
        table.row("copy", "empty", shape, 1, 0, unary(torch.empty_like))
        table.row("copy", "add_bf16", shape, 1, 3 * size, binary(lambda x, y: x.add_(y)))
        table.row("copy", "add_bf16_to_fp32", shape, 1, 5 * size, binary(lambda x, y: x.add_(y), torch.float32))
        table.row("copy", "sum_bf16_fp32", shape, 1, 5 * size, binary(lambda x, y: x + y, half, torch.float32))


def half_mask(rows, documents):
    mask = torch.zeros(rows, dtype=torch.bool)
    for a, b in ends_of(rows, documents):
        mask[(a + b) // 2:b] = True
    return mask


def halves(table):
    for rows, documents in ((128, 4), (2048, 16), (8192, 3), (16384, 16), (16384, 128), (32768, 128)):
        for dtype in (torch.bfloat16, torch.float32):
            size = rows * WIDTH * dtype.itemsize  # half is read, half written
            shape = f"{rows}x{WIDTH}:{'bf16' if dtype == torch.bfloat16 else 'fp32'}"
            kinds = {"host_mask": lambda mask: mask, "device_mask": lambda mask: mask.to(DEVICE),
                     "device_list": lambda mask: mask.nonzero().squeeze(1).to(DEVICE)}
            for kind, convert in kinds.items():

                def take(rows=rows, documents=documents, dtype=dtype, convert=convert):
                    source, at = rows_of(rows, dtype=dtype), convert(half_mask(rows, documents))
                    return lambda: source[at]

                def put(rows=rows, documents=documents, dtype=dtype, convert=convert):
                    target, mask = rows_of(rows, dtype=dtype), half_mask(rows, documents)
                    part, at = rows_of(int(mask.sum()), dtype=dtype), convert(mask)

                    def call():
                        target[at] = part

                    return call

                def accumulate(rows=rows, documents=documents, dtype=dtype, convert=convert):
                    target, mask = rows_of(rows, dtype=dtype), half_mask(rows, documents)
                    part, at = rows_of(int(mask.sum())), convert(mask)

                    def call():
                        target[at] += part

                    return call

                table.row("index", f"take_{kind}", shape, documents, size, take)
                table.row("index", f"put_{kind}", shape, documents, size, put)
                if dtype == torch.float32:
                    table.row("index", f"add_{kind}", shape, documents, 2.25 * size, accumulate)

        def slices(rows=rows, documents=documents):
            source, ends = rows_of(rows), ends_of(rows, documents)
            return lambda: torch.cat([source[(a + b) // 2:b] for a, b in ends])

        table.row("index", "take_slices", f"{rows}x{WIDTH}:bf16", documents, rows * WIDTH * 2, slices)


def expanded_rows(table):
    for rows, width in ((128, 4096), (4096, 8192), (8192, 8192), (8192, 1024), (65536, 1024), (524288, 1024)):

        def operands(rows=rows, width=width):
            source = torch.randn(rows, width // HEAD_DIM, HEAD_DIM, device=DEVICE, dtype=torch.bfloat16)
            index = torch.arange(rows, device=DEVICE)[:, None, None].expand(-1, width // HEAD_DIM, HEAD_DIM)
            return source, index

        def take(make=operands):
            source, index = make()
            return lambda: torch.gather(source, 0, index)

        def put(make=operands):
            source, index = make()
            return lambda: torch.zeros_like(source).scatter_(0, index, source)

        size = rows * width * 2
        table.row("gather", "gather", f"{rows}x{width}", 1, 2 * size, take)
        table.row("gather", "zeros_and_scatter", f"{rows}x{width}", 1, 3 * size, put)

    def lse_gather():
        lse, index = torch.randn(64, 8192, device=DEVICE), torch.arange(8192, device=DEVICE)[None, :].expand(64, -1)
        return lambda: torch.gather(lse, 1, index)

    table.row("gather", "lse", "64x8192", 1, 64 * 8192 * 8, lse_gather)


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


def permuted(table):
    for rows, heads in ((8192, 8), (8192, 16), (8192, 32), (8192, 64), (65536, 8)):
        table.row("permute", "heads_first", f"{rows}x{heads}", 1, 4 * rows * heads * HEAD_DIM,
                  lambda rows=rows, heads=heads: (lambda x: lambda: x.transpose(0, 1).contiguous())(
                      normal(rows, heads, HEAD_DIM)))
    for ranks, heads in ((8, 1), (8, 8), (16, 4), (32, 2), (64, 1)):
        size = 4 * ranks * heads * 8192 * HEAD_DIM
        table.row("permute", "heads_behind_rows", f"{ranks}x{heads}x8192", 1, size,
                  lambda ranks=ranks, heads=heads: (
                      lambda x: lambda: x.permute(0, 2, 1, 3).reshape(-1, heads, HEAD_DIM).contiguous())(
                          normal(ranks, heads, 8192, HEAD_DIM)))
        table.row("permute", "ranks_joined", f"{ranks}x8192x{heads}", 1, size,
                  lambda ranks=ranks, heads=heads: (
                      lambda x: lambda: x.permute(1, 0, 2, 3).reshape(8192, -1, HEAD_DIM).contiguous())(
                          normal(ranks, 8192, heads, HEAD_DIM)))
    for heads, rows in ((64, 4096), (8, 65536)):
        index = torch.arange(rows, device=DEVICE)[None, :].expand(heads, -1)
        lse = normal(heads, rows, dtype=torch.float32)
        table.row("permute", "lse_full_and_scatter", f"{heads}x{rows}", 1, 16 * heads * rows,
                  lambda lse=lse, index=index: lambda: torch.full_like(lse, float("-inf")).scatter_(-1, index, lse))
        table.row("permute", "lse_transposed", f"{heads}x{rows}", 1, 8 * heads * rows,
                  lambda lse=lse: lambda: lse.transpose(0, 1).contiguous())
    table.row("permute", "lse_expanded_to_bf16", "4096x64x16", 1, 36 * 4096 * 64,
              lambda: (lambda x: lambda: x[:, :, None].expand(-1, -1, 16).to(torch.bfloat16))(
                  normal(4096, 64, dtype=torch.float32)))
    for width in (8192, 1024):
        table.row("permute", "weight_gradient", f"8192x1024x{width}", 1, 2 * (8192 * 1024 + 9216 * width),
                  lambda width=width: (lambda grad, x: lambda: grad.t().mm(x))(normal(8192, width), normal(8192, 1024)))
        table.row("permute", "bias_gradient", f"8192x{width}", 1, 2 * 8192 * width,
                  lambda width=width: (lambda grad: lambda: grad.sum(0))(normal(8192, width)))


def joined(total, total_lse, part, part_lse):
    part = part.to(torch.float32)
    part_lse = part_lse.transpose(0, 1).unsqueeze(-1)
    share = torch.sigmoid(part_lse - total_lse)
    return total - share * (total - part), total_lse - F.logsigmoid(total_lse - part_lse)


def merges(table):
    scripted = torch.jit.script(joined)
    for rows in (128, 2048, 8192, 16384, 32768):
        for name, function in (("scripted", scripted), ("eager", joined)):

            def make(rows=rows, function=function):
                heads = WIDTH // HEAD_DIM
                total = torch.randn(rows, heads, HEAD_DIM, device=DEVICE)
                part = torch.randn(rows, heads, HEAD_DIM, device=DEVICE, dtype=torch.bfloat16)
                lse, part_lse = torch.randn(rows, heads, 1, device=DEVICE), torch.randn(heads, rows, device=DEVICE)
                return lambda: function(total, lse, part, part_lse)

            table.row("merge", name, f"{rows}x{WIDTH}", 1, rows * WIDTH * 10, make)


def mask_from_device(ends, rows):
    """A mask on the host of the second half of every document, its bounds taken from a tensor on the device."""
    mask = torch.zeros(rows, dtype=torch.bool)
    for i in range(len(ends) - 1):
        begin, end = ends[i], ends[i + 1]
        mask[(begin + end) // 2:end] = True
    return mask


def lse_halves(lse, ends, out):
    for i in range(len(ends) - 1):
        begin, end = int(ends[i].item()), int(ends[i + 1].item())
        middle = (begin + end) // 2
        out[:, begin // 2:begin // 2 + end - middle] = lse[:, middle:end]


def host_work(table):
    for rows, documents in ((8192, 3), (16384, 16), (16384, 64), (16384, 256)):
        bounds = [0] + [2 * (b // 2) for _, b in ends_of(rows, documents)]
        shape = f"{rows} rows"

        def ends(bounds=bounds):
            return torch.tensor(bounds, dtype=torch.int32, device=DEVICE)

        def mask(rows=rows):
            on_device = ends()
            return lambda: mask_from_device(on_device, rows)

        def half_lse(rows=rows):
            on_device, lse = ends(), torch.randn(32, rows, device=DEVICE)
            out = torch.empty(32, rows // 2 + 1, device=DEVICE)
            return lambda: lse_halves(lse, on_device, out)

        table.row("host", "mask_from_device", shape, documents, 0, mask)
        table.row("host", "lse_halves", shape, documents, 0, half_lse)
    one = torch.ones(1, dtype=torch.int32, device=DEVICE)
    table.row("host", "read_one", "1", 1, 0, lambda: lambda: int(one))
    table.row("host", "list_to_device", "128", 1, 0,
              lambda: lambda: torch.tensor(list(range(128)), dtype=torch.int32).to(DEVICE))
    other = torch.cuda.Stream()

    def two_streams():
        other.wait_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(other)

    table.row("host", "two_stream_waits", "2", 1, 0, lambda: two_streams)


def mixed(total):
    """Lengths of a packed list with one long piece and many short ones; their sum is `total` (a multiple of 4096)."""
    unit = total // 4096
    counts = ((1024, 1), (768, 1), (512, 1), (384, 1), (256, 2), (128, 3), (64, 4), (32, 4), (16, 6), (8, 3))
    lengths = [size * unit for size, count in counts for _ in range(count)]
    return lengths + [total - sum(lengths)]


def attention_lists():
    """(name, pieces (queries, keys), causal, heads, longest or None for the longest piece)."""
    square = lambda lengths: [(n, n) for n in lengths]  # noqa: E731
    docs = mixed(16384)
    local = [48 + 16 * (i % 9) for i in range(146)]  # a packed sequence's documents over eight ranks
    yield "64x512", square([512] * 64), True, 32, None
    yield "1x32768", square([32768]), True, 32, None
    yield "64x512+1x32768", square([512] * 64 + [32768]), True, 32, None
    yield "1x32768+64x512", square([32768] + [512] * 64), True, 32, None
    for longest in (None, 1024, 4096, 16384, 65536):
        yield "256x128", square([128] * 256), True, 32, longest
    yield "256x128", square([128] * 256), True, 8, 16384
    for longest in (None, 16384):
        yield "256x128", square([128] * 256), False, 32, longest
    yield "1024x32", square([32] * 1024), True, 32, None
    yield "256x64", square([64] * 256), True, 32, None
    yield "128x256", square([256] * 128), True, 32, None
    yield "32x1024", square([1024] * 32), True, 32, None
    yield "16x1024", square([1024] * 16), True, 32, None
    for name, lengths in (("mixed", docs), ("documents", local)):
        yield name, square(lengths), True, 32, None
        yield name, square(lengths), False, 32, None
        yield name + ":half_keys", [(n, n // 2) for n in lengths], False, 32, None
        yield name + ":half_queries", [(n // 2, n) for n in lengths], False, 32, None
    yield "mixed", square(docs), True, 16, None
    yield "mixed", square(docs), True, 32, 16384
    yield "1x16384", square([16384]), True, 32, None
    yield "1x8192", square([8192]), False, 32, None
    yield "2x8192", square([8192] * 2), True, 32, None
    yield "64x128+896", [(128, 1024)] * 64, True, 32, None
    yield "64x64+960", [(64, 1024)] * 64, True, 32, None
    yield "112x72+504", [(72, 576)] * 112, True, 32, None
    yield "8x512+7680", [(512, 8192)] * 8, True, 32, None
    yield "8x1024+7168", [(1024, 8192)] * 8, True, 32, None
    yield "1x8192+122880", [(8192, 131072)], True, 32, None
    yield "40x200+1000", [(200, 1200)] * 40, True, 32, None


def cumulative(lengths):
    return torch.tensor([0] + lengths, device=DEVICE).cumsum(0).int()


def attention_calls(pieces, causal, heads, longest):
    queries, keys = [q for q, _ in pieces], [k for _, k in pieces]
    q_ends, k_ends = cumulative(queries), cumulative(keys)
    longest_q, longest_k = longest or max(queries), longest or max(keys)
    q, out_grad = (torch.randn(sum(queries), heads, HEAD_DIM, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    k, v = (torch.randn(sum(keys), heads, HEAD_DIM, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    scale = HEAD_DIM**-0.5

    def forward():
        return torch.ops.aten._flash_attention_forward(
            q, k, v, q_ends, k_ends, longest_q, longest_k, 0.0, causal, False, scale=scale)

    out, lse, seed, offset = forward()[:4]

    def backward():
        return torch.ops.aten._flash_attention_backward(
            out_grad, q, k, v, out, lse, q_ends, k_ends, longest_q, longest_k, 0.0, causal, seed, offset, scale=scale)

    return {"forward": forward, "backward": backward}


def text_of(pieces):
    """Runs of equal pieces as N*QxK, joined by ';'."""
    runs = []
    for piece in pieces:
        if runs and runs[-1][1] == piece:
            runs[-1][0] += 1
        else:
            runs.append([1, piece])
    return ";".join(f"{count}*{q}x{k}" for count, (q, k) in runs)


def attention(table):
    for name, pieces, causal, heads, longest in attention_lists():
        mask = "causal" if causal else "full"
        shape = f"{mask}/h{heads}/longest{longest or 0}/{text_of(pieces)}"
        size = 4 * HEAD_DIM * heads * sum(q + k for q, k in pieces)
        for which in ("forward", "backward"):
            table.row("fa2", f"{which}:{name}", shape, len(pieces), size,
                      lambda which=which: attention_calls(pieces, causal, heads, longest)[which])
        torch.cuda.empty_cache()


GROUPS = {"fa2": attention, "index": halves, "permute": permuted, "gather": expanded_rows, "merge": merges,
          "host": host_work, "copy": copies, "add": add_slices, "cat": join}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        sys.exit(77)
    properties = torch.cuda.get_device_properties(0)
    with open(sys.argv[1], "w", newline="") as file:
        file.write(f"# {properties.name}, {properties.multi_processor_count} multiprocessors, "
                   f"{properties.total_memory} bytes; PyTorch {torch.__version__}, CUDA {torch.version.cuda}; "
                   f"{datetime.date.today()}; framework_ops_torch.py\n")
        table = Table(file)
        table.writer.writerow(COLUMNS)
        for name in sys.argv[2:] or GROUPS:
            begin = time.perf_counter()
            GROUPS[name](table)
            torch.cuda.empty_cache()
            print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
