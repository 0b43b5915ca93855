#!/usr/bin/env python3
"""Shows that the lint can fail: plants one violation of each rule in a small tree of its own, and
checks that it is found, and that the tree without it is accepted."""

import shutil
import subprocess
import sys

from script_harness import ROOT, Failure, expect, run_tests, write_tree

CHECK_TREE = ROOT / "scripts" / "check-tree.py"

# A tree that breaks no rule. Every planted violation is a change of it.
CLEAN = {
    "include/remora/status.h": "int rmr_status_text(int status);\n",
    "include/remora/fabric.h": "#include <remora/status.h>\nint rmr_post(void);\n",
    "src/base/list.h": "struct list;\n",
    "src/fabric/core.h": '#include "base/list.h"\n#include <remora/fabric.h>\n',
    "src/fabric/registry.c": '#include "fabric/shm/shm.h"\n#include "fabric/tcp/tcp.h"\n',
    "src/fabric/shm/shm.h": '#include "fabric/core.h"\n',
    "src/fabric/tcp/tcp.h": '#include "base/list.h"\n',
    "src/store/slab.h": '#include "base/list.h"\n',
    "src/rdma/runtime.h": '#include "fabric/core.h"\n',
    "src/client/get.c": '#include "store/slab.h"\n#include "rdma/runtime.h"\n',
    "tools/tool.c": '#include "base/list.h"\n#include "client/../store/slab.h"\n',
    "examples/hello.c": "#include <remora/fabric.h>\n",
    "tests/any.c": '#include "fabric/shm/shm.h"\n',
    "scripts/run": "#!/usr/bin/env bash\necho fine\n",
}

LIBRARY = ("int rmr_status_text(int status) { return status; }\n"
           "int rmr_post(void) { return 0; }\n")

# name, the file that is planted, its contents, a part of the complaint
PLANTED = [
    ("upward_include", "src/base/bad.h", '#include "fabric/core.h"\n',
     "src/base/bad.h:1: base must not include fabric"),
    ("upward_include_of_public_header", "src/base/bad.h", "\n#include <remora/fabric.h>\n",
     "src/base/bad.h:2: base must not include fabric"),
    ("upward_include_by_relative_path", "src/base/bad.c", '#include "../store/slab.h"\n',
     "src/base/bad.c:1: base must not include store"),
    ("sideways_include", "src/store/bad.c", '#include "rdma/runtime.h"\n',
     "src/store/bad.c:1: store must not include rdma"),
    ("provider_includes_provider", "src/fabric/tcp/bad.c", '#include "fabric/shm/shm.h"\n',
     "src/fabric/tcp/bad.c:1: provider tcp must not include provider shm"),
    ("provider_internals_from_outside", "src/store/bad.c", '#include "fabric/shm/shm.h"\n',
     "src/store/bad.c:1: store must not include provider shm"),
    ("provider_internals_from_tools", "tools/bad.c", '#include "fabric/shm/shm.h"\n',
     "tools/bad.c:1: tools must not include provider shm"),
    ("public_header_includes_private", "include/remora/kv.h", '#include "base/list.h"\n',
     "include/remora/kv.h:1: a public header includes the private src/base/list.h"),
    ("public_header_without_layer", "include/remora/new.h", "int new;\n",
     "include/remora/new.h: this public header has no layer"),
    ("example_includes_private", "examples/bad.c", '#include "base/list.h"\n',
     "examples/bad.c:1: an example includes the private src/base/list.h"),
    ("unknown_layer", "src/misc/bad.c", "int x;\n", "src/misc/bad.c: this directory is no layer"),
    ("long_file", "src/base/bad.c", "int x;\n" * 801, "src/base/bad.c: 801 lines; the most is"),
    ("long_function", "src/base/bad.c", "void f(void)\n{\n" + "\tg();\n" * 69 + "}\n",
     "src/base/bad.c:2: a function of 71 lines; the most is 70"),
    ("long_line", "src/base/bad.c", "\t" * 12 + "int x;\n", "src/base/bad.c:1: 102 columns"),
    ("long_line_in_script", "scripts/bad", "#!/bin/sh\n#" + "x" * 100 + "\n",
     "scripts/bad:2: 101 columns"),
    ("path_of_a_machine", "docs/bad.md", "see /" + "root/notes\n",
     "docs/bad.md:1: a path of one machine"),
    ("path_of_another_machine", "src/base/bad.h", "/* /" + "work/main */\n",
     "src/base/bad.h:1: a path of one machine"),
    ("broken_script", "scripts/bad", "#!/usr/bin/env bash\nif true; then\n",
     "scripts/bad: bash -n:"),
]

# Nothing of this may be refused: the last thing that is allowed, of each rule.
ALLOWED = [
    ("longest_file", "src/base/good.c", "int x;\n" * 800),
    ("longest_function", "src/base/good.c", "void f(void)\n{\n" + "\tg();\n" * 68 + "}\n"),
    ("longest_line", "src/base/good.c", "\t" * 12 + "intx\n"),
    ("path_that_ends_so", "docs/good.md", "in docs/" + "work/ and ${x}/" + "root/y\n"),
    ("own_layer", "src/store/good.c", '#include "store/slab.h"\n'),
]


def run_check(root, *options):
    result = subprocess.run([CHECK_TREE, *options, root], capture_output=True, text=True,
                            check=False)
    return result.returncode, result.stdout + result.stderr


def build_library(root, source):
    directory = root / "build" / "lib"
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", directory / "libremora.so", "-"],
                   input=source, text=True, check=True)
    return directory


def test_planted(root, name, text, part):
    write_tree(root, {name: text})
    code, output = run_check(root)
    expect(code, output, 1, part)
    if len(output.splitlines()) != 1:
        raise Failure("more than one complaint: " + output.replace("\n", " | "))


def test_allowed(root, name, text):
    write_tree(root, {name: text})
    expect(*run_check(root), 0)


def test_clean(root):
    expect(*run_check(root), 0)


def test_ignored_files(root):
    """In a git repository, files that git ignores are not looked at; untracked ones are."""
    subprocess.run(["git", "init", "-q", root], check=True)
    write_tree(root, {".gitignore": "/out/\n", "out/bad.c": "x" * 200 + "\n"})
    expect(*run_check(root), 0)
    write_tree(root, {"src/base/bad.c": "x" * 200 + "\n"})
    expect(*run_check(root), 1, "200 columns")


def test_symbols(root):
    expect(*run_check(root, "--library-dir", build_library(root, LIBRARY)), 0)


def test_private_symbol(root):
    library = build_library(root, LIBRARY + "int rmr_secret(void) { return 0; }\n")
    expect(*run_check(root, "--library-dir", library), 1,
           "libremora.so: exports rmr_secret, which no public header declares")


def test_private_variable(root):
    library = build_library(root, LIBRARY + "int hidden_state;\n")
    expect(*run_check(root, "--library-dir", library), 1, "libremora.so: exports hidden_state")


def test_missing_symbol(root):
    library = build_library(root, LIBRARY.split("\n", maxsplit=1)[0])
    expect(*run_check(root, "--library-dir", library), 1,
           "include/remora/fabric.h: declares rmr_post, which libremora.so does not export")


def test_lint_script(root, text, expected_code, part, more=None):
    """The whole of scripts/lint, on one C file and perhaps others. The build and the planted bugs
    are stubs."""
    for directory in ("src", "include", "tools", "examples", "tests", "scripts"):
        shutil.rmtree(root / directory)
    for name in (".clang-format", ".cppcheck-suppressions"):
        shutil.copy(ROOT / name, root)
    write_tree(root, {"scripts/build": "#!/bin/sh\n", "scripts/planted": "#!/bin/sh\n",
                      "src/base/one.c": text,
                      "src/base/one.h": "int f(void);\n", ".gitignore": "/build/\n",
                      **(more or {})})
    for name in ("build", "planted"):
        (root / "scripts" / name).chmod(0o755)
    for name in ("lint", "check-tree.py", "man-from-header"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts")
    subprocess.run(["git", "init", "-q", root], check=True)
    result = subprocess.run([root / "scripts" / "lint"], capture_output=True, text=True,
                            check=False)
    expect(result.returncode, result.stdout + result.stderr, expected_code, part)


PAGE = """.Dd November 15, 2026
.Dt ONE 1
.Os
.Sh NAME
.Nm one
.Nd a page
.Sh DESCRIPTION
It is one.
"""

LINT_SCRIPT = [
    ("lint_accepts", "int f(void)\n{\n\treturn 0;\n}\n", 0, "lint: 2 C files, all well"),
    ("lint_formatting", "int f(void) {\n    return 0;\n}\n", 1, "the formatting is wrong"),
    ("lint_cppcheck", "int f(void)\n{\n\tint a[2] = {1, 2};\n\n\treturn a[2];\n}\n", 1,
     "[arrayIndexOutOfBounds]"),
    ("lint_tree", '#include "../store/x.h"\n#include <remora/x.h>\n/* /' + 'root/x */\n', 1,
     "a path of one machine"),
    ("lint_planted", "int f(void)\n{\n\treturn 0;\n}\n", 1, "--check: outgrown",
     {"scripts/planted": "#!/bin/sh\necho $1: outgrown\nexit 1\n"}),
    ("lint_manual", "int f(void)\n{\n\treturn 0;\n}\n", 1, "unknown macro: .Nonsense",
     {"docs/man/one.1": PAGE + ".Nonsense\n"}),
    ("lint_manual_of_header", "int f(void)\n{\n\treturn 0;\n}\n", 1, "has no opening comment",
     {"include/remora/status.h": "void f(void);\n"}),
]


def list_tests():
    tests = [("clean_tree", test_clean, ()), ("ignored_files", test_ignored_files, ()),
             ("symbols", test_symbols, ()), ("private_symbol", test_private_symbol, ()),
             ("private_variable", test_private_variable, ()),
             ("missing_symbol", test_missing_symbol, ())]
    tests += [(name, test_lint_script, rest) for name, *rest in LINT_SCRIPT]
    tests += [(name, test_planted, rest) for name, *rest in PLANTED]
    tests += [(name, test_allowed, rest) for name, *rest in ALLOWED]
    return tests


def in_clean_tree(function):
    def with_tree(root, *arguments):
        write_tree(root, CLEAN)
        function(root, *arguments)
    return with_tree


if __name__ == "__main__":
    sys.exit(run_tests([(name, in_clean_tree(function), arguments)
                        for name, function, arguments in list_tests()]))
