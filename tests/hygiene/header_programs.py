#!/usr/bin/env python3
"""Writes one program a header, each with that one include: it compiles only if the header includes all that it uses.

usage: header_programs.py SOURCE_ROOT OUTPUT_DIR FOLDER... [-FOLDER...] [+FOLDER...]

A folder after a minus is left out, though it lies in one that is not. So is a header whose own .cpp is built and
includes it before anything else: that proves the same, unless it lies in a folder after a plus, whose files are
compiled several at once.

Prints the names of the programs, one a line, sorted, and writes the headers to OUTPUT_DIR/headers.txt. A file is
rewritten only when its text changes, so that configuring again compiles nothing again.
"""

import pathlib
import re
import sys


def proven(root, header):
    """Whether the header's own .cpp is built and the header the first thing that it includes."""
    source = root / pathlib.Path(header).with_suffix(".cpp")
    if not source.exists():
        return False
    first = re.search(r'^#include\s+["<](.*)[">]', source.read_text(), re.M)
    lists = [folder / "meson.build" for folder in source.parents if folder == root or root in folder.parents]
    named = re.compile(f"['/]{re.escape(source.name)}'")
    built = any(named.search(file.read_text()) for file in lists if file.exists())
    return built and first is not None and first.group(1) == header


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(source_root, output_dir, *folders):
    root, output = pathlib.Path(source_root), pathlib.Path(output_dir)
    output.mkdir(parents=True, exist_ok=True)
    wanted = [folder for folder in folders if folder[0] not in "-+"]
    unwanted = tuple(f"{folder[1:]}/" for folder in folders if folder.startswith("-"))
    together = tuple(f"{folder[1:]}/" for folder in folders if folder.startswith("+"))
    found = sorted(path.relative_to(root).as_posix() for folder in wanted for path in (root / folder).rglob("*.h"))
    wanting = [header for header in found if not header.startswith(unwanted)]
    headers = [header for header in wanting if header.startswith(together) or not proven(root, header)]
    programs = {header.replace("/", "__").removesuffix(".h") + ".cpp": header for header in headers}
    for stale in set(path.name for path in output.glob("*.cpp")) - programs.keys():
        (output / stale).unlink()
    for name, header in programs.items():
        write(output / name, f'#include "{header}"\n')
        print(output / name)
    write(output / "headers.txt", "".join(f"{header}\n" for header in headers))


if __name__ == "__main__":
    main(*sys.argv[1:])
