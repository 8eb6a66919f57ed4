#!/usr/bin/env python3
"""Names the headers that CUDA sources include, directly or not, and a digest of their texts.

usage: cuda_headers.py SOURCE_ROOT FOLDER...

Folders are relative to SOURCE_ROOT, as `#include "..."` is; their *.cu files are the sources. Prints the digest, then
one header a line, sorted.
"""

import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def headers_of(root, sources):
    found, waiting = set(), list(sources)
    while waiting:
        text = (root / waiting.pop()).read_bytes()
        new = {name.decode() for name in INCLUDE.findall(text)} - found
        new = {name for name in new if (root / name).is_file()}  # what is made in the build folder has its own rules
        found |= new
        waiting += new
    return sorted(found)


def main(source_root, *folders):
    root = pathlib.Path(source_root)
    sources = [path.relative_to(root).as_posix() for folder in folders for path in (root / folder).rglob("*.cu")]
    headers = headers_of(root, sources)
    digest = hashlib.sha256()
    for name in headers:
        digest.update(name.encode() + b"\0" + (root / name).read_bytes() + b"\0")
    print(digest.hexdigest()[:16])
    for name in headers:
        print(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
