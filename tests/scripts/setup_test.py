#!/usr/bin/env python3
"""scripts/setup, with a dpkg-query and an apt-get that are small scripts: what it installs, what it
says, and when it fails. Nothing is installed by this test."""

import os
import re
import subprocess
import sys

from script_harness import ROOT, Failure, expect, run_tests, write_tree

SETUP = ROOT / "scripts" / "setup"


def package_names():
    """All packages that the script names, from its own lists."""
    text = SETUP.read_text()
    names = "required|optional|test|test_optional|javascript|lab|bench|deb|servers"
    lists = re.findall(rf"^({names})='\n(.*?)^'", text, re.M | re.S)
    return {name: [line.split()[0] for line in body.splitlines()] for name, body in lists}


def run_setup(root, missing, *options, apt_fails_for=None, servers_there=True):
    """Runs it where all packages but `missing` are installed. Returns code, output, apt's calls."""
    names = sum(package_names().values(), [])
    if servers_there:
        write_tree(root, {"servers/usr/bin/memcached": ""}, executable=True)
    have = "".join(f"ii  {name}\n" for name in names if name not in missing)
    have += "".join(f"rc  {name}\n" for name in missing)  # removed, with its configuration left
    fail = ""
    if apt_fails_for:
        fail = f"case \"$*\" in *{apt_fails_for}*) echo broken; exit 100;; esac\n"
    write_tree(root, {"have": have, "calls": ""})
    write_tree(root, {
        "bin/dpkg-query": f"#!/bin/sh\ncat {root}/have\n",
        "bin/apt-get": "#!/bin/sh\n"
                       "[ \"$2\" = download ] || [ \"$DEBIAN_FRONTEND\" = noninteractive ] || "
                       f"exit 99\necho \"$*\" >> {root}/calls\n{fail}"
                       "[ \"$2\" != download ] || { shift 2; "
                       "for name; do echo > ${name}_1_all.deb; done; }\n",
        "bin/dpkg-deb": f"#!/bin/sh\necho \"$1 ${{2##*/}} ${{3#{root}/}}\" >> {root}/unpacked\n",
        "bin/sudo": "#!/bin/sh\n[ \"$1\" != -n ] || shift\nexec \"$@\"\n",
    }, executable=True)
    environment = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}",
                   "REMORA_SERVERS_DIR": f"{root}/servers", "REMORA_BUILD_DIR": f"{root}/build"}
    write_tree(root, {"build/build.ninja": "", "build/asan/build.ninja": ""})
    result = subprocess.run([SETUP, *options], capture_output=True, text=True, check=False,
                            stdin=subprocess.DEVNULL, env=environment)
    return result.returncode, result.stdout + result.stderr, (root / "calls").read_text()


def expect_calls(calls, *expected):
    actual = [line.replace("-y ", "").replace("-q ", "").replace("--no-install-recommends ", "")
              for line in calls.splitlines()]
    if actual != list(expected):
        raise Failure(f"apt-get was called with {actual}, expected {list(expected)}")


def test_nothing_missing(root):
    names = package_names()
    others = set(sum(names.values(), [])) - set(names["required"] + names["optional"])
    code, output, calls = run_setup(root, list(others), servers_there=False)
    expect(code, output, 0)
    expect_calls(calls)
    if output:
        raise Failure("it is not silent: " + output)
    if not (root / "build/build.ninja").exists():
        raise Failure("the build is configured anew for nothing")


def test_building_needs_little(root):
    """`make run` installs no compiler but gcc, no JavaScript, no analysis."""
    names = package_names()
    for heavy in ("clang", "cppcheck", "nodejs", "npm", "qemu-system-x86", "python3-grpcio"):
        if heavy in names["required"] + names["optional"]:
            raise Failure(f"{heavy} is none that building needs")
    everything = sum(names.values(), [])
    _, _, calls = run_setup(root, everything)
    expect_calls(calls, "update", "install " + " ".join(names["required"]),
                 "install " + " ".join(names["optional"]))
    # For the tests all of that, and more.
    _, _, calls = run_setup(root, [name for name in everything if name not in ("nodejs", "npm")],
                            "lab")
    expect_calls(calls, "update", "install " + " ".join(names["required"] + names["test"]),
                 "install " + " ".join(names["optional"]),
                 "install " + " ".join(names["test_optional"]), "install " + " ".join(names["lab"]))


def test_new_packages_are_found(root):
    """A build that was configured without them is configured anew."""
    run_setup(root, ["libhiredis-dev"], "test")
    if list((root / "build").rglob("build.ninja")):
        raise Failure("the build would not look for what was installed")


def test_installs_the_missing(root):
    code, output, calls = run_setup(root, ["cppcheck", "ninja-build"], "test")
    expect(code, output, 0, "cppcheck", "analyses the code", "ninja-build", "runs the build")
    expect_calls(calls, "update", "install ninja-build cppcheck")


def test_bench(root):
    code, output, calls = run_setup(root, ["ucx-utils"], "bench")
    expect(code, output, 0, "ucx-utils")
    expect_calls(calls, "update", "install ucx-utils")


def test_servers_are_unpacked(root):
    names = package_names()["servers"]
    code, output, calls = run_setup(root, names, "bench", servers_there=False)
    expect(code, output, 0, "unpacking, not installing: " + " ".join(names))
    expect_calls(calls, "download " + " ".join(names))
    unpacked = (root / "unpacked").read_text().splitlines()
    if unpacked != [f"-x {name}_1_all.deb servers" for name in names]:
        raise Failure(f"unpacked: {unpacked}")


def test_servers_failure_is_a_warning(root):
    code, output, calls = run_setup(root, ["ucx-utils"], "bench", servers_there=False,
                                    apt_fails_for="download")
    expect(code, output, 0, "memcached could not be had; the benchmarks go on without", "broken")
    expect_calls(calls, "update", "install ucx-utils",
                 "download " + " ".join(package_names()["servers"]))


def test_optional_failure_is_a_warning(root):
    code, output, calls = run_setup(root, ["cmake", "libfabric-dev"],
                                    apt_fails_for="libfabric-dev")
    expect(code, output, 0, "libfabric-dev could not be installed; the build leaves out")
    expect_calls(calls, "update", "install cmake", "install libfabric-dev")


def test_lab(root):
    code, output, calls = run_setup(root, ["qemu-system-x86", "ucx-utils"], "lab")
    expect(code, output, 0, "qemu-system-x86", "emulates a machine")
    expect_calls(calls, "update", "install qemu-system-x86")


def test_lab_failure_is_a_warning(root):
    code, output, calls = run_setup(root, ["cmake", "perftest"], "lab", apt_fails_for="perftest")
    expect(code, output, 0,
           "perftest could not be installed; the tests with kernel verbs are skipped")
    expect_calls(calls, "update", "install cmake", "install perftest")


def test_deb(root):
    code, output, calls = run_setup(root, ["debootstrap", "ucx-utils", "perftest"], "deb")
    expect(code, output, 0, "debootstrap", "bare Debian")
    expect_calls(calls, "update", "install debootstrap")


def test_required_failure(root):
    code, output, _ = run_setup(root, ["cmake"], apt_fails_for="cmake")
    expect(code, output, 1, "apt-get install cmake failed:", "broken")


def test_update_failure_is_a_warning(root):
    code, output, calls = run_setup(root, ["cmake"], apt_fails_for="update")
    expect(code, output, 0, "apt-get update failed; trying with the lists that are there")
    expect_calls(calls, "update", "install cmake")


def test_wrong_use(root):
    code, output, calls = run_setup(root, [], "everything")
    expect(code, output, 2, "usage: scripts/setup [test|lab|deb|bench]")
    expect_calls(calls)


TESTS = [(function.__name__.removeprefix("test_"), function, ()) for function in (
    test_nothing_missing, test_building_needs_little, test_new_packages_are_found,
    test_installs_the_missing, test_bench, test_servers_are_unpacked,
    test_servers_failure_is_a_warning, test_lab, test_lab_failure_is_a_warning,
    test_deb, test_optional_failure_is_a_warning, test_required_failure,
    test_update_failure_is_a_warning, test_wrong_use)]

if __name__ == "__main__":
    sys.exit(run_tests(TESTS))
