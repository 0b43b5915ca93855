"""The verbs lab: QEMU guests with Debian's kernel and soft-RoCE, where programs of this build meet
real kernel verbs on a machine that has no RDMA card.

    cpio.py     writes the archives that a guest's file system is made of
    kernel.py   gets Debian's kernel, and the modules that are needed of it
    image.py    the guest's file system: a base that is kept, and the programs under test
    init, lane  what runs in the guest: its set-up, and the loop that runs commands
    qemu.py     one QEMU process: its command line, its monitor, its certain end
    guest.py    a guest that runs commands, and pairs of them with a wire that can be cut
    suite.py    the table of what `make test-verbs` runs, and its count

Everything is made below build/lab. Nothing is installed, nothing needs root, and no guest has a
way out: its network cards end in QEMU itself, or in the other guest.
"""
