// SPDX-License-Identifier: GPL-2.0-only
/// Values of page-table entries that are read raw, past the gates of
/// <asm/pgtable_repl.h>, and then looked at for their accessed and dirty bits or
/// inherited: passed on to another entry, or changed and put back. The walkers
/// of other translation domains have set these bits in copies. ptep_get(),
/// pmdp_get() and exchanges collect them.
///
/// Prints FILE:LINE: FUNCTION: what is done with the value. scripts/cocci.sh runs it.
// Options: --no-includes

@initialize:python@
@@
def say(p, what):
    print("%s:%s: %s: %s" % (p.file, p.line, p.current_element, what))

// A value that is looked at where it is read.
@direct@
expression e;
expression list before, after;
identifier f =~ "^(huge_)?(pte|pmd|pud)_(young|dirty|modify|wrprotect|mk[a-z_]+|(set|clear)_flags|swp_mk[a-z_]+)$|^set_(huge_)?(pte|pmd|pud)(_at|_ext)?$|^set_ptes$|^(pmdp|pudp|ptep)_establish$|^pmdp_(huge_)?(set|modify)[a-z_]*$|^pte_pmd$|^pmd_pte$";
position p;
@@
(
f@p(before, *e, after)
|
f@p(before, READ_ONCE(*e), after)
|
f@p(before, pmdp_get_lockless(e), after)
|
f@p(before, pudp_get(e), after)
|
f@p(before, ptep_get_single(e), after)
)

@script:python@
p << direct.p;
f << direct.f;
@@
say(p[0], f)

// The same over a variable, which still holds it on a path to there.
@through exists@
typedef pte_t, pmd_t, pud_t;
{ pte_t, pmd_t, pud_t } v;
expression e, new;
expression list before, after;
identifier f =~ "^(huge_)?(pte|pmd|pud)_(young|dirty|modify|wrprotect|mk[a-z_]+|(set|clear)_flags|swp_mk[a-z_]+)$|^set_(huge_)?(pte|pmd|pud)(_at|_ext)?$|^set_ptes$|^(pmdp|pudp|ptep)_establish$|^pmdp_(huge_)?(set|modify)[a-z_]*$|^pte_pmd$|^pmd_pte$";
position p, q;
@@
(
v@p = *e
|
v@p = READ_ONCE(*e)
|
v@p = pmdp_get_lockless(e)
|
v@p = pudp_get(e)
|
v@p = ptep_get_single(e)
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
expression e, new;
expression list before, after;
identifier f =~ "^(huge_)?(pte|pmd|pud)_(young|dirty|modify|wrprotect|mk[a-z_]+|(set|clear)_flags|swp_mk[a-z_]+)$|^set_(huge_)?(pte|pmd|pud)(_at|_ext)?$|^set_ptes$|^(pmdp|pudp|ptep)_establish$|^pmdp_(huge_)?(set|modify)[a-z_]*$|^pte_pmd$|^pmd_pte$";
position p, q;
@@
(
T v@p = *e;
|
T v@p = READ_ONCE(*e);
|
T v@p = pmdp_get_lockless(e);
|
T v@p = pudp_get(e);
|
T v@p = ptep_get_single(e);
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
