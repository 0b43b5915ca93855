#!/usr/bin/env python3
"""The rules of the tree that no other tool checks.

    scripts/check-tree.py [--library-dir DIR] [ROOT]

Prints one line for each violation and exits 1 if there is one. The rules:

  layers      an #include never points upwards, nor sideways between neighbours; providers are
              included by the fabric core alone; public headers include public headers only
  size        a .c file has at most 800 lines, a function at most 70, a line at most 100 columns
  symbols     the shared libraries export exactly the functions that the public headers declare
  paths       no path of somebody's machine is written down
  scripts     shell scripts are accepted by bash -n

tests/scripts/lint_test.py plants a violation of each and shows that it is found.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

# A layer may include those of a lower rank, and itself.
LAYER_RANKS = {
    "base": 0,
    "fabric": 1,
    "provider": 1,  # a directory in src/fabric; see may_include()
    "rdma": 2,
    "store": 2,
    "kv": 3,
    "client": 4,
    "server": 4,
    "control": 5,
    "tools": 6,
}

# The layer whose interface a public header is.
PUBLIC_HEADER_LAYERS = {
    "status.h": "base",
    "fabric.h": "fabric",
    "domains.h": "fabric",
    "rdma.h": "rdma",
    "mesh.h": "rdma",
    "pingpong.h": "rdma",
    "kv.h": "kv",
    "server.h": "server",
    "control.h": "control",
    "control_server.h": "control",
    "snowrdma.h": "rdma",  # these three in include/remora/compat
    "kv_store.h": "kv",
    "rdma_kv.h": "server",
}

# The shared libraries, and the public headers that each of them answers for. None: all others.
LIBRARIES = {
    "libremora.so": None,
    "libremora-server.so": ["server.h", "control_server.h"],
}

SOURCE_SUFFIXES = {".c", ".h", ".py", ".cmake", ".sh", ".map"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Not written as one word, for this file is searched too.
MACHINE_PATH = re.compile(r"(?<![\w.$}-])/(?:" + "wor" + "k|roo" + r"t|home/\w+)/")


class Tree:
    """The files of the repository, and the violations found in it."""

    def __init__(self, root):
        self.root = root
        self.violations = []
        self.files = self.list_files()

    def list_files(self):
        """What git tracks or would track; without git, all files."""
        command = ["git", "-C", self.root, "ls-files", "-co", "--exclude-standard", "-z"]
        result = subprocess.run(command, capture_output=True, check=False)
        if result.returncode == 0:
            names = result.stdout.decode().split("\0")
            return sorted(Path(name) for name in set(names)
                          if name and (self.root / name).is_file())
        return sorted(path.relative_to(self.root) for path in self.root.rglob("*")
                      if path.is_file() and path.relative_to(self.root).parts[0] != "build")

    def complain(self, path, line, text):
        where = f"{path}:{line}" if line else str(path)
        self.violations.append(f"{where}: {text}")

    def read_lines(self, path):
        """The lines of a text file; none for a binary one."""
        data = (self.root / path).read_bytes()
        if b"\0" in data:
            return []
        return data.decode(errors="replace").splitlines()


def find_layer(path):
    """(layer, provider) of a file of the tree. None as layer: the rules do not apply (tests)."""
    parts = path.parts
    if parts[0] == "include":
        return PUBLIC_HEADER_LAYERS.get(path.name), None
    if parts[0] in ("tools", "examples"):
        return "tools", None
    if parts[0] != "src" or len(parts) < 3:
        return None, None
    if parts[1] == "fabric" and len(parts) > 3:
        return "provider", parts[2]
    return parts[1], None


def resolve_include(tree, path, quote, name):
    """The file of the tree that an #include names; None when it is none of ours."""
    candidates = [Path("include") / name, Path("src") / name]
    if quote == '"':
        candidates.insert(0, path.parent / name)
    for candidate in candidates:
        candidate = Path(os.path.normpath(candidate))
        if (tree.root / candidate).is_file():
            return candidate
    return None


# A provider that is another one's engine on a wire of its own.
BORROWS = {"ofi": "tcp"}


def may_include(layer, provider, other, other_provider):
    """Whether a file of one layer may include one of the other."""
    if other == "provider":
        # Its own provider's files; or the core, which knows them all.
        return layer == "fabric" or (layer == "provider" and
                                     other_provider in (provider, BORROWS.get(provider)))
    if layer == "provider" and other == "fabric":
        return True
    return layer == other or LAYER_RANKS[other] < LAYER_RANKS[layer]


def check_public_header(tree, path, number, target):
    if target.parts[0] != "include":
        tree.complain(path, number, f"a public header includes the private {target}")


def check_layers(tree):
    for path in tree.files:
        if path.suffix not in (".c", ".h"):
            continue
        layer, provider = find_layer(path)
        if path.parts[0] == "include" and layer is None:
            tree.complain(path, 0, "this public header has no layer in scripts/check-tree.py")
            continue
        if path.parts[0] == "src" and layer not in LAYER_RANKS:
            tree.complain(path, 0, "this directory is no layer that scripts/check-tree.py knows")
            continue
        for number, line in enumerate(tree.read_lines(path), 1):
            match = INCLUDE.match(line)
            target = match and resolve_include(tree, path, match[1], match[2])
            if not target:
                continue
            if path.parts[0] == "include":
                check_public_header(tree, path, number, target)
            if path.parts[0] == "examples" and target.parts[0] == "src":
                tree.complain(path, number, f"an example includes the private {target}")
            other, other_provider = find_layer(target)
            if layer is None or other is None:
                continue
            if not may_include(layer, provider, other, other_provider):
                of = f"{layer} {provider}" if provider else layer
                to = f"{other} {other_provider}" if other_provider else other
                tree.complain(path, number, f"{of} must not include {to} ({target})")


def check_functions(tree, path, lines):
    """A function's body begins with { and ends with } in the first column, as clang-format has
    it; nothing else does."""
    start = 0
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line.startswith("}") and start:
            length = number - start + 1
            if length > FUNCTION_LINES_MAX:
                tree.complain(path, start, f"a function of {length} lines; the most is "
                                           f"{FUNCTION_LINES_MAX}")
            start = 0


def is_source(tree, path):
    if path.suffix in SOURCE_SUFFIXES or path.name in ("CMakeLists.txt", "Makefile"):
        return True
    return is_shell_script(tree, path)


def is_shell_script(tree, path):
    if path.suffix == ".sh":
        return True
    with open(tree.root / path, "rb") as file:
        first = file.readline(80)
    return first.startswith(b"#!") and re.search(rb"\b(ba)?sh\b", first) is not None


def check_sizes(tree):
    for path in tree.files:
        if not is_source(tree, path):
            continue
        lines = tree.read_lines(path)
        for number, line in enumerate(lines, 1):
            columns = len(line.expandtabs(8))
            if columns > COLUMNS_MAX:
                tree.complain(path, number, f"{columns} columns; the most is {COLUMNS_MAX}")
        if path.suffix == ".c" and len(lines) > FILE_LINES_MAX:
            tree.complain(path, 0, f"{len(lines)} lines; the most is {FILE_LINES_MAX}")
        if path.suffix in (".c", ".h"):
            check_functions(tree, path, lines)


def check_paths(tree):
    for path in tree.files:
        for number, line in enumerate(tree.read_lines(path), 1):
            match = MACHINE_PATH.search(line)
            if match:
                tree.complain(path, number, f"a path of one machine: {match[0]}")


def check_scripts(tree):
    for path in tree.files:
        if not is_shell_script(tree, path):
            continue
        result = subprocess.run(["bash", "-n", tree.root / path], capture_output=True, text=True,
                                check=False)
        if result.returncode != 0:
            tree.complain(path, 0, f"bash -n: {result.stderr.strip()}")


def declared_functions(tree, header):
    """The functions that a public header declares, as the compiler sees them."""
    with tempfile.TemporaryDirectory() as directory:
        info = Path(directory) / "info"
        command = ["gcc", "-std=gnu17", "-fsyntax-only", "-x", "c", "-I", tree.root / "include",
                   "-aux-info", info, tree.root / header]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            tree.complain(header, 0, f"does not compile alone: {result.stderr.strip()}")
            return set()
        names = set()
        for line in info.read_text().splitlines():
            match = re.match(r"/\* (.+?):\d+:\w+ \*/ extern .*?(\w+) \(", line)
            if match and Path(match[1]).name == header.name:
                names.add(match[2])
        return names


def exported_symbols(library):
    output = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True,
                            text=True, check=True).stdout
    names = set()
    for line in output.splitlines():
        _, kind, name = line.rsplit(maxsplit=2) if len(line.split()) == 3 else ("", "", "")
        if kind and kind != "A":  # A: the name of the version itself
            names.add(name.split("@")[0])
    return names


def check_symbols(tree, library_dir):
    headers = [path for path in tree.files
               if path.parts[:2] == ("include", "remora") and path.suffix == ".h"]
    apart = {name for names in LIBRARIES.values() if names for name in names}
    for library, names in LIBRARIES.items():
        file = library_dir / library
        if not file.exists():
            continue
        mine = [header for header in headers
                if (header.name in names if names is not None else header.name not in apart)]
        declared = {}
        for header in mine:
            for name in declared_functions(tree, header):
                declared[name] = header
        exported = exported_symbols(file)
        for name in sorted(exported - declared.keys()):
            tree.complain(library, 0, f"exports {name}, which no public header declares")
        for name in sorted(declared.keys() - exported):
            tree.complain(declared[name], 0, f"declares {name}, which {library} does not export")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--library-dir", type=Path, help="where the shared libraries are")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    args = parser.parse_args()

    tree = Tree(args.root)
    check_layers(tree)
    check_sizes(tree)
    check_paths(tree)
    check_scripts(tree)
    if args.library_dir:
        check_symbols(tree, args.library_dir)
    for violation in tree.violations:
        print(violation)
    return 1 if tree.violations else 0


if __name__ == "__main__":
    sys.exit(main())
