"""Documents of MagiAttention's published run, as the cases varlen-N of magiattention.json list them.

Usage: python3 magiattention_packs.py RANKS          (numpy; RANKS: 8, 16, 32 or 64; a list of 20 packs as JSON)

Facts of its public sampler (github SandAI-org/MagiAttention @2c64135, exps/dist_attn/benchmark/utils.py, with
benchmark_conf.py): a document has the middle length of its bin; it is cut into all its chunks of a quarter of the
context and a tail; whole chunks come before tails, each kind in order of bins; one generator, seed 42, shuffles the
pieces, then the packs; a pack takes pieces until it is full, and what the last one has over begins the next pack.
"""
import json
import pathlib
import re
import sys

import numpy

SEED, PACKS, TOKENS_A_RANK = 42, 20, 8192


def bins():
    """Middle length and number of documents of each bin, from the comments of workloads/lengths/magiattention.csv."""
    table = pathlib.Path(__file__).parents[3] / "workloads" / "lengths" / "magiattention.csv"
    comments = "".join(line[1:] for line in table.read_text().splitlines() if line.startswith("#"))
    found = re.findall(r"\[(\d+),(\d+)\] (\d+)", comments)
    return [((int(low) + int(high)) // 2, int(count)) for low, high, count in found]


def pieces(context):
    chunk = context // 4
    whole = sum(length // chunk * count for length, count in bins())
    tails = [numpy.repeat(length % chunk, count) for length, count in bins() if length % chunk > 0]
    return numpy.concatenate([numpy.repeat(chunk, whole), *tails]).astype(numpy.int32)


def packed(lengths, context):
    packs, pack, room = [], [], context
    for length in lengths:
        while length >= room:
            pack.append(room)
            packs.append(pack)
            length -= room
            pack, room = [], context
        if length > 0:
            pack.append(length)
            room -= length
    return packs


def main():
    context = TOKENS_A_RANK * int(sys.argv[1])
    generator = numpy.random.default_rng(SEED)
    lengths = pieces(context)
    generator.shuffle(lengths)
    packs = packed(lengths.tolist(), context)
    generator.shuffle(packs)
    print(json.dumps(packs[:PACKS]))


main()
