"""Writes cpio archives (newc), the format that the kernel unpacks as its first file system.

Written here rather than with cpio(1), which would need root to make a device node, and a copy of
all files in a directory.
"""

import os
import stat

BLOCK = 4
TRAILER = "TRAILER!!!"


class Archive:
    """Collects files by the path that they have in the guest; the first of a path wins."""

    def __init__(self):
        self.entries = {}  # path without the leading slash -> (mode, device, data or source)

    def add_directory(self, path):
        path = path.strip("/")
        if path and path not in self.entries:
            self.add_directory(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | 0o755, (0, 0), b"")

    def add(self, path, mode, content, device=(0, 0)):
        path = path.strip("/")
        self.add_directory(os.path.dirname(path))
        self.entries.setdefault(path, (mode, device, content))

    def add_text(self, path, text, executable=False):
        self.add(path, stat.S_IFREG | (0o755 if executable else 0o644), text.encode())

    def add_file(self, path, source):
        """A file of this machine, read when the archive is written."""
        mode = 0o755 if os.access(source, os.X_OK) else 0o644
        self.add(path, stat.S_IFREG | mode, os.fspath(source))

    def add_link(self, path, target):
        self.add(path, stat.S_IFLNK | 0o777, target.encode())

    def add_character_device(self, path, major, minor):
        self.add(path, stat.S_IFCHR | 0o600, b"", (major, minor))

    def __contains__(self, path):
        return path.strip("/") in self.entries

    def write(self, output):
        for inode, (path, (mode, device, content)) in enumerate(self.entries.items(), 1):
            if isinstance(content, str):
                with open(content, "rb") as file:
                    content = file.read()
            write_entry(output, inode, path, mode, device, content)
        write_entry(output, 0, TRAILER, 0, (0, 0), b"")


def write_entry(output, inode, path, mode, device, data):
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    # inode, mode, uid, gid, links, mtime, size, device of the file, device it is, name, checksum
    fields = (inode, mode, 0, 0, links, 0, len(data), 0, 0, *device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    for part in (header + name, data):
        output.write(part + b"\0" * (-len(part) % BLOCK))
