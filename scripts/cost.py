#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What answers cost, against what they may.

    cost.py tables NEARWALK WORKLOAD [GB]
    cost.py groups NEARWALK WORKLOAD

`tables` measures on the running host, as root: reading the page tables of a
process of GB gigabytes (1024 unless told), the longest hold of mmap_lock, and
what a program that maps and unmaps feels of it. `groups` makes control groups
and threads: it is for a machine that is nobody's, such as the lab's with
--icount, where a nanosecond of CPU time is an instruction. Prints a line for
each check, as TAP.
"""

import contextlib
import fcntl
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import termios
import time

WHAT, NEARWALK, WORKLOAD = sys.argv[1:4]
TRACING = "/sys/kernel/tracing"
CGROUPS = "/sys/fs/cgroup"
MIB = 1 << 20
checks = [0, 0]


def check(good, text):
    checks[not good] += 1
    print(f"{'ok' if good else 'not ok'} {sum(checks)} {text}", flush=True)


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def alone(cpu):
    """What has a program run as if nothing else did."""
    return ["chrt", "-f", "1", "taskset", "-c", str(cpu)]


def run(*args, before=()):
    """Runs nearwalk: seconds, CPU seconds and bytes of memory; what it printed."""
    begin = time.monotonic()
    with subprocess.Popen([*before, NEARWALK, *args], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        said = process.stdout.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
    assert status == 0, (args, status, said)
    return (time.monotonic() - begin, used.ru_utime + used.ru_stime,
            used.ru_maxrss << 10), said


@contextlib.contextmanager
def workload(*args):
    with subprocess.Popen([WORKLOAD, *args], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


@contextlib.contextmanager
def traced():
    """Holds of mmap_lock of others' memory, in microseconds."""
    holds = []
    write(f"{TRACING}/trace", "")
    write(f"{TRACING}/buffer_size_kb", "65536")
    write(f"{TRACING}/trace_clock", "mono")
    for event in ("acquire_returned", "released"):
        write(f"{TRACING}/events/mmap_lock/mmap_lock_{event}/enable", "1")
    try:
        yield holds
    finally:
        for event in ("acquire_returned", "released"):
            write(f"{TRACING}/events/mmap_lock/mmap_lock_{event}/enable", "0")
    taken = {}
    with open(f"{TRACING}/trace", encoding="ascii", errors="replace") as trace:
        for line in trace:
            found = re.search(r"nearwalk-(\d+) .* ([0-9.]+): mmap_lock_(\w+): mm=(\S+)",
                              line)
            if not found:
                continue
            task, at, what, mm = found.groups()
            if what == "acquire_returned":
                taken[task, mm] = float(at)
            elif (task, mm) in taken:
                holds.append((mm, 1e6 * (float(at) - taken.pop((task, mm)))))


def tables():
    gigabytes = int(sys.argv[4]) if len(sys.argv) > 4 else 1024
    per_tib = 1024 / gigabytes
    with workload("tables=1") as small:
        _, used, memory = min(run("locality", str(small.pid))[0] for _ in range(5))
        check(used <= 0.1, f"a small process is read within {1000 * used:.0f} ms of CPU time, "
              f"loading included (100), in {memory / MIB:.0f} MiB")
    with workload(f"tables={gigabytes}") as large:
        pid = str(large.pid)
        for args, budget in ((("locality",), 2.0), (("locality", "--fast"), 0.02),
                             (("dump",), None), (("contiguity",), None)):
            seconds, total, memory = min((run(*args, pid)[0] for _ in range(3)),
                                         key=lambda found: found[1])
            total -= used
            line = f"{' '.join(args)} of {gigabytes} GB: {1000 * total:.0f} ms of CPU time " \
                f"without loading, {1000 * seconds:.0f} ms in all, {memory / MIB:.0f} MiB"
            good = memory <= 64 * MIB and (not budget or total * per_tib <= budget)
            check(good, line + (f" ({1000 * budget / per_tib:.0f} ms, 64 MiB)" if budget
                                else " (64 MiB)"))
        if os.path.exists(f"{TRACING}/events/mmap_lock"):
            with traced() as holds:
                run("locality", pid, before=alone(1))
            # Most holds are of the process that is read.
            names = [mm for mm, _ in holds]
            theirs = max(set(names), key=names.count)
            times = sorted(time for mm, time in holds if mm == theirs)
            over = sum(time > 100 for time in times)
            check(len(times) > 1000 and times[len(times) * 99 // 100] <= 100,
                  f"mmap_lock was held {len(times)} times: median "
                  f"{times[len(times) // 2]:.0f} us, 99 % within "
                  f"{times[len(times) * 99 // 100]:.0f} us (100), 99.9 % within "
                  f"{times[len(times) * 999 // 1000]:.0f} us, most {times[-1]:.0f} us, "
                  f"{over} above 100 us")
    for walked in (False, True):
        with subprocess.Popen([*alone(0), WORKLOAD, f"tables={gigabytes}", "latency=5"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            walks = 0
            size = f"/proc/{process.pid}/status"
            while walked:
                with open(size, encoding="ascii", errors="replace") as file:
                    kib = int(re.search(r"VmPTE:\s+(\d+)", file.read()).group(1))
                if kib >= gigabytes << 11:
                    break
                time.sleep(0.01)
            until = time.monotonic() + 4
            while walked and time.monotonic() < until:
                run("locality", str(process.pid), before=alone(1))
                walks += 1
            said = process.stdout.readline().decode().strip()
            process.kill()
        print(f"# mmap, touch, munmap beside {walks} walks: {said}", flush=True)


NOBODY = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all"]


def watched(user):
    """Millions of instructions that `top` takes each second, and its memory."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with subprocess.Popen([*user, NEARWALK, "top"], stdin=slave, stdout=slave,
                          stderr=slave, env={**os.environ, "TERM": "xterm"}) as process:
        os.set_blocking(master, False)

        def ran():
            tasks = f"/proc/{process.pid}/task"
            times = []
            for tid in os.listdir(tasks):
                with open(f"{tasks}/{tid}/schedstat", encoding="ascii") as file:
                    times.append(int(file.read().split()[0]))
            return sum(times)

        def show(seconds):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                with contextlib.suppress(BlockingIOError):
                    os.read(master, 1 << 16)
                time.sleep(0.2)

        show(5)
        before = ran()
        show(20)
        used = ran() - before
        process.send_signal(signal.SIGTERM)
        show(1)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    return used / 20 / 1e6, usage.ru_maxrss << 10


def groups():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    write(f"{CGROUPS}/cgroup.subtree_control", "+memory")
    everybody = []

    def start(group, *args):
        process = subprocess.Popen([WORKLOAD, *args], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        write(f"{CGROUPS}/s{group}/cgroup.procs", str(process.pid))
        everybody.append(process)

    def wait():
        for process in everybody:
            if not process.stdout.closed:
                assert process.stdout.readline() == b"ready\n"
                process.stdout.close()

    # 300 groups, 2,000 threads: 200 processes of 7, 100 of 6.
    for index in range(300):
        os.makedirs(f"{CGROUPS}/s{index}", exist_ok=True)
        start(index, f"threads={6 if index < 200 else 5}")
    wait()
    threads = sum(len(os.listdir(f"/proc/{process.pid}/task")) for process in everybody)
    assert threads == 2000, threads
    for large in (0, 30):
        for index in range(large):
            # 10 MB of tables: more than half of an L3.
            start(index, "tables=5")
        wait()
        for args, who in ((("advise",), "root, by BPF"), (("advise",), "nobody")):
            user = NOBODY if who == "nobody" else []
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([*user, NEARWALK, *args], capture_output=True, text=True,
                                  check=True)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            millions = 1000 * (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)
            check(True, f"advise of 300 groups, 2,000 threads, {large} worth a look, {who}: "
                  f"{millions:.0f} million instructions")
            print(f"# {done.stdout.splitlines()[0]}", flush=True)
            print("# " + "\n# ".join(done.stdout.splitlines()[-4:]), flush=True)
    for who, user in (("root, by BPF", []), ("nobody", NOBODY)):
        steady, memory = watched(user)
        check(steady <= 37 and memory <= 64 * MIB, f"top, 30 worth a look, {who}: {steady:.0f} "
              f"million instructions a second (37, 1 % of 3.7 GHz), {memory / MIB:.0f} MiB")
    for process in everybody:
        process.kill()


if __name__ == "__main__":
    {"tables": tables, "groups": groups}[WHAT]()
    print(f"counts: {checks[0]} {checks[1]} 0")
    sys.exit(checks[1] > 0)
