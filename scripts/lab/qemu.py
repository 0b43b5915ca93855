"""One QEMU process: how it is started, spoken to and, above all, ended.

It is ended by its number when the guest is closed, by a timer when its time is over, and by the
kernel when the process that started it dies. All its channels are socket pairs that it inherits:
no path, no port, nobody else can connect.
"""

import ctypes
import json
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from lab.kernel import find_program

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Monitor:
    """QEMU's control channel (QMP): lines of JSON. Its greeting must be answered first."""

    def __init__(self, channel):
        channel.settimeout(60)
        self.file = channel.makefile("rw", encoding="utf-8", newline="\n")
        self.greeted = False

    def execute(self, command, **arguments):
        if not self.greeted:
            self.greeted = True
            self.file.readline()
            self.execute("qmp_capabilities")
        self.file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.file.flush()
        while True:
            line = self.file.readline()
            if not line:
                raise ConnectionError(f"QEMU is gone, before it answered {command}")
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:  # anything else is an event
                return answer["return"]


def machine_options(boot):
    # KVM is never used, also where it exists: the lab is the same everywhere.
    return ["-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max", "-smp", str(boot.cpus),
            "-m", str(boot.memory_mib), "-no-reboot", "-nodefaults", "-no-user-config",
            "-display", "none"]


def card_options(cards):
    """A card ends in a hub inside QEMU. A wire is plugged into the hub: cut there, frames get lost
    and the guest's card notices nothing."""
    options = []
    for number, card in enumerate(cards):
        hub = number if card.hub is None else card.hub
        options += ["-netdev", f"hubport,id=card{number},hubid={hub}",
                    "-device", f"virtio-net-pci,netdev=card{number},mac={card.mac},romfile="]
        if card.wire is not None:
            options += ["-netdev", f"socket,id=wire{number},fd={card.wire.fileno()}",
                        "-netdev", f"hubport,id=plug{number},hubid={hub},netdev=wire{number}"]
    return options


@dataclass
class Boot:
    kernel: Path
    initrd: object  # a file object, which is handed over
    words: str      # the kernel's command line
    cpus: int = 2
    memory_mib: int = 1024


class Qemu:
    def __init__(self, boot, cards, lanes, console, deadline_s):
        """console: QEMU's own words for where the first serial port leads."""
        self.lanes = []
        inherited = [boot.initrd, *(card.wire for card in cards if card.wire is not None)]
        options = [*machine_options(boot), *card_options(cards), "-serial", console,
                   "-kernel", str(boot.kernel), "-initrd", f"/proc/self/fd/{boot.initrd.fileno()}",
                   "-append", boot.words, "-device", "virtio-serial-pci,max_ports=16"]
        for number in range(lanes):
            ours, theirs = socket.socketpair()
            self.lanes.append(ours)
            inherited.append(theirs)
            options += ["-chardev", f"socket,id=lane{number},fd={theirs.fileno()}",
                        "-device", f"virtserialport,chardev=lane{number},nr={number + 1}"]
        ours, theirs = socket.socketpair()
        inherited.append(theirs)
        self.monitor = Monitor(ours)
        options += ["-chardev", f"socket,id=monitor,fd={theirs.fileno()}",
                    "-mon", "chardev=monitor,mode=control"]
        interactive = console.startswith("mon:")
        self.process = subprocess.Popen(
            [find_program("qemu-system-x86_64", "qemu-system-x86"), *options],
            pass_fds=[channel.fileno() for channel in inherited], preexec_fn=die_with_parent,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=None if interactive else subprocess.DEVNULL, stderr=subprocess.PIPE)
        for channel in inherited:
            channel.close()
        self.is_late = False
        self.timer = threading.Timer(deadline_s, self.expire) if deadline_s else None
        if self.timer:
            self.timer.daemon = True
            self.timer.start()

    def expire(self):
        self.is_late = True
        self.process.kill()

    def kill(self):
        """The guest is gone from one moment to the next, without a word to anybody."""
        if self.timer:
            self.timer.cancel()
        self.process.kill()
        self.process.wait()

    def last_words(self):
        """What QEMU itself has complained of, once it has ended."""
        if self.process.stderr.closed:
            return ""
        with self.process.stderr:
            text = self.process.stderr.read().decode(errors="replace")
        # It warns of cards that lead nowhere, which is what we want.
        return "".join(line for line in text.splitlines(True)
                       if "is not connected to host network" not in line)
