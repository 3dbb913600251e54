#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A virtual machine's nested tables on one node, its CPU's thread on another.

guest.py TABLES RUN MIB SECONDS: has KVM build MIB of nested tables from the CPUs
of node TABLES, says so in a line, and then keeps a CPU of node RUN busy, half of
the time, with a thread that has the name of a virtual CPU's. No code of a guest is
run. Needs Linux 6.11 (KVM_PRE_FAULT_MEMORY).
"""

import ctypes
import fcntl
import mmap
import os
import struct
import sys
import threading
import time

KVM_CREATE_VM = 0xAE01
KVM_CREATE_VCPU = 0xAE41
KVM_SET_USER_MEMORY_REGION = 0x4020AE46
KVM_PRE_FAULT_MEMORY = 0xC040AED5

tables, run, mib, seconds = (int(word) for word in sys.argv[1:])


def move_to(node):
    with open(f"/sys/devices/system/node/node{node}/cpulist") as cpulist:
        first, _, last = cpulist.read().strip().partition("-")
    os.sched_setaffinity(0, range(int(first), int(last or first) + 1))


def busy():
    move_to(run)
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write("CPU 0/KVM")
    print(f"nested tables on node {tables}, running on node {run}", flush=True)
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        while time.monotonic() < now + 0.05:
            pass
        time.sleep(0.05)


move_to(tables)
kvm = os.open("/dev/kvm", os.O_RDWR)
vm = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
vcpu = fcntl.ioctl(vm, KVM_CREATE_VCPU, 0)

# The same 64 MiB again and again: 128 KiB of tables in 4 KiB pages each time.
size = 64 << 20
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for slot in range(mib * 8):
    base = (4 << 30) + slot * size
    region = struct.pack("=IIQQQ", slot, 0, base, size, address)
    fcntl.ioctl(vm, KVM_SET_USER_MEMORY_REGION, region)
    done = bytearray(struct.pack("=QQQ40x", base, size, 0))
    while struct.unpack_from("=QQ", done)[1]:
        try:
            fcntl.ioctl(vcpu, KVM_PRE_FAULT_MEMORY, done)
        except InterruptedError:
            pass

thread = threading.Thread(target=busy)
thread.start()
thread.join()
