#!/usr/bin/env python3
"""Checks that every C++ file below tests/ is compiled by somebody: a test that is not built cannot fail.

usage: check_tests.py build/.../compile_commands.json

Fuzz targets are built by another compiler in another build, and the consumer is a project of its own; their files must
be named in the CMakeLists.txt beside them.
"""

import json
import pathlib
import re
import sys

BUILT_ELSEWHERE = ("tests/fuzz", "tests/consumer")


def named_beside(source):
    lists = source.parent / "CMakeLists.txt"
    return lists.exists() and source.name in re.split(r"[\s()]+", lists.read_text())


def compiled_by(file):
    """What CMake compiles together, it includes in a file of its own."""
    if file.parent.name != "Unity":
        return [file]
    return [pathlib.Path(name).resolve() for name in re.findall(r'^#include "(.+)"$', file.read_text(), re.MULTILINE)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    commands = json.loads(pathlib.Path(sys.argv[1]).read_text())
    compiled = {source for c in commands for source in compiled_by(pathlib.Path(c["directory"], c["file"]).resolve())}
    sources = sorted((root / "tests").rglob("*.cpp"))
    forgotten = []
    for source in sources:
        name = source.relative_to(root).as_posix()
        if source not in compiled and not (name.startswith(BUILT_ELSEWHERE) and named_beside(source)):
            forgotten.append(name)
    for name in forgotten:
        print(f"{name}: nobody builds it; name it in the CMakeLists.txt of its directory", file=sys.stderr)
    if forgotten:
        sys.exit(1)
    print(f"{len(sources)} files, all built")


if __name__ == "__main__":
    main()
