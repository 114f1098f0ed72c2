#!/usr/bin/env python3
"""Checks that includes only point down.

The order of the layers is that of the add_subdirectory(src/...) lines in the top CMakeLists.txt. A file of src/<layer>/
may include files of its own layer and of those before it, and public headers; files directly in src/ put the layers
together and may include all. Public headers include nothing of src/. Nobody includes all of libtorch: that costs
15 seconds of compiling each time.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
HEAVY = {"torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h"}
MAY_BE_HEAVY = {pathlib.PurePath("include/farad/farad.h")}  # its purpose


def layer_order(root):
    return re.findall(r"^add_subdirectory\(src/(\w+)\)", (root / "CMakeLists.txt").read_text(), re.MULTILINE)


def complaint(file, quote, target, order):
    """What is wrong with `file` including `target`, or None."""
    if target in HEAVY and file not in MAY_BE_HEAVY:
        return "includes all of libtorch; include the narrow headers"
    if quote == "<":
        return None
    if file.parts[0] == "include":
        return "a public header may include only <farad/...> and what users have anyway"
    if target.startswith("."):
        return "write the path from src/, beginning with the layer"
    layer, other = file.parts[1], pathlib.PurePath(target).parts[0]
    if len(file.parts) == 2:  # directly in src/
        return None
    if layer not in order:
        return f"src/{layer} is not in the list of layers in CMakeLists.txt"
    if other not in order:
        return f"{other} is no layer; write the path from src/"
    if order.index(other) > order.index(layer):
        return f"{layer} comes before {other}; the order is {' -> '.join(order)}"
    return None


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    order = layer_order(root)
    if not order:
        sys.exit("check_layers: no add_subdirectory(src/...) lines in CMakeLists.txt")
    files = [f for d in ("include", "src") for f in sorted((root / d).rglob("*")) if f.suffix in (".h", ".cpp", ".in")]
    failures = 0
    for path in files:
        file = path.relative_to(root)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            wrong = match and complaint(file, match[1], match[2], order)
            if wrong:
                print(f"{file}:{number}: {line.strip()}: {wrong}", file=sys.stderr)
                failures += 1
    if failures:
        sys.exit(1)
    print(f"{len(files)} files, {' -> '.join(order)}")


if __name__ == "__main__":
    main()
