"""Guests that run commands.

    with Guest(get_image(), programs=["build/tests/fabric_conformance"]) as guest:
        result = guest.run("build/tests/fabric_conformance --provider shm", timeout_s=600)
        print(result.code, result.output)

A guest alone has two cards that lead nowhere, eth0 and eth1, with rxe0 and rxe1 on them: client
and server are two processes, and rxe carries the frames back inside the kernel. A Pair is two
guests with a wire between them, which the host can cut; the first has a second card on that wire,
eth1, which is not set up.

A command that takes too long is killed, and says so in its result. A guest that does not boot,
panics or stops answering raises GuestFailure with the end of its console, which is also kept in
build/test-logs. Guests end with the `with` block, and with this process, however it ends.
"""

import base64
import os
import secrets
import shlex
import socket
import threading
import time
from dataclasses import dataclass

from lab.image import ROOT
from lab.qemu import Boot, Qemu

LOGS = ROOT / "build" / "test-logs"
LANES = 7  # the first is the host's own, see the file `lane`
# The guest is emulated, and this machine may be busy with other things.
BOOT_TIMEOUT_S = 180
ANSWER_TIMEOUT_S = 60
DEADLINE_S = 3600
TIMED_OUT = "timed out"
HUGE_PAGES = 64  # of 2 MiB
KERNEL_WORDS = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check cryptomgr.notests"


class GuestFailure(Exception):
    """The guest itself failed, not a command in it."""


@dataclass
class Card:
    addresses: tuple
    mac: str
    wire: socket.socket = None
    hub: int = None  # cards with the same number meet, and share a wire; None: one of its own


def cards_of_one():
    return [Card(("10.77.0.1/24", "fd77::1/64"), "52:54:00:77:00:01"),
            Card(("10.78.0.1/24", "fd78::1/64"), "52:54:00:78:00:01")]


@dataclass
class Result:
    code: object  # the exit code, 128 + n for signal n, or TIMED_OUT
    output: str


class Lane:
    """The host's end of a lane; a thread keeps reading, so that the guest never waits for us."""

    def __init__(self, channel):
        self.channel = channel
        self.buffer = bytearray()
        self.changed = threading.Condition()
        self.is_open = True
        self.is_busy = False
        threading.Thread(target=self.read_all, daemon=True).start()

    def read_all(self):
        while True:
            try:
                data = self.channel.recv(65536)
            except OSError:
                data = b""
            with self.changed:
                self.buffer += data
                self.is_open = bool(data)
                self.changed.notify_all()
            if not data:
                return

    def send(self, word, command):
        with self.changed:
            self.buffer.clear()
        self.channel.sendall(f"{word} {base64.b64encode(command.encode()).decode()}\n".encode())

    def await_condition(self, condition, timeout_s):
        """Waits until condition(bytes so far) is true; returns its value, None if there was no
        time or the guest has gone."""
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while True:
                value = condition(bytes(self.buffer))
                if value is not None:
                    return value
                left = deadline - time.monotonic()
                if not self.is_open or left <= 0:
                    return None
                self.changed.wait(left)

    def await_end(self, word, timeout_s, on_output=None):
        """(output, exit code), when the line that ends the command `word` has come. Until then
        on_output gets the output as it comes."""
        mark = b"\1" + word.encode() + b" "
        shown = 0

        def find(data):
            nonlocal shown
            output, found, rest = data.partition(mark)
            if on_output and (found or b"\1" not in output):  # else it may be the mark's begin
                on_output(output[shown:])
                shown = len(output)
            if not found or b"\n" not in rest:
                return None
            return output, int(rest.split(b"\n")[0])
        return self.await_condition(find, timeout_s)


class Running:
    """A command that has been started on a lane."""

    def __init__(self, guest, lane, number, command):
        self.guest, self.lane, self.number = guest, lane, number
        self.word = secrets.token_hex(8)
        self.result = None
        lane.is_busy = True
        lane.send(self.word, command)

    def output(self):
        """What it has written so far."""
        if self.result:
            return self.result.output
        data = self.lane.await_condition(bytes, 0)
        return data.partition(b"\1" + self.word.encode())[0].decode(errors="replace")

    def wait(self, timeout_s, on_output=None):
        """Its Result; when the time is over it is killed first. on_output is called with the bytes
        of the output as they come."""
        if self.result:
            return self.result
        end = self.lane.await_end(self.word, timeout_s, on_output)
        timed_out = end is None and self.lane.is_open
        if timed_out:
            end = self.kill_and_wait()
        if end is None:
            self.guest.fail("the guest ended while a command ran")
        output, code = end
        self.result = Result(TIMED_OUT if timed_out else code, output.decode(errors="replace"))
        self.lane.is_busy = False
        self.guest.running.remove(self)
        return self.result

    def wait_for(self, text, timeout_s=60):
        """Waits until it has written `text`, and raises GuestFailure if it does not."""
        found = self.lane.await_condition(
            lambda data: True if text.encode() in data else None, timeout_s)
        if not found:
            self.guest.fail(f"a command has not said '{text}' but: {self.output()}")

    def kill_and_wait(self):
        self.guest.control(f"kill -9 -$(cat /run/lane.{self.number})")
        end = self.lane.await_end(self.word, ANSWER_TIMEOUT_S)
        if end is None:
            self.guest.fail("a command could not be killed")
        return end

    def kill(self):
        """Kills it with all its children (SIGKILL), if it still runs; returns its Result."""
        if not self.result and self.lane.await_end(self.word, 0) is None:
            self.kill_and_wait()
        return self.wait(ANSWER_TIMEOUT_S)


def shell_command(command, environment=None, memlock_kib=None):
    """The text for the guest's shell. memlock_kib: the limit of memory that may be locked. Root
    has none, so the command then runs as the user `tester`."""
    text = command if isinstance(command, str) else shlex.join(command)
    for name, value in (environment or {}).items():
        text = f"export {name}={shlex.quote(str(value))}; {text}"
    if memlock_kib is not None:
        text = (f"ulimit -l {memlock_kib}; exec setpriv --reuid=1000 --regid=1000 --clear-groups "
                f"--inh-caps=-all sh -c {shlex.quote(text)}")
    return text


class Guest:
    """Boots at once, without waiting: the first command waits until the guest is ready."""

    def __init__(self, image, programs=(), name="one", cards=None, cpus=2, memory_mib=1024,
                 huge_pages=HUGE_PAGES, deadline_s=DEADLINE_S):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.console = LOGS / f"lab-{name}-console.log"
        self.running = []
        self.cards = cards = cards if cards is not None else cards_of_one()
        self.deadline_s = deadline_s
        words = kernel_words(name, cards, huge_pages, deadline_s)
        boot = Boot(image.kernel.image, image.open_initrd(programs), words, cpus, memory_mib)
        self.qemu = Qemu(boot, cards, LANES, f"file:{self.console}", deadline_s)
        self.lanes = [Lane(channel) for channel in self.qemu.lanes]
        self.is_ready = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.qemu.kill()
        self.qemu.last_words()
        for channel in self.qemu.lanes:
            channel.close()

    def fail(self, reason):
        """Ends the guest, and says what can be known."""
        if self.qemu.is_late:
            reason += f" (it was killed after {self.deadline_s} s)"
        self.qemu.kill()
        tail = self.console.read_text(errors="replace").splitlines()[-25:]
        text = "\n".join(f"    {line}" for line in [*self.qemu.last_words().splitlines(), *tail])
        raise GuestFailure(f"guest {self.name}: {reason}; its console, "
                           f"{os.path.relpath(self.console, ROOT)}, ends with\n{text}")

    def wait_ready(self):
        if self.is_ready:
            return
        for lane in self.lanes:
            if lane.await_end("ready", BOOT_TIMEOUT_S) is None:
                self.fail(f"it has not booted in {BOOT_TIMEOUT_S} s" if lane.is_open
                          else "it ended while it booted")
        self.is_ready = True

    def control(self, command):
        """A short command on the host's own lane; returns its output."""
        self.wait_ready()
        running = Running(self, self.lanes[0], 0, command)
        end = self.lanes[0].await_end(running.word, ANSWER_TIMEOUT_S)
        if end is None:
            self.fail("it does not answer any more")
        return end[0].decode(errors="replace")

    def start(self, command, environment=None, memlock_kib=None):
        """Starts a command (words, or text for the shell) in /remora; returns it as Running."""
        self.wait_ready()
        for number, lane in enumerate(self.lanes[1:], 1):
            if not lane.is_busy:
                running = Running(self, lane, number,
                                  shell_command(command, environment, memlock_kib))
                self.running.append(running)
                return running
        raise RuntimeError(f"{LANES - 1} commands run already; wait for one of them")

    def run(self, command, timeout_s=60, environment=None, memlock_kib=None, on_output=None):
        return self.start(command, environment, memlock_kib).wait(timeout_s, on_output)

    def wait_for_listener(self, port, timeout_s=60):
        """Until somebody listens on a port of TCP or of the RDMA connection manager."""
        command = (f"until netstat -tln | grep -q ':{port} ' || "
                   f"rdma resource show cm_id | grep -q 'state LISTEN .*:{port} '; do "
                   "sleep 0.05; done")
        if self.run(command, timeout_s).code != 0:
            self.fail(f"nobody listens on port {port}")

    def restore_addresses(self):
        """The kernel takes IPv6 addresses away from a card that is taken down."""
        for number, card in enumerate(self.cards):
            for address in card.addresses:
                if ":" in address:
                    self.control(f"ip -6 address replace {address} dev eth{number} nodad")

    def clean(self):
        """Kills what still runs."""
        for running in list(self.running):
            running.kill()

    def cut_wire(self, card=0):
        """From now on all frames are lost, and no card notices."""
        self.qemu.monitor.execute("set_link", name=f"wire{card}", up=False)

    def restore_wire(self, card=0):
        self.qemu.monitor.execute("set_link", name=f"wire{card}", up=True)

    def unplug(self, card=0):
        """The guest's own card says that it has no link (see also `ip link set eth0 down`)."""
        self.qemu.monitor.execute("set_link", name=f"card{card}", up=False)

    def plug(self, card=0):
        self.qemu.monitor.execute("set_link", name=f"card{card}", up=True)

    def kill(self):
        """The host vanishes without a word."""
        self.qemu.kill()


def kernel_words(name, cards, huge_pages, deadline_s, shell=False):
    """The kernel's command line; the words lab_* are for init."""
    words = [KERNEL_WORDS, f"lab_name={name}", f"lab_lanes={LANES}", f"lab_huge={huge_pages}"]
    words += [f"lab_net{number}={','.join(card.addresses)}" for number, card in enumerate(cards)]
    if deadline_s:
        words.append(f"lab_deadline={int(deadline_s)}")
    if shell:
        words.append("lab_shell=1")
    return " ".join(words)


class Pair:
    """Two hosts, 10.77.0.1 (a) and 10.77.0.2 (b), and the wire between them."""

    ADDRESS_A, ADDRESS_B = "10.77.0.1", "10.77.0.2"

    def __init__(self, image, programs=(), name="pair", **keywords):
        end_a, end_b = socket.socketpair()
        self.guests = []
        try:
            for letter, number, end in (("a", 1, end_a), ("b", 2, end_b)):
                cards = [Card((f"10.77.0.{number}/24", f"fd77::{number}/64"),
                              f"52:54:00:77:00:{number:02x}", end)]
                if letter == "a":
                    cards.append(Card((), "52:54:00:78:00:01", hub=0))
                self.guests.append(Guest(image, programs, f"{name}-{letter}", cards,
                                         **{"cpus": 1, **keywords}))
            self.a, self.b = self.guests
            for guest in self.guests:
                guest.wait_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for guest in self.guests:
            guest.close()

    def is_whole(self):
        return all(guest.lanes[0].is_open for guest in self.guests)

    def clean(self):
        """As after booting: a whole wire, and nothing runs."""
        self.restore()
        for guest in self.guests:
            guest.clean()

    def cut(self):
        self.a.cut_wire()

    def restore(self):
        self.a.restore_wire()
