# SPDX-License-Identifier: GPL-2.0-or-later
# Prints what lab/bench/hydra counted, and whether it is what lazy trees are to
# achieve. Input: lines "NODES COLUMN SCENARIO METRIC VALUE".

function get(nodes, column, what) {
	return (nodes, column, what) in value ? value[nodes, column, what] : ""
}

# Writes a row; VERDICT is 1, 0, or "" for what has no target.
function row(nodes, label, stock, eager, lazy, target, verdict) {
	printf "%5s  %-34s %11s %11s %11s", nodes, label, stock == "" ? "-" : stock,
		eager == "" ? "-" : eager, lazy == "" ? "-" : lazy
	if (target != "") {
		printf "  %-22s %s", target, lazy == "" ? "not measured" : verdict ? "met" : "NOT MET"
		targets++
		met += lazy != "" && verdict
	}
	printf "\n"
}

function ratio(a, b) { return a == "" || b == "" || b == 0 ? "" : sprintf("%.2f", a / b) }

# A count, with the most that lazy trees may have of what stock (or eager) has.
function count(nodes, what, label, kind, limit,    s, e, l, most) {
	s = get(nodes, "stock", what)
	e = get(nodes, "eager", what)
	l = get(nodes, "lazy", what)
	if (s l == "")
		return
	if (kind == "none")
		row(nodes, label, s, e, l, "0", l == 0)
	else if (kind == "stock")
		row(nodes, label, s, e, l, sprintf("<= %.2f of stock (%s)", limit, ratio(l, s) == "" ? "-" : ratio(l, s)),
			s != "" && l <= limit * s)
	else if (kind == "eager")
		row(nodes, label, s, e, l, sprintf("<= %.2f of eager (%s)", limit, ratio(l, e) == "" ? "-" : ratio(l, e)),
			e != "" && l <= limit * e)
	else
		row(nodes, label, s, e, l)
}

{
	value[$1, $2, $3 " " $4] = $5
	if (!($1 in seen)) {
		seen[$1] = 1
		order[++machines] = $1
	}
}

END {
	printf "Event counts of whole runs in the lab: stock kernel; ours, eager and lazy\n"
	printf "%5s  %-34s %11s %11s %11s  %s\n", "nodes", "what", "stock", "eager", "lazy", "target for lazy"
	for (i = 1; i <= machines; i++) {
		n = order[i]
		count(n, "flip interrupts", "IPIs, 500 mprotect pairs", "none")
		count(n, "munmap interrupts", "IPIs, 500 mmap and munmap", "none")
		count(n, "heaps interrupts", "IPIs, private heaps, mmap", "none")
		count(n, "malloc interrupts", "IPIs, private heaps, glibc", "none")
		count(n, "tcmalloc interrupts", "IPIs, private heaps, tcmalloc", "none")
		count(n, "web interrupts", "IPIs, web server loop", "stock", 0.55)
		count(n, "memcached_own interrupts", "IPIs, memcached, a worker's own keys", "stock", 0.5)
		count(n, "memcached interrupts", "IPIs, memcached, any key", "stock", 0.5)
		count(n, "web full", "full flushes, web server loop", "")
		count(n, "memcached_own full", "full flushes, a worker's own keys", "")
		count(n, "memcached full", "full flushes, any key", "")
		count(n, "private tables", "table pages, private heaps", "stock", 1.1)
		count(n, "shared tables", "table pages, heaps shared by all", "eager", 1.05)
		pages = get(n, "lazy", "traversal pages")
		for (d = 0; d <= 9; d++) {
			l = get(n, "lazy", "traversal faults_d" d)
			if (pages != "")
				row(n, "faults, traversal, d = " d, get(n, "stock", "traversal faults_d" d),
					get(n, "eager", "traversal faults_d" d), l, pages / 2 ^ d, l == pages / 2 ^ d)
		}
		count(n, "traversal instructions_d9", "instructions, traversal, d = 9", "eager", 1.05)
		count(n, "traversal instructions_word", "  of a word of each page", "")
	}
	printf "%d of %d targets met\n", met, targets
}
