"""What the benchmarks share: a goal, which is ours beside theirs, measured in alternating rounds;
and how a list of them is shown.
"""

import os
import platform
import statistics
import subprocess
import sys
import time

LOAD_LIMIT = 0.5
NOT_IDLE = "The machine was not idle before the run: its figures are worth little."


class Missing(Exception):
    """A contestant that is not on this machine."""


class Goal:
    """Ours beside theirs. sign: whether the ratio must be at most ("<=") or at least (">=") limit;
    a limit of None is shown without a verdict."""

    def __init__(self, name, unit, sign, limit, ours, theirs, their_name):
        self.name, self.unit, self.sign, self.limit = name, unit, sign, limit
        self.measure_ours, self.measure_theirs, self.their_name = ours, theirs, their_name
        self.ours, self.theirs, self.missing = [], [], None

    @classmethod
    def measured(cls, name, unit, sign, limit, ours, theirs, their_name):
        """One whose rounds are over: lists of figures, round by round. theirs may be a Missing."""
        goal = cls(name, unit, sign, limit, None, None, their_name)
        goal.ours = list(ours)
        if isinstance(theirs, Missing):
            goal.missing = str(theirs)
        else:
            goal.theirs = list(theirs)
        return goal

    def measure(self, ours_first):
        pair = [(self.measure_ours, self.ours), (self.measure_theirs, self.theirs)]
        for function, values in pair if ours_first else reversed(pair):
            if self.missing and values is self.theirs:
                continue
            try:
                values.append(function())
            except Missing as reason:
                self.missing = str(reason)

    def ratio(self):
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs))

    def verdict(self):
        if self.missing:
            return "SKIP"
        if self.limit is None:
            return "-"
        met = self.ratio() <= self.limit if self.sign == "<=" else self.ratio() >= self.limit
        return "PASS" if met else "MISS"

    def cells(self):
        ours = show(statistics.median(self.ours), self.unit)
        if self.missing:
            return [self.name, ours, self.missing, "", "", "SKIP"]
        ratios = [a / b for a, b in zip(self.ours, self.theirs)]
        limit = f"{self.sign} {self.limit:g}" if self.limit is not None else ""
        return [self.name, ours,
                f"{show(statistics.median(self.theirs), self.unit)} ({self.their_name})",
                f"{self.ratio():.2f} ({min(ratios):.2f}..{max(ratios):.2f})", limit,
                self.verdict()]

    def as_json(self):
        return {"goal": self.name, "unit": self.unit, "ours": self.ours, "theirs": self.theirs,
                "contestant": self.their_name, "sign": self.sign, "limit": self.limit,
                "ratio": None if self.missing else self.ratio(), "verdict": self.verdict()}


class Bound:
    """A figure of ours alone that must stay at or below ("<="), or reach (">="), a limit. beside:
    a text that is shown with it."""

    def __init__(self, name, unit, sign, limit, ours, beside=""):
        self.name, self.unit, self.sign, self.limit = name, unit, sign, limit
        self.ours, self.beside = list(ours), beside

    def verdict(self):
        value = statistics.median(self.ours)
        return "PASS" if (value <= self.limit if self.sign == "<=" else value >= self.limit) \
            else "MISS"

    def cells(self):
        ours = show(statistics.median(self.ours), self.unit)
        if len(self.ours) > 1:
            ours += f" ({show(min(self.ours), self.unit)}..{show(max(self.ours), self.unit)})"
        return [self.name, ours, self.beside, "", f"{self.sign} {show(self.limit, self.unit)}",
                self.verdict()]

    def as_json(self):
        return {"goal": self.name, "unit": self.unit, "ours": self.ours, "sign": self.sign,
                "limit": self.limit, "verdict": self.verdict()}


def show(value, unit):
    if unit == "ns":
        if value >= 1e6:
            return f"{value / 1e6:.2f} ms"
        return f"{value:.1f} ns" if value < 1000 else f"{value / 1000:.2f} us"
    if unit == "B/s":
        return f"{value / 1e6:.1f} MB/s" if value < 1e8 else f"{value / 1e9:.2f} GB/s"
    if unit == "MB/s":
        return f"{value / 1e6:.1f} MB/s"
    if unit == "ops/s":
        return f"{value / 1e3:.0f} k/s" if value < 1e6 else f"{value / 1e6:.2f} M/s"
    if unit == "MB":
        return f"{value / 1e6:.1f} MB"
    if unit == "B":
        return f"{value:.1f} B"
    return f"{value * 100:.3f}%"


HEADINGS = ["goal", "ours", "beside", "ratio (range)", "wanted", "verdict"]


def text_table(rows):
    table = [HEADINGS, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in table)


def markdown_table(rows):
    lines = ["| " + " | ".join(row) + " |" for row in [HEADINGS, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(HEADINGS), *lines[1:]])


def summary(goals):
    verdicts = [goal.verdict() for goal in goals]
    return (f"{verdicts.count('PASS')} goals met, {verdicts.count('MISS')} missed, "
            f"{verdicts.count('SKIP')} not measured")


def version_of(command):
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
        return output.strip().splitlines()[0].lstrip("# ")
    except (OSError, IndexError, subprocess.SubprocessError):
        return "not installed"


def machine_facts():
    model = "unknown CPU"
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/sys/devices/system/clocksource/clocksource0/current_clocksource") as source:
        clock = source.read().strip()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "virtualization": version_of(["systemd-detect-virt"]),
        "kernel": platform.release(),
        "clock": clock,
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def machine_text(facts):
    return (f"{facts['cpu']}, {facts['cores']} cores, {facts['virtualization']}, "
            f"Linux {facts['kernel']}, clock {facts['clock']}")


def show_progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure_rounds(goals, rounds):
    """Ours is first in one round, theirs in the next."""
    for number in range(rounds):
        for goal in goals:
            show_progress(f"round {number + 1} of {rounds}: {goal.name}")
            goal.measure(ours_first=number % 2 == 0)
    show_progress("")
