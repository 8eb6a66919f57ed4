#!/usr/bin/env python3
"""The calls of cases.csv: what MagiAttention's baselines ask of FlashAttention-3, and plain shapes around them.

usage: cases.py > cases.csv

Heads, tokens and documents are those of validate/data/published/magiattention.json (64 query heads, 8 key heads, 8192
tokens a GPU). Of N GPUs (sim/strategies: head_parallel.h, ring.h, framework_gather.h say how each scheme calls):
  ulysses    whole documents, causal, 64 / N query heads on max(8 / N, 1) key heads
  gather     a rank's chunk of every document (2 N chunks of equal length, the last filled up) on the keys up to its
             end, causal; `first` is chunk R of rank R, `last` chunk 2 N - 1 - R
  ring       a rank's two chunks of every document: on themselves (causal), all rows on half the keys, half the rows on
             all keys
  document   one document alone on one rank
Cases whose backward pass would take 60 ms and more have none. A summary of expected times goes to stderr.
"""

import json
import pathlib
import sys

FORWARD_RATE, BACKWARD_RATE, MOST_MS = 550e12, 450e12, 60.0
HEADS, KEY_HEADS, TOKENS = 64, 8, 8192
K = 1024


def packs(gpus):
    path = pathlib.Path(__file__).parents[2] / "data" / "published" / "magiattention.json"
    cases = {case["name"]: case for case in json.loads(path.read_text())["cases"]}
    return cases[f"varlen-{gpus}"]["documents"]["explicit"]


def text_of(pieces):
    """Neighbours that are equal become one entry."""
    entries = []
    for piece in pieces:
        if entries and entries[-1][1] == piece:
            entries[-1][0] += 1
        else:
            entries.append([1, piece])
    return ";".join(f"{count}*{queries}x{keys}" for count, (queries, keys) in entries)


def chunk(document, gpus):
    return -(-document // (2 * gpus))


def plain():
    """(name, mask, heads, key heads, pieces, longest, layout)."""
    for heads, key_heads, sizes in ((8, 1, (2, 8, 32, 64)), (64, 8, (2, 8, 16)), (16, 2, (8,)), (32, 4, (8,)),
                                    (1, 1, (8, 32, 64))):
        for size in sizes:
            yield f"square-{size}K-h{heads}", "causal", heads, key_heads, [(size * K, size * K)], 0, "varlen"
    for heads, key_heads, mask, size in ((64, 8, "causal", 8), (8, 1, "causal", 32), (64, 8, "full", 8)):
        yield f"dense-{size}K-h{heads}-{mask}", mask, heads, key_heads, [(size * K, size * K)], 0, "dense"
    for heads, key_heads, queries, keys in ((64, 8, 512, 4 * K), (64, 8, 2 * K, 8 * K), (64, 8, 8 * K, 8 * K),
                                            (64, 8, 4 * K, 32 * K), (64, 8, 8 * K, 4 * K), (64, 8, 4 * K, 8 * K),
                                            (8, 1, 8 * K, 64 * K), (8, 1, 16 * K, 16 * K)):
        yield f"block-{queries}x{keys}-h{heads}", "full", heads, key_heads, [(queries, keys)], 0, "varlen"
    for queries, keys in ((64, 8 * K), (256, 16 * K), (512, 8 * K), (512, 64 * K), (K, 32 * K), (2 * K, 64 * K),
                          (4 * K, 36 * K)):
        yield f"end-{queries}x{keys}", "causal", 64, 8, [(queries, keys)], 0, "varlen"
    for heads, key_heads, count, size in ((8, 1, 32, 2 * K), (8, 1, 128, 512), (8, 1, 256, 350), (1, 1, 512, 75)):
        yield f"even-{count}x{size}", "causal", heads, key_heads, [(size, size)] * count, 0, "varlen"
    for mask, longest in (("causal", 0), ("causal", 4 * K), ("causal", 16 * K), ("full", 16 * K)):
        yield f"idle-{longest}-{mask}", mask, 8, 1, [(128, 128)] * 256, longest, "varlen"


def of_magiattention():
    for gpus, pack in ((8, 0), (8, 6), (16, 0), (32, 0), (64, 0)):
        pieces = [(document, document) for document in packs(gpus)[pack]]
        yield f"ulysses-{gpus}-{pack}", "causal", HEADS // gpus, max(KEY_HEADS // gpus, 1), pieces, 0, "varlen"
    for gpus, rank, which in ((8, 0, "last"), (8, 7, "first"), (16, 4, "last"), (32, 8, "last"), (64, 0, "last"),
                              (64, 40, "first")):
        at = rank + 1 if which == "first" else 2 * gpus - rank
        pieces = [(chunk(document, gpus), at * chunk(document, gpus)) for document in packs(gpus)[0]]
        yield f"gather-{gpus}-{rank}-{which}", "causal", HEADS, KEY_HEADS, pieces, 0, "varlen"
    for gpus in (8, 64):
        chunks = [chunk(document, gpus) for document in packs(gpus)[0]]
        for name, mask, queries, keys in (("own", "causal", 2, 2), ("half-keys", "full", 2, 1),
                                          ("half-rows", "full", 1, 2)):
            pieces = [(queries * rows, keys * rows) for rows in chunks]
            yield f"ring-{gpus}-{name}", mask, HEADS, KEY_HEADS, pieces, 0, "varlen"
    for document in (350, 1536):
        yield f"document-{document}", "causal", HEADS, KEY_HEADS, [(document, document)], 0, "varlen"


def milliseconds(backward, mask, heads, pieces):
    pairs = sum(q * k - (q * (q - 1) / 2 if mask == "causal" else 0) for q, k in pieces)
    return 1e3 * heads * pairs * 128 * (10 / BACKWARD_RATE if backward else 4 / FORWARD_RATE)


def main():
    print("# Made by cases.py beside this file; columns: cases.h.")
    print("name,pass,mask,q_heads,kv_heads,list,longest,layout")
    rows, total = 0, 0.0
    for name, mask, heads, key_heads, pieces, longest, layout in [*plain(), *of_magiattention()]:
        for backward in (False, True):
            took = milliseconds(backward, mask, heads, pieces)
            if took >= MOST_MS:
                continue
            print(name, "bwd" if backward else "fwd", mask, heads, key_heads, text_of(pieces), longest, layout, sep=",")
            rows += 1
            total += 0.2 + max(7 * took, 100) / 1e3 + max(3 * took, 150) / 1e3
            print(f"{name} {'bwd' if backward else 'fwd'} {took:.2f} ms {len(pieces)} pieces", file=sys.stderr)
    print(f"{rows} cases, about {total:.0f} s", file=sys.stderr)


main()
