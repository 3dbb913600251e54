# SPDX-License-Identifier: GPL-2.0-or-later
# Counts results in the output of kselftest's runner or of KUnit: prints
# "passed failed skipped". A test program that reports parts of its own counts
# as those parts; a suite counts as its cases. A failure of the whole that no
# part explains (a crash, a time-out) counts as one more.

function result(line) {
	if (line ~ /^not ok/) return "failed"
	if (line ~ /# *SKIP/) return "skipped"
	return "passed"
}

# A part: "# ok 1 name" from kselftest, an indented "ok 1 name" from KUnit.
# Deeper still are the parameters of a KUnit case: they are not counted.
match($0, /^(# |[ \t]+)(not )?ok [0-9]/) {
	match($0, /^(# |[ \t]+)/)
	if (!depth || RLENGTH < depth) {
		delete parts
		depth = RLENGTH
	}
	if (RLENGTH == depth) parts[result(substr($0, RLENGTH + 1))]++
	next
}

/^(not )?ok [0-9]/ {
	whole = result($0)
	if (depth) {
		for (kind in parts) total[kind] += parts[kind]
		if (whole == "failed" && !parts["failed"]) total["failed"]++
	} else {
		total[whole]++
	}
	delete parts
	depth = 0
}

END { print total["passed"] + 0, total["failed"] + 0, total["skipped"] + 0 }
