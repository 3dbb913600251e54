#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Load for memcached and Redis in the soak test: writes values that follow
from key and version, reads them back and compares.

Usage: keyvalue.py memcached|redis PORT SECONDS

With redis, a BGSAVE runs whenever the last one is done, and each must succeed.
Prints what was done; the exit status is 1 if a value was wrong or lost.
"""
import random
import socket
import sys
import time

KEYS = 4000


def value(key, version):
    """The value of a key: its size varies, its text names key and version."""
    text = b"%d.%d." % (key, version)
    return text * (1 + (key * 31 + version * 7) % 200)


class Memcached:
    def __init__(self, port):
        self.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def set(self, key, data):
        self.file.write(b"set k%d 0 0 %d\r\n%s\r\n" % (key, len(data), data))
        self.file.flush()
        answer = self.file.readline()
        if answer != b"STORED\r\n":
            raise ValueError("memcached answers %r to a set" % answer)

    def get(self, key):
        self.file.write(b"get k%d\r\n" % key)
        self.file.flush()
        head = self.file.readline().split()
        if head[:1] != [b"VALUE"]:
            return None
        data = self.file.read(int(head[3]) + 2)[:-2]
        self.file.readline()
        return data

    def background(self):
        return 0


class Redis:
    def __init__(self, port):
        self.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        self.saves = 0

    def command(self, *words):
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        line = self.file.readline()
        if line[:1] == b"-":
            raise ValueError("redis answers %r to %r" % (line, words[0]))
        if line[:1] != b"$":
            return line[1:].strip()
        size = int(line[1:])
        return None if size < 0 else self.file.read(size + 2)[:-2]

    def set(self, key, data):
        self.command(b"SET", b"k%d" % key, data)

    def get(self, key):
        return self.command(b"GET", b"k%d" % key)

    def background(self):
        info = self.command(b"INFO", b"persistence")
        if b"rdb_last_bgsave_status:ok" not in info:
            raise ValueError("a BGSAVE failed")
        if b"rdb_bgsave_in_progress:0" in info:
            self.command(b"BGSAVE")
            self.saves += 1
        return self.saves


def main():
    kind, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    store = {"memcached": Memcached, "redis": Redis}[kind](port)
    rng = random.Random(1)
    versions = {}
    end = time.monotonic() + seconds
    sets = gets = wrong = saves = 0
    while time.monotonic() < end:
        for _ in range(200):
            key = rng.randrange(KEYS)
            if key not in versions or rng.random() < 0.3:
                versions[key] = versions.get(key, 0) + 1
                store.set(key, value(key, versions[key]))
                sets += 1
            else:
                gets += 1
                if store.get(key) != value(key, versions[key]):
                    print("key %d version %d came back wrong" % (key, versions[key]))
                    wrong += 1
        saves = store.background()
    print("%s: %d sets, %d gets, %d saves, %d wrong" % (kind, sets, gets, saves, wrong))
    return 1 if wrong or not gets else 0


if __name__ == "__main__":
    sys.exit(main())
