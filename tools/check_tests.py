#!/usr/bin/env python3
"""Checks that every C++ file below tests/ is compiled by somebody: a test that is not built cannot fail.

usage: check_tests.py build/.../compile_commands.json

Fuzz targets are built by another compiler in another build, and the consumer is a project of its own; their files must
be named in the CMakeLists.txt beside them.
"""

import json
import pathlib
import sys

BUILT_ELSEWHERE = ("tests/fuzz", "tests/consumer")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    commands = json.loads(pathlib.Path(sys.argv[1]).read_text())
    compiled = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands}
    sources = sorted((root / "tests").rglob("*.cpp"))
    forgotten = []
    for source in sources:
        name = source.relative_to(root).as_posix()
        if name.startswith(BUILT_ELSEWHERE):
            lists = source.parent / "CMakeLists.txt"
            if not lists.exists() or source.name not in lists.read_text().replace("(", " ").replace(")", " ").split():
                forgotten.append(name)
        elif source not in compiled:
            forgotten.append(name)
    for name in forgotten:
        print(f"{name}: nobody builds it; name it in the CMakeLists.txt of its directory", file=sys.stderr)
    if forgotten:
        sys.exit(1)
    print(f"{len(sources)} files, all built")


if __name__ == "__main__":
    main()
