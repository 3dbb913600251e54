// SPDX-License-Identifier: GPL-2.0-only
// Masks of struct pgtable_repl and of its owner that others set bits of without the lock, by page
// faults under a VMA lock: lacking and linked. They are changed bit by bit; a
// change of the whole mask reads it, and stores over what was set since.
//
// And masks of nodes that are taken for masks of domains, or the other way round. The
// compiler tells one type from the other; it does not know what a number counts, nor
// what bits are bits of. Names say so: "domain" and what ends in "_domain" are
// domains, "nid", "node" and what ends in "_nid" are nodes; and so do the functions
// that they come from.
//
// kernel/cocci/masks.c has an example of each.

@initialize:python@
@@
def say(p, what):
    print("%s:%s: %s: %s" % (p.file, p.line, p.current_element, what))

@whole@
expression e;
identifier mask =~ "^(lacking|linked)$";
identifier f =~ "^(nodes_(clear|setall|and|or|xor|andnot|complement|copy|shift_left|shift_right|remap|onto|fold)|domainmask_(zero|fill|or|andnot)|bitmap_[a-z_]+|memset|memcpy|swap)$";
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
identifier f =~ "^__(set|clear|change|test_and_set|test_and_clear)_bit$|^__(node|domainmask)_(set|clear)$";
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
|
f@p(nr, &e->mask)
|
f@p(nr, &e.mask)
)

@script:python@
p << slow.p;
f << slow.f;
@@
say(p[0], f)

@domain_as_node@
expression e;
expression list rest;
identifier d =~ "^domain$|_domain$";
identifier src =~ "^(this_domain|repl_(domain_of|domain_home|dir_home|test_domain))$";
identifier f =~ "^(__)?node_(set|clear|isset|online|possible|state|test_and_set)$|^(nodemask_of_node|cpumask_of_node|next_node|alloc_pages_node|node_to_mem_node)$";
position p;
@@
(
f@p(d, ...)
|
f@p(e->d, ...)
|
f@p(e.d, ...)
|
f@p(src(rest), ...)
)

@script:python@
p << domain_as_node.p;
f << domain_as_node.f;
@@
say(p[0], f + ": a domain is no node")

@node_as_domain@
expression e;
expression list rest;
identifier n =~ "^(nid|node)$|_nid$";
identifier src =~ "^(page_to_nid|cpu_to_node|numa_node_id|numa_mem_id|first_node|next_node|next_node_in|pgtable_repl_domain_node)$";
identifier f =~ "^(__)?domainmask_(set|clear|test)$|^pgtable_repl_domain_(node|root)$|^repl_find$";
position p;
@@
(
f@p(n, ...)
|
f@p(e->n, ...)
|
f@p(e.n, ...)
|
f@p(src(rest), ...)
|
f@p(e, n)
|
f@p(e, src(rest))
)

@script:python@
p << node_as_domain.p;
f << node_as_domain.f;
@@
say(p[0], f + ": a node is no domain")

@domain_from_node@
expression e;
expression list rest;
identifier d =~ "^domain$|_domain$";
identifier src =~ "^(page_to_nid|cpu_to_node|numa_node_id|numa_mem_id|first_node|next_node|next_node_in|pgtable_repl_domain_node)$";
position p;
@@
(
d@p = src(rest)
|
e->d@p = src(rest)
)

@script:python@
p << domain_from_node.p;
src << domain_from_node.src;
@@
say(p[0], src + " gives a node, not a domain")

@node_from_domain@
expression list rest;
identifier n =~ "^(nid|node)$|_nid$";
identifier src =~ "^(this_domain|repl_(domain_of|domain_home|dir_home|test_domain))$";
position p;
@@
n@p = src(rest)

@script:python@
p << node_from_domain.p;
src << node_from_domain.src;
@@
say(p[0], src + " gives a domain, not a node")

@node_walk@
expression e;
identifier d =~ "^domain$|_domain$";
iterator each =~ "^for_each_(node_mask|node|node_state|online_node)$";
statement S;
position p;
@@
(
each@p(d, e) S
|
each@p(d) S
)

@script:python@
p << node_walk.p;
each << node_walk.each;
@@
say(p[0], each + ": goes by nodes, not domains")

@domain_walk@
expression e;
identifier n =~ "^(nid|node)$|_nid$";
iterator each =~ "^for_each_domain_in$";
statement S;
position p;
@@
each@p(n, e) S

@script:python@
p << domain_walk.p;
each << domain_walk.each;
@@
say(p[0], each + ": goes by domains, not nodes")

@both@
nodemask_t n;
nodemask_t *np;
domainmask_t d;
domainmask_t *dp;
identifier f;
position p;
@@
(
f@p(..., \(n.bits\|np->bits\), ..., \(d.bits\|dp->bits\), ...)
|
f@p(..., \(d.bits\|dp->bits\), ..., \(n.bits\|np->bits\), ...)
)

@script:python@
p << both.p;
f << both.f;
@@
say(p[0], f + ": bits of nodes and of domains")

@raw@
domainmask_t d;
domainmask_t *dp;
nodemask_t n;
nodemask_t *np;
identifier i =~ "^domain$|_domain$";
identifier j =~ "^(nid|node)$|_nid$";
identifier f =~ "_bit$";
expression e;
position p;
@@
(
f@p(j, \(d.bits\|dp->bits\))
|
f@p(i, \(n.bits\|np->bits\))
|
f@p(e->i, \(n.bits\|np->bits\))
)

@script:python@
p << raw.p;
f << raw.f;
@@
say(p[0], f + ": a number of the other kind")

@cast@
domainmask_t *dp;
nodemask_t *np;
position p;
@@
\((nodemask_t *)dp@p\|(domainmask_t *)np@p\)

@script:python@
p << cast.p;
@@
say(p[0], "a mask of the other kind")

@named@
identifier d =~ "domains?$|^(filtered|linked)$";
identifier n =~ "nodes$";
expression E;
position p;
@@
(
nodemask_t d@p;
|
nodemask_t d@p = E;
|
domainmask_t n@p;
|
domainmask_t n@p = E;
)

@script:python@
p << named.p;
@@
say(p[0], "is named for the other kind")
