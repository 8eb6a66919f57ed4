#!/usr/bin/env python3
"""Times one rank's share of context-parallel attention as eager code runs it, without the other ranks, on one GPU.

usage: framework_steps_torch.py OUT.csv LENGTHS.csv [SCHEME ...]

What single operations (framework_ops_torch.py) add up to: schemes of own code that make the copies of the public ones
(github hao-ai-lab/DistCA @2afd219, baseline/wlbllm_original; zhuzilin/ring-flash-attention @8996282), op by op as
sim/strategies/step/framework_gather.h and ring.h describe them. What would come from other ranks is there beforehand.
  sequence  keys and values of all ranks put into token order, two calls, front and back chunk of the sequence
  document  the same by shards of documents: a call's keys and values are joined out of prefixes of documents
  ring, zigzag   a call a step over every document's part on this rank; fp32 sums; zigzag takes halves by masks that it
                 builds on the host from boundaries that lie on the device
Documents: drawn from LENGTHS.csv (quantile,tokens; linear between rows) with fixed seeds, the last one cut at the
context; rings round them down to multiples of twice the ranks. 32 heads of 128, as many of keys; bf16;
FlashAttention-2.

Columns: step_ms = a pass in a loop of passes (wall time; median, least and most of `reps` loops of three);
attention_ms = its FlashAttention calls alone, the GPU busy beforehand; host_ms = until Python returns, the GPU idle
beforehand; others = step_ms - attention_ms. Needs a GPU: says so and leaves with 77 where there is none.
"""

import csv
import datetime
import random
import statistics
import sys

import torch
import torch.nn.functional as F
from torch_timing import wall

HEADS, HEAD_DIM, DEVICE = 32, 128, "cuda"
CONTEXT, RANKS, REPS, PASSES = 131072, 8, 3, 3
COLUMNS = ["scheme", "rank", "pass", "documents", "longest", "step_ms", "step_min", "step_max", "attention_ms",
           "host_ms", "others_ms", "reps"]
SEEDS = (1, 4)


def tensor(rows, dtype=torch.bfloat16):
    return torch.randn(rows, HEADS, HEAD_DIM, device=DEVICE, dtype=dtype)


def read_quantiles(path):
    with open(path) as file:
        rows = [line.split(",") for line in file if line[0].isdigit()]
    return [(float(q), float(tokens)) for q, tokens in rows]


def length_at(table, quantile):
    for (q0, t0), (q1, t1) in zip(table, table[1:]):
        if quantile <= q1:
            return max(1, round(t0 + (t1 - t0) * (quantile - q0) / (q1 - q0)))
    return round(table[-1][1])


def documents(table, seed):
    """Lengths whose sum is CONTEXT, the last one cut."""
    draw, lengths = random.Random(seed), []
    while sum(lengths) < CONTEXT:
        lengths.append(min(length_at(table, draw.random()), CONTEXT - sum(lengths)))
    return lengths


def cumulative(lengths):
    return torch.tensor([0] + list(lengths), dtype=torch.int32).cumsum(0).int().to(DEVICE)


class Calls:
    """FlashAttention's calls; `record` keeps them to be timed alone."""

    def __init__(self):
        self.recorded = None

    def run(self, call):
        if self.recorded is not None:
            self.recorded.append(call)
        return call()

    def forward(self, q, k, v, q_ends, k_ends, longest_q, longest_k, causal):
        return self.run(lambda: torch.ops.aten._flash_attention_forward(
            q, k, v, q_ends, k_ends, int(longest_q), int(longest_k), 0.0, causal, False, scale=HEAD_DIM**-0.5)[:4])

    def backward(self, grad, q, k, v, result, q_ends, k_ends, longest_q, longest_k, causal):
        out, lse, seed, offset = result
        return self.run(lambda: torch.ops.aten._flash_attention_backward(
            grad, q, k, v, out, lse, q_ends, k_ends, int(longest_q), int(longest_k), 0.0, causal, seed, offset,
            scale=HEAD_DIM**-0.5))


class Gathered:
    """`sequence` and `document`: spans of each of 2 x RANKS chunks, by document; a rank has chunks r and 2N-1-r."""

    def __init__(self, calls, lengths, rank, by_document):
        self.calls, self.by_document, self.rank = calls, by_document, rank
        chunks = self.by_shards(lengths) if by_document else self.by_tokens(lengths)
        self.order = [span for r in range(RANKS) for c in (r, 2 * RANKS - 1 - r) for span in chunks[c]]
        self.own = [chunks[c] for c in (rank, 2 * RANKS - 1 - rank)]
        rows = CONTEXT // RANKS
        self.q, self.grad = tensor(rows), tensor(rows)
        self.gathered = [tensor(CONTEXT), tensor(CONTEXT)]
        self.sizes = [sum(e - b for b, e, _ in part) for part in self.own]
        self.q_ends = [cumulative([e - b for b, e, _ in part]) for part in self.own]
        self.k_ends = [cumulative([e - first for _, e, first in part]) for part in self.own]
        longest = lambda values: torch.tensor([max(values)], dtype=torch.int32).to(DEVICE)  # noqa: E731
        self.longest_q = [longest([e - b for b, e, _ in part]) for part in self.own]
        self.longest_k = [longest([e - first for _, e, first in part]) for part in self.own]

    @staticmethod
    def by_tokens(lengths):
        """(begin, end, begin of the document) of the pieces of each chunk of equal tokens."""
        chunk = CONTEXT // (2 * RANKS)
        chunks, begin = [[] for _ in range(2 * RANKS)], 0
        for length in lengths:
            at = begin
            while at < begin + length:
                end = min(begin + length, (at // chunk + 1) * chunk)
                chunks[at // chunk].append((at, end, begin))
                at = end
            begin += length
        return chunks

    @staticmethod
    def by_shards(lengths):
        """Every document in 2N shards; what is left over goes round."""
        chunks, begin, turn = [[] for _ in range(2 * RANKS)], 0, 0
        for length in lengths:
            sizes = [length // (2 * RANKS)] * (2 * RANKS)
            for _ in range(length % (2 * RANKS)):
                sizes[turn] += 1
                turn = (turn + 1) % (2 * RANKS)
            at = begin
            for c, size in enumerate(sizes):
                if size > 0:
                    chunks[c].append((at, at + size, begin))
                at += size
            begin += length
        return chunks

    def in_token_order(self, source):
        if not self.by_document:
            views = source.chunk(2 * RANKS, dim=0)
            out = [None] * (2 * RANKS)
            for r in range(RANKS):
                out[r], out[2 * RANKS - 1 - r] = views[2 * r], views[2 * r + 1]
            return torch.cat(out, dim=0)
        at, views = 0, []
        for begin, end, _ in self.order:
            views.append((begin, source[at:at + end - begin]))
            at += end - begin
        return torch.cat([view for _, view in sorted(views, key=lambda one: one[0])], dim=0)

    def in_gathered_order(self, source):
        if not self.by_document:
            views = source.chunk(2 * RANKS, dim=0)
            return torch.cat([views[c] for r in range(RANKS) for c in (r, 2 * RANKS - 1 - r)], dim=0)
        return torch.cat([source[begin:end] for begin, end, _ in self.order], dim=0)

    def spans(self, i):
        """Rows of the keys of call i in token order: a run, or a prefix of every document."""
        if self.by_document:
            return [(first, end) for _, end, first in self.own[i]]
        return [(self.own[i][0][2], self.own[i][-1][1])]

    def keys(self, ordered, i):
        spans = self.spans(i)
        if self.by_document:
            return torch.cat([ordered[a:b] for a, b in spans], dim=0)
        return ordered[spans[0][0]:spans[0][1]]

    def forward(self):
        ordered = [self.in_token_order(one) for one in self.gathered]
        parts = self.q.split(self.sizes, dim=0)
        self.results, self.local = [], []
        for i in range(2):
            k, v = (self.keys(one, i) for one in ordered)
            self.local.append((k, v))
            self.results.append(self.calls.forward(parts[i], k, v, self.q_ends[i], self.k_ends[i], self.longest_q[i],
                                                   self.longest_k[i], True))
        return torch.cat([result[0] for result in self.results], dim=0)

    def backward(self):
        dq, sums = torch.zeros_like(self.q), [torch.zeros_like(one) for one in self.gathered]
        row = 0
        for i, grad in enumerate(self.grad.split(self.sizes, dim=0)):
            k, v = self.local[i]
            rows = slice(row, row + self.sizes[i])
            for like in (self.q[rows], k, v):
                torch.zeros_like(like)
            dq_part, *parts = self.calls.backward(grad, self.q[rows], k, v, self.results[i], self.q_ends[i],
                                                  self.k_ends[i], self.longest_q[i], self.longest_k[i], True)[:3]
            dq[rows] = dq_part
            at = 0
            for a, b in self.spans(i):
                for total, part in zip(sums, parts):
                    total[a:b] += part[at:at + b - a]
                at += b - a
            row += self.sizes[i]
        return [self.in_gathered_order(one) for one in sums]


@torch.jit.script
def joined(total, total_lse, part, part_lse):
    part = part.to(torch.float32)
    part_lse = part_lse.transpose(0, 1).unsqueeze(-1)
    share = torch.sigmoid(part_lse - total_lse)
    return total - share * (total - part), total_lse - F.logsigmoid(total_lse - part_lse)


class Ring:
    def __init__(self, calls, lengths, rank, zigzag):
        self.calls, self.rank, self.zigzag = calls, rank, zigzag
        unit = 2 * RANKS
        self.lengths = [2 * (length // unit) for length in lengths if length >= unit]
        self.rows = sum(self.lengths)
        self.ends, self.half_ends = cumulative(self.lengths), cumulative([n // 2 for n in self.lengths])
        self.longest = max(self.lengths)
        self.q, self.k, self.v, self.grad = (tensor(self.rows) for _ in range(4))

    def mask(self, front):
        mask = torch.zeros(int(self.ends[-1].item()), dtype=torch.bool)
        for i in range(len(self.ends) - 1):
            begin, end = self.ends[i], self.ends[i + 1]
            middle = (begin + end) // 2
            mask[begin:middle] = front
            mask[middle:end] = not front
        return mask

    def call_sizes(self, q, k):
        half = self.rows // 2
        q_half, k_half = q.shape[0] == half, k.shape[0] == half
        return (self.half_ends if q_half else self.ends, self.half_ends if k_half else self.ends,
                self.longest // 2 if q_half else self.longest, self.longest // 2 if k_half else self.longest)

    def attend(self, q, k, v, causal):
        return self.calls.forward(q, k, v, *self.call_sizes(q, k), causal)

    def forward(self):
        self.masks = [self.mask(True), self.mask(False)] if self.zigzag else None
        q1 = self.q[self.masks[1]] if self.zigzag else None
        out, lse = None, None
        for step in range(RANKS):
            k, v = self.k, self.v
            if not self.zigzag and step > self.rank:
                continue
            if step == 0:
                self.first = self.attend(self.q, k, v, True)
                out, lse = self.first[0].to(torch.float32), self.first[1].transpose(0, 1).unsqueeze(-1)
            elif not self.zigzag:
                out, lse = joined(out, lse, *self.attend(self.q, k, v, False)[:2])
            elif step <= self.rank:
                out, lse = joined(out, lse, *self.attend(self.q, k[self.masks[0]], v[self.masks[0]], False)[:2])
            else:
                at = self.masks[1]
                out[at], lse[at] = joined(out[at], lse[at], *self.attend(q1, k, v, False)[:2])
        return out.to(torch.bfloat16), lse.squeeze(-1).transpose(0, 1)

    def lse_halves(self, lse):
        out = torch.empty(lse.shape[0], lse.shape[1] // 2, device=DEVICE)
        for i in range(len(self.ends) - 1):
            begin, end = int(self.ends[i].item()), int(self.ends[i + 1].item())
            out[:, begin // 2:end // 2] = lse[:, begin + (end - begin) // 2:end]
        return out

    def backward(self):
        out, lse, seed, offset = self.first
        dq, dk, dv = None, None, None
        sent_k, sent_v = torch.zeros_like(self.k, dtype=torch.float32), torch.zeros_like(self.k, dtype=torch.float32)
        if self.zigzag:
            back = self.masks[1]
            grad1, q1, out1 = self.grad[back], self.q[back], out[back]
            lse1 = self.lse_halves(lse)
        for step in range(RANKS):
            k, v = self.k, self.v
            if not self.zigzag and step > self.rank:
                continue
            halved = self.zigzag and step > self.rank
            front = self.zigzag and 0 < step <= self.rank
            if front:
                k, v = k[self.masks[0]], v[self.masks[0]]
            q = q1 if halved else self.q
            result = (out1, lse1, seed, offset) if halved else (out, lse, seed, offset)
            parts = self.calls.backward(grad1 if halved else self.grad, q, k, v, result, *self.call_sizes(q, k),
                                        step == 0)[:3]
            if step == 0:
                dq, dk, dv = (part.to(torch.float32) for part in parts)
                continue
            if halved:
                dq[self.masks[1]] += parts[0]
            else:
                dq += parts[0]
            if front:
                sent_k[self.masks[0]] += parts[1]
                sent_v[self.masks[0]] += parts[2]
            elif self.zigzag:
                sent_k += parts[1]
                sent_v += parts[2]
            else:
                dk, dv = parts[1] + sent_k, parts[2] + sent_v
        return dq.to(torch.bfloat16), dk.to(torch.bfloat16), dv.to(torch.bfloat16)


def wall_ms(call, times):
    """Of one call of so many."""
    return [1e3 * seconds / times for seconds in wall(call, times)]


def alone(recorded):
    """The recorded calls' device time, the largest share of launches hidden behind a busy GPU."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)
    begin.record()
    for call in recorded:
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def measure(writer, name, rank, scheme, calls, lengths, index):
    for which in ("forward", "backward"):
        function = getattr(scheme, which)
        calls.recorded = []
        function()
        recorded, calls.recorded = calls.recorded, None
        alone(recorded)
        attention = statistics.median(alone(recorded) for _ in range(3))
        del recorded
        wall_ms(function, 3)
        host = statistics.median(wall_ms(function, 1)[0] for _ in range(3))
        steps = [wall_ms(function, PASSES)[1] for _ in range(REPS)]
        step = statistics.median(steps)
        writer.writerow([name, rank, which, len(lengths), max(lengths)] +
                        [f"{x:.4f}" for x in (step, min(steps), max(steps), attention, host, step - attention)] +
                        [REPS, index])


def schemes(calls, lengths, wanted):
    for name, rank in (("sequence", 0), ("sequence", 5), ("document", 0), ("document", 5), ("ring", 7),
                       ("zigzag", 3)):
        if wanted and name not in wanted:
            continue
        if name in ("sequence", "document"):
            yield name, rank, lambda: Gathered(calls, lengths, rank, name == "document")
        else:
            yield name, rank, lambda: Ring(calls, lengths, rank, name == "zigzag")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        sys.exit(77)
    table, calls = read_quantiles(sys.argv[2]), Calls()
    with open(sys.argv[1], "w", newline="") as file:
        file.write(f"# {torch.cuda.get_device_name(0)}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}; "
                   f"{datetime.date.today()}; framework_steps_torch.py\n")
        writer = csv.writer(file, lineterminator="\n")
        lists = [documents(table, seed) for seed in SEEDS]
        for i, lengths in enumerate(lists):
            file.write(f"# list {i}, seed {SEEDS[i]}: {' '.join(str(n) for n in lengths)}\n")
        writer.writerow(COLUMNS + ["list"])
        for i, lengths in enumerate(lists):
            for name, rank, make in schemes(calls, lengths, sys.argv[3:]):
                try:
                    with torch.no_grad():
                        measure(writer, name, rank, make(), calls, lengths, i)
                except Exception as error:  # one scheme's fault is no reason to lose the others
                    file.write(f"# {name} {rank} list {i}: {type(error).__name__}: {str(error).splitlines()[0]}\n")
                file.flush()
                torch.cuda.empty_cache()
                print(f"list {i} {name} {rank}", flush=True)


if __name__ == "__main__":
    main()
