# SPDX-License-Identifier: GPL-2.0-or-later
# Leaves of a C file in kernel style the functions that read an entry raw (@raw)
# and do what is searched for (@use), and those that get one by value (@value), in
# their places; all else becomes empty lines. What a rule then has to look at is a
# hundredth. Fails if none is left.
function head(	i, all) {
	for (i = start; i < NR; i++)
		all = all " " text[i]
	return all
}
function put(keep) {
	for (; start <= NR; start++)
		print keep ? text[start] : ""
}
BEGIN { start = 1 }
{ text[NR] = $0 }
/^\{/ { inside = 1; uses = reads = head() ~ value }
inside && $0 ~ raw { reads = 1 }
inside && $0 ~ use { uses = 1 }
inside && /^\}/ { kept += reads && uses; put(reads && uses); inside = 0 }
!inside && ((/^$/ && !open) || /^#/ || /[;\/\\]$/ || continued) { put(0) }
{ continued = /\\$/ }
!/^$/ { open = /\)$/ }	# a head, and an empty line before the body
END { put(0); exit !kept }
