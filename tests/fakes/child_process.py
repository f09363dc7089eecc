"""A child of the supervisor that needs nothing but the standard library and the tether's lines.

Accepts on its slot and answers each connection with its name and pid; a client that sends "hold" is kept until the
stop's deadline and then told "cut".  How it behaves is read from a JSON file when it starts, by name, so a test can
change what the next one does: ``{"worker 0": {"exit": 3}}``.  What it is told goes into a journal.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from gateway.core.tether import Adopt, Beat, Drained, Lines, Order, Ready, Release, Reload, Stop, Word, line

BEAT_S = 0.1


class ChildProcess:
    def __init__(self, name: str, *, fds: dict[str, Any], slot: int, wishes: dict[str, Any], journal: Path) -> None:
        self.name = name
        self.slot = slot
        self.wishes = wishes
        self.journal = journal
        self.fds = fds
        self.tether = socket.socket(fileno=fds["tether"])
        self.lines = Lines()
        self.selector = selectors.DefaultSelector()
        self.held: list[socket.socket] = []
        self.deadline: float | None = None
        self.accepting: list[int] = []

    def note(self, text: str) -> None:
        with self.journal.open("a") as journal:
            journal.write(f"{self.name} {os.getpid()} {text}\n")

    def say(self, word: Word) -> None:
        self.tether.send(line(word))

    def run(self) -> int:
        self.note("started")
        if "exit" in self.wishes:
            return int(self.wishes["exit"])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.selector.register(self.tether, selectors.EVENT_READ)
        self.say(Beat())
        self.wait(self.wishes.get("late_s", 0.0))
        self.accept_on(self.slot)
        self.say(Ready())
        while not self.done():
            if "mute" not in self.wishes:
                self.say(Beat())
            self.wait(BEAT_S)
        for client in self.held:
            client.sendall(b"cut\n")
        self.note("drained")
        self.say(Drained())
        return int(self.wishes.get("last_exit", 0))

    def done(self) -> bool:
        if self.deadline is None or "deaf" in self.wishes:
            return False
        return not self.held or time.monotonic() >= self.deadline

    def wait(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not self.done() and (left := until - time.monotonic()) >= 0:
            for key, _ in self.selector.select(left):
                if key.fileobj is self.tether:
                    self.read_tether()
                elif isinstance(key.fileobj, socket.socket):
                    self.read_client(key.fileobj)
                else:
                    self.take(key.fd)

    def read_tether(self) -> None:
        data = self.tether.recv(4096)
        if not data:
            self.note("orphaned")
            sys.exit(1)
        for said in self.lines.feed(data):
            if isinstance(said, Order):
                self.obey(said)

    def obey(self, order: Order) -> None:
        match order:
            case Adopt(slot):
                self.note(f"adopt {slot}")
                self.accept_on(slot)
            case Release(slot):
                self.note(f"release {slot}")
                self.release(slot)
            case Stop(deadline_s):
                self.note(f"stop {deadline_s:g}")
                self.deadline = time.monotonic() + deadline_s
                for slot in list(self.accepting):
                    self.release(slot)
            case Reload():
                self.note("reload")
                self.say(Ready())

    def accept_on(self, slot: int) -> None:
        if 0 <= slot < len(self.fds["slots"]):
            for fd in self.fds["slots"][slot]:
                if fd not in self.selector.get_map():
                    self.selector.register(fd, selectors.EVENT_READ)
            self.accepting.append(slot)

    def release(self, slot: int) -> None:
        self.accepting.remove(slot)
        kept = {fd for slot in self.accepting for fd in self.fds["slots"][slot]}
        for fd in set(self.fds["slots"][slot]) - kept:
            self.selector.unregister(fd)

    def take(self, fd: int) -> None:
        listener = socket.socket(fileno=os.dup(fd))
        with listener:
            try:
                client, _ = listener.accept()
            except OSError:  # another process took it, or it was shut
                return
        client.sendall(f"{self.name} {os.getpid()}\n".encode())
        client.settimeout(0)
        self.selector.register(client, selectors.EVENT_READ)

    def read_client(self, client: socket.socket) -> None:
        if client.recv(4096).startswith(b"hold"):
            self.held.append(client)
            client.sendall(b"held\n")
            return
        self.selector.unregister(client)
        if client in self.held:
            self.held.remove(client)
        client.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wishes", type=Path, required=True)
    parser.add_argument("--slot", type=int, default=-1)
    parser.add_argument("--fds", type=json.loads, required=True)
    known = parser.parse_args()
    name = "control" if known.slot < 0 else f"worker {known.slot}"
    wishes = json.loads(known.wishes.read_text())
    child = ChildProcess(
        name, fds=known.fds, slot=known.slot, wishes=wishes.get(name, {}), journal=known.wishes.parent / "journal"
    )
    return child.run()


if __name__ == "__main__":
    sys.exit(main())
