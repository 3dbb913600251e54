// SPDX-License-Identifier: GPL-2.0-only
/// Values of page-table entries that are read raw, past the gates of
/// <asm/pgtable_repl.h>, and then looked at for their accessed and dirty bits or
/// inherited: passed on to another entry or function, or changed and put back. The
/// walkers of other translation domains have set these bits in copies. ptep_get(),
/// pmdp_get() and exchanges collect them.
///
/// Prints FILE:LINE: FUNCTION: what is done with the value. scripts/cocci.sh runs it.
// Options: --no-includes

@initialize:python@
@@
import re
bits = re.compile("ACCESSED|DIRTY|PGTABLE_REPL_AD")
uses = re.compile("^(huge_)?(pte|pmd|pud)_(young|dirty|modify|wrprotect|mk[a-z_]+|(set|clear)_flags|swp_mk[a-z_]+)$|"
                  "^set_(huge_)?(pte|pmd|pud)(_at|_ext)?$|^set_ptes$|^(pmdp|pudp|ptep)_establish$|"
                  "^pmdp_(huge_)?(set|modify)[a-z_]*$|^pte_pmd$|^pmd_pte$")
# These ask who is mapped, whether, and how it may be used, or where a table is.
asks = re.compile("^(huge_)?_*(pte|pmd|pud)_(none.*|present|bad|same|leaf|leaf_size|pfn|page|folio|val|flags|write|"
                  "access_permitted|protnone|special|devmap|trans_huge|trans_unstable|swp_[a-ln-z][a-z_]*|uffd_wp|soft_dirty|"
                  "user_accessible_page|pgprot|to_swp_entry|offset.*|lockptr|deref|page_vaddr|pgtable|batch_hint|is_complete)$|"
                  "^(is_|vm_normal_|pte_to_|pmd_to_|native_(pte|pmd|pud)_val$|trace_|non_swap)")
given, on, taken, known, added = {}, {}, {}, {}, set()
def entry(T):
    return str(T).split()[-1] in ("pte_t", "pmd_t", "pud_t")
def say(p, what):
    print("%s:%s: %s: %s" % (p.file, p.line, p.current_element, what))

// A value that is looked at where it is read.
@direct@
expression e, at;
expression list before, after;
identifier f =~ "^(huge_)?(pte|pmd|pud)_(young|dirty|modify|wrprotect|mk[a-z_]+|(set|clear)_flags|swp_mk[a-z_]+)$|^set_(huge_)?(pte|pmd|pud)(_at|_ext)?$|^set_ptes$|^(pmdp|pudp|ptep)_establish$|^pmdp_(huge_)?(set|modify)[a-z_]*$|^pte_pmd$|^pmd_pte$";
position p;
@@
(
f@p(before, *e, after)
|
f@p(before, e[at], after)
|
f@p(before, READ_ONCE(*e), after)
|
f@p(before, READ_ONCE(e[at]), after)
|
f@p(before, pmdp_get_lockless(e), after)
|
f@p(before, pudp_get(e), after)
|
f@p(before, ptep_get_canonical(e), after)
)

@script:python@
p << direct.p;
f << direct.f;
@@
say(p[0], f)

// The bits by their names.
@masked@
expression e, at, m;
identifier f =~ "^(native_)?(pte|pmd|pud)_(val|flags)$";
position p;
@@
(
f@p(*e) & m
|
f@p(e[at]) & m
|
f@p(READ_ONCE(*e)) & m
|
f@p(READ_ONCE(e[at])) & m
|
f@p(pmdp_get_lockless(e)) & m
|
f@p(pudp_get(e)) & m
|
f@p(ptep_get_canonical(e)) & m
)

@script:python@
p << masked.p;
f << masked.f;
m << masked.m;
@@
if bits.search(m): say(p[0], f)

// The same over a variable, which still holds it on a path to there.
@through exists@
typedef pte_t, pmd_t, pud_t;
{ pte_t, pmd_t, pud_t } v;
expression e, at, new;
expression list before, after;
identifier f =~ "^(huge_)?(pte|pmd|pud)_(young|dirty|modify|wrprotect|mk[a-z_]+|(set|clear)_flags|swp_mk[a-z_]+)$|^set_(huge_)?(pte|pmd|pud)(_at|_ext)?$|^set_ptes$|^(pmdp|pudp|ptep)_establish$|^pmdp_(huge_)?(set|modify)[a-z_]*$|^pte_pmd$|^pmd_pte$";
position p, q;
@@
(
v@p = *e
|
v@p = e[at]
|
v@p = READ_ONCE(*e)
|
v@p = READ_ONCE(e[at])
|
v@p = pmdp_get_lockless(e)
|
v@p = pudp_get(e)
|
v@p = ptep_get_canonical(e)
)
... when != v = new
    when any
f@q(before, v, after)

@script:python@
p << through.p;
q << through.q;
f << through.f;
v << through.v;
@@
say(p[0], "%s to %s at %s" % (v, f, q[0].line))

// A variable that is declared with it.
@declared exists@
identifier v;
type T;
expression e, at, new;
expression list before, after;
identifier f =~ "^(huge_)?(pte|pmd|pud)_(young|dirty|modify|wrprotect|mk[a-z_]+|(set|clear)_flags|swp_mk[a-z_]+)$|^set_(huge_)?(pte|pmd|pud)(_at|_ext)?$|^set_ptes$|^(pmdp|pudp|ptep)_establish$|^pmdp_(huge_)?(set|modify)[a-z_]*$|^pte_pmd$|^pmd_pte$";
position p, q;
@@
(
T v@p = *e;
|
T v@p = e[at];
|
T v@p = READ_ONCE(*e);
|
T v@p = READ_ONCE(e[at]);
|
T v@p = pmdp_get_lockless(e);
|
T v@p = pudp_get(e);
|
T v@p = ptep_get_canonical(e);
)
... when != v = new
    when any
f@q(before, v, after)

@script:python@
p << declared.p;
q << declared.q;
f << declared.f;
v << declared.v;
@@
say(p[0], "%s to %s at %s" % (v, f, q[0].line))

// Its bits by their names.
@masked_var exists@
typedef pte_t, pmd_t, pud_t;
{ pte_t, pmd_t, pud_t } v;
expression e, at, new, m;
identifier f =~ "^(native_)?(pte|pmd|pud)_(val|flags)$";
position p, q;
@@
(
v@p = *e
|
v@p = e[at]
|
v@p = READ_ONCE(*e)
|
v@p = READ_ONCE(e[at])
|
v@p = pmdp_get_lockless(e)
|
v@p = pudp_get(e)
|
v@p = ptep_get_canonical(e)
)
... when != v = new
    when any
f@q(v) & m

@script:python@
p << masked_var.p;
q << masked_var.q;
f << masked_var.f;
v << masked_var.v;
m << masked_var.m;
@@
if bits.search(m): say(p[0], "%s to %s at %s" % (v, f, q[0].line))

@masked_decl exists@
identifier v;
type T;
expression e, at, new, m;
identifier f =~ "^(native_)?(pte|pmd|pud)_(val|flags)$";
position p, q;
@@
(
T v@p = *e;
|
T v@p = e[at];
|
T v@p = READ_ONCE(*e);
|
T v@p = READ_ONCE(e[at]);
|
T v@p = pmdp_get_lockless(e);
|
T v@p = pudp_get(e);
|
T v@p = ptep_get_canonical(e);
)
... when != v = new
    when any
f@q(v) & m

@script:python@
p << masked_decl.p;
q << masked_decl.q;
f << masked_decl.f;
v << masked_decl.v;
m << masked_decl.m;
@@
if bits.search(m): say(p[0], "%s to %s at %s" % (v, f, q[0].line))

// It is handed to a function, by value. What that does with it, and whom it hands it
// on to, is found below; of whom nothing is known, @asks says that they only ask.
@handed exists@
typedef pte_t, pmd_t, pud_t;
{ pte_t, pmd_t, pud_t } v;
expression e, at, new;
expression list before, after;
identifier g;
position p, q;
@@
(
v@p = *e
|
v@p = e[at]
|
v@p = READ_ONCE(*e)
|
v@p = READ_ONCE(e[at])
|
v@p = pmdp_get_lockless(e)
|
v@p = pudp_get(e)
|
v@p = ptep_get_canonical(e)
)
... when != v = new
    when any
g@q(before, v, after)

@script:python@
p << handed.p;
q << handed.q;
g << handed.g;
v << handed.v;
@@
if not asks.search(g): given.setdefault(g, []).append((p[0].file, p[0].line, p[0].current_element, v, q[0].line))

@handed_decl exists@
identifier v, g;
type T;
expression e, at, new;
expression list before, after;
position p, q;
@@
(
T v@p = *e;
|
T v@p = e[at];
|
T v@p = READ_ONCE(*e);
|
T v@p = READ_ONCE(e[at]);
|
T v@p = pmdp_get_lockless(e);
|
T v@p = pudp_get(e);
|
T v@p = ptep_get_canonical(e);
)
... when != v = new
    when any
g@q(before, v, after)

@script:python@
p << handed_decl.p;
q << handed_decl.q;
g << handed_decl.g;
v << handed_decl.v;
T << handed_decl.T;
@@
if entry(T) and not asks.search(g): given.setdefault(g, []).append((p[0].file, p[0].line, p[0].current_element, v, q[0].line))

// Functions that get an entry by value, and what they do with it, in any order.
@byvalue@
identifier fn, v;
type T;
parameter list before, after;
@@
fn(before, T v, after) { ... }

@script:python@
fn << byvalue.fn;
v << byvalue.v;
T << byvalue.T;
@@
if entry(T): known.setdefault(fn, set()).add(v)

@takes@
identifier v, g;
expression list before, after;
position q;
@@
g@q(before, v, after)

@script:python@
v << takes.v;
g << takes.g;
q << takes.q;
@@
fn = q[0].current_element
if v in known.get(fn, ()):
    if uses.search(g): taken.setdefault(fn, []).append((q[0].file, q[0].line, v, g))
    elif not asks.search(g): on.setdefault(fn, set()).add(g)

// It adds the bits itself.
@adds@
identifier v;
expression e;
position q;
@@
ptes_add_copied@q(e, v, ...)

@script:python@
q << adds.q;
@@
added.add(q[0].current_element)

@finalize:python@
@@
def follow(g, seen):
    if g in seen or g in added: return
    seen.add(g)
    if g not in known: yield (g, None)
    for place in taken.get(g, []): yield (g, place)
    for h in sorted(on.get(g, ())):
        for found in follow(h, seen): yield found
for g in sorted(given):
    if uses.search(g): continue
    for file, line, element, v, at in given[g]:
        for h, place in follow(g, set()):
            print("%s:%s: %s: %s to %s at %s" % (file, line, element, v, h, "%s:%s, %s" % (place[0], place[1], place[3]) if place else at))
