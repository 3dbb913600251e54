#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A small guest of KVM, a virtual CPU on each of some nodes.

kvm_guest.py NODE...: for each line of standard input, all virtual CPUs run, one
after the other, and each writes to every page from 64 KiB to 960 KiB of the guest,
224 pages; the code is in page 0. Answers each line with `ran`. The guest has 2 MiB,
in small pages.
"""

import ctypes
import fcntl
import mmap
import os
import struct
import sys
import threading

KVM_CREATE_VM = 0xAE01
KVM_GET_VCPU_MMAP_SIZE = 0xAE04
KVM_CREATE_VCPU = 0xAE41
KVM_SET_USER_MEMORY_REGION = 0x4020AE46
KVM_RUN = 0xAE80
KVM_GET_REGS = 0x8090AE81
KVM_SET_REGS = 0x4090AE82
KVM_GET_SREGS = 0x8138AE83
KVM_SET_SREGS = 0x4138AE84
KVM_EXIT_HLT = 5

# mov ax, 0x1000; again: mov ds, ax; mov byte [0], 1; add ax, 0x100; cmp ax, 0xf000;
# jb again; hlt
CODE = bytes.fromhex("b80010 8ed8 c606000001 050001 3d00f0 72f1 f4")

nodes = [int(word) for word in sys.argv[1:]]
kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
vm = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
size = fcntl.ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0)
memory = mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
memory[: len(CODE)] = CODE
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(vm, KVM_SET_USER_MEMORY_REGION, struct.pack("=IIQQQ", 0, 0, 0, 2 << 20, address))


def cpus_of(node):
    with open(f"/sys/devices/system/node/node{node}/cpulist") as cpulist:
        first, _, last = cpulist.read().strip().partition("-")
    return range(int(first), int(last or first) + 1)


class Cpu(threading.Thread):
    """One that runs until it halts, whenever it is let."""

    def __init__(self, number, node):
        super().__init__(daemon=True)
        self.number, self.node = number, node
        self.may, self.did = threading.Semaphore(0), threading.Semaphore(0)
        self.vcpu = fcntl.ioctl(vm, KVM_CREATE_VCPU, number)
        self.state = mmap.mmap(self.vcpu, size)

    def run(self):
        os.sched_setaffinity(0, cpus_of(self.node))
        while True:
            self.may.acquire()
            self.once()
            self.did.release()

    def once(self):
        special = bytearray(fcntl.ioctl(self.vcpu, KVM_GET_SREGS, bytes(312)))
        # The code segment begins at 0: base, then limit and selector.
        struct.pack_into("=QIH", special, 0, 0, 0xFFFF, 0)
        fcntl.ioctl(self.vcpu, KVM_SET_SREGS, bytes(special))
        registers = bytearray(144)
        struct.pack_into("=QQ", registers, 128, 0, 2)
        fcntl.ioctl(self.vcpu, KVM_SET_REGS, bytes(registers))
        fcntl.ioctl(self.vcpu, KVM_RUN, 0)
        (reason,) = struct.unpack_from("=I", self.state, 8)
        if reason != KVM_EXIT_HLT:
            print(f"CPU {self.number} left with {reason}", flush=True)
            os._exit(1)


cpus = [Cpu(number, node) for number, node in enumerate(nodes)]
for cpu in cpus:
    cpu.start()
for _ in sys.stdin:
    for cpu in cpus:
        cpu.may.release()
        cpu.did.acquire()
    print("ran", flush=True)
