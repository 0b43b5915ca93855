#!/usr/bin/env python3
"""Manual pages of headers: that nothing that a header declares is missing, and how text is set."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

from script_harness import ROOT, Failure, Skip, expect, run_tests

MAKER = ROOT / "scripts" / "man-from-header"
HEADERS = sorted((ROOT / "include" / "remora").glob("*.h"))

SMALL = '''/*
 * Small: a header in a few lines.
 *
 * A paragraph about small_open(), `flags` and -1.
 *
 *	struct small *small;	kept - as it is
 *	.starts with a dot
 *
 * Threads. Any. And what is promised:
 *  1. The first thing,
 *     on two lines.
 *  2. The second.
 */
#ifndef REMORA_SMALL_H
#define REMORA_SMALL_H

#include <stddef.h>

#define SMALL_MAX 16 /* of something */

struct small;

/* ------------------------------------------------------------------------------------------
 * The caller's
 *
 * Text of a section.
 */

/* Stands alone.
 */

/* What to do. */
enum small_flag {
	SMALL_ONE = 1 << 0, /* the first; with a semicolon, and a comma */
	/* Stands between. */
	SMALL_TWO = 1 << 1,
};

typedef struct small_options {
	/* Of its own line. */
	const char *name;
	int first, second; /* two
			    * lines */
	bool (*progress)(void *argument, size_t done);
} small_options_t;

struct small_nested {
	union {
		int a;
	};
};

/* Opens it.
 * 1: it cannot be. */
__attribute__((warn_unused_result)) const char *small_open(const struct small_options *options,
							    struct small **small);
void small_close(struct small *small);
size_t small_size(void); /* in bytes */

/* Called back. */
typedef void (*small_fn)(void *context);

#endif
'''


def make(root, *headers):
    result = subprocess.run([MAKER, "--output", root / "man", *headers], capture_output=True,
                            text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def make_well(root, *headers):
    code, output = make(root, *headers)
    expect(code, output, 0)
    return root / "man"


def render(page, *options):
    if not shutil.which("mandoc"):
        raise Skip("mandoc is missing")
    text = subprocess.run(["mandoc", "-T", "ascii", *options, page], capture_output=True, text=True,
                          check=True).stdout
    return re.sub(".\b", "", text)  # bold and underlined


def declared_functions(header):
    spec = importlib.util.spec_from_file_location("check_tree", ROOT / "scripts" / "check-tree.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.declared_functions(module.Tree(ROOT), header.relative_to(ROOT))


def test_complete(root, header):
    """Each function is on the page as it is read, with its arguments, and a page leads there."""
    pages = make_well(root, *HEADERS)
    text = " ".join(render(pages / f"remora-{header.stem}.3").split())
    functions = declared_functions(header)
    if not functions:
        raise Failure(f"{header} declares nothing")
    for function in functions:
        if f"{function}(" not in text:
            raise Failure(f"{function} is not on the page of {header.name}")
        link = (pages / f"{function}.3").read_text()
        if link != f".so man3/remora-{header.stem}.3\n":
            raise Failure(f"{function}.3 says {link}")
    expect(*lint(pages / f"remora-{header.stem}.3"), 0)
    # Nothing of the comments' frames, and no escape of ours, is left; but for structs that are kept
    # as they are.
    is_kept = "union {" in header.read_text()
    for rest in ("/*", "*/", "\\f", "\\&", "----------------------------------------"):
        if rest in text and not (is_kept and "*" in rest):
            raise Failure(f"'{rest}' on the page of {header.name}")


def test_every_word(root, header):
    """Every word of the header's comments is on its page."""
    pages = make_well(root, *HEADERS)
    words = set(re.findall(r"\w+", render(pages / f"remora-{header.stem}.3")))
    text = re.sub(r"#define RMR_MUST_CHECK.*", "", header.read_text())
    for comment in re.findall(r"/\*.*?\*/", text, re.S):
        missing = [word for word in re.findall(r"\w+", comment) if word not in words
                   # section titles are in capitals
                   and word.upper() not in words]
        if missing:
            raise Failure(f"{missing} of {comment} is not on the page of {header.name}")


def lint(page):
    if not shutil.which("mandoc"):
        raise Skip("mandoc is missing")
    result = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True,
                            text=True, check=False)
    return result.returncode, result.stdout


def test_small(root):
    header = root / "small.h"
    header.write_text(SMALL)
    page = make_well(root, header) / "remora-small.3"
    expect(*lint(page), 0)
    text = render(page)
    for part in ("remora-small - Small: a header in a few lines\n",
                 "#include <remora/small.h>",
                 "A paragraph about small_open(), flags and -1.\n",
                 "     struct small *small;    kept - as it is\n     .starts with a dot\n",
                 "   Threads\n     Any.  And what is promised:\n",
                 "1.   The first thing, on two lines.\n",
                 "2.   The second.\n",
                 "     SMALL_MAX = 16\n           of something\n",
                 "     struct small\n",
                 "\nTHE CALLER'S\n     Text of a section.\n",
                 "     Stands alone.\n",
                 "     enum small_flag\n           What to do.\n",
                 "           SMALL_ONE = 1 << 0\n"
                 "                 the first; with a semicolon, and a comma\n",
                 "\n           Stands between.\n\n           SMALL_TWO = 1 << 1\n",
                 "     small_options_t\n",
                 "           const char *name\n                 Of its own line.\n",
                 "           int first, second\n                 two lines\n",
                 "           bool (*progress)(void *argument, size_t done)\n",
                 "struct small_nested {\n",
                 "     const char *small_open(const struct small_options *options,\n"
                 "           struct small **small)\n"
                 "           Opens it.  1: it cannot be.\n",
                 "     void small_close(struct small *small)\n\n     size_t small_size(void)\n"
                 "           in bytes\n",
                 "     typedef void (*small_fn)(void *context)\n           Called back.\n"):
        if part not in text:
            raise Failure(f"{part!r} is not in: {text}")


def test_date(root):
    header = root / "small.h"
    header.write_text(SMALL)
    os.environ["SOURCE_DATE_EPOCH"] = "86400"
    try:
        page = make_well(root, header) / "remora-small.3"
    finally:
        del os.environ["SOURCE_DATE_EPOCH"]
    expect(0, page.read_text(), 0, ".Dd January 2, 1970\n")


def test_leftovers(root):
    """A function that is gone from the header has no page any more."""
    header = root / "small.h"
    header.write_text(SMALL)
    pages = make_well(root, header)
    header.write_text(SMALL.replace("size_t small_size(void); /* in bytes */\n", ""))
    make_well(root, header)
    if (pages / "small_size.3").exists() or not (pages / "small_close.3").exists():
        raise Failure(f"there are {sorted(pages.iterdir())}")


def test_no_opening(root):
    header = root / "small.h"
    header.write_text("void f(void);\n")
    expect(*make(root, header), 1, "small.h: has no opening comment")


def test_no_end(root):
    header = root / "small.h"
    header.write_text("/*\n * A page.\n */\nvoid f(void)\n")
    expect(*make(root, header), 1, "without an end")


TESTS = [("small", test_small, ()), ("date", test_date, ()), ("leftovers", test_leftovers, ()),
         ("no_opening_comment", test_no_opening, ()), ("no_end", test_no_end, ())]
TESTS += [(f"complete_{header.stem}", test_complete, (header,)) for header in HEADERS]
TESTS += [(f"every_word_{header.stem}", test_every_word, (header,)) for header in HEADERS]

sys.exit(run_tests(TESTS))
