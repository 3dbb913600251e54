// SPDX-License-Identifier: GPL-2.0-only
// Masks of struct pgtable_repl and of its owner that others set bits of without the lock, by page
// faults under a VMA lock: lacking and linked. They are changed bit by bit; a
// change of the whole mask reads it, and stores over what was set since.
//
// kernel/cocci/masks.c has an example of each.

@initialize:python@
@@
def say(p, what):
    print("%s:%s: %s: %s" % (p.file, p.line, p.current_element, what))

@whole@
expression e;
identifier mask =~ "^(lacking|linked)$";
identifier f =~ "^(nodes_(clear|setall|and|or|xor|andnot|complement|copy|shift_left|shift_right|remap|onto|fold)|bitmap_[a-z_]+|memset|memcpy|swap)$";
expression list rest;
position p;
@@
(
f@p(e->mask, rest)
|
f@p(e.mask, rest)
|
f@p(e->mask)
|
f@p(e.mask)
|
f@p(&e->mask, rest)
|
f@p(&e.mask, rest)
|
f@p(e->mask.bits, rest)
|
f@p(e.mask.bits, rest)
)

@script:python@
p << whole.p;
f << whole.f;
@@
say(p[0], f)

@assigned@
expression e, new;
identifier mask =~ "^(lacking|linked)$";
position p;
@@
(
e->mask@p = new
|
e.mask@p = new
)

@script:python@
p << assigned.p;
@@
say(p[0], "=")

@slow@
expression e, nr;
identifier mask =~ "^(lacking|linked)$";
identifier f =~ "^__(set|clear|change|test_and_set|test_and_clear)_bit$|^__node_(set|clear)$";
position p;
@@
(
f@p(nr, e->mask.bits)
|
f@p(nr, e.mask.bits)
|
f@p(nr, e->mask)
|
f@p(nr, e.mask)
)

@script:python@
p << slow.p;
f << slow.f;
@@
say(p[0], f)
