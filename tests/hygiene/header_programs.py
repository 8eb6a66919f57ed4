#!/usr/bin/env python3
"""Writes one program a header, each with that one include: it compiles only if the header includes all that it uses.

usage: header_programs.py SOURCE_ROOT OUTPUT_DIR FOLDER...

Prints the names of the programs, one a line, sorted. A program is rewritten only when its text changes, so that
configuring again compiles nothing again.
"""

import pathlib
import sys


def main(source_root, output_dir, *folders):
    root, output = pathlib.Path(source_root), pathlib.Path(output_dir)
    output.mkdir(parents=True, exist_ok=True)
    headers = sorted(path.relative_to(root).as_posix() for folder in folders for path in (root / folder).rglob("*.h"))
    programs = {header.replace("/", "__").removesuffix(".h") + ".cpp": header for header in headers}
    for stale in set(path.name for path in output.glob("*.cpp")) - programs.keys():
        (output / stale).unlink()
    for name, header in programs.items():
        text, path = f'#include "{header}"\n', output / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
