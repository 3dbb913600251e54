#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs tests while the kernel looks for data races. Reports in which no function of
# replication stands (pgtable_repl, repl_...) are Linux's own: they are named. The others are printed, and fail.
# Usage: kcsan.sh COMMAND [ARGUMENT...]
mount -t debugfs none /sys/kernel/debug 2>/dev/null
echo on >/sys/kernel/debug/kcsan || exit
"$@"
status=$?
echo off >/sys/kernel/debug/kcsan
# A report stands between two lines of "="; each line has the time in front.
dmesg | awk '
	{ sub(/^\[ *[0-9.]+\] */, "") }
	/^=+$/ {
		if (inside) {
			reports++
			if (ours) {
				mine++
				printf "%s", report
			} else {
				print "# not ours: " title
			}
		}
		inside = !inside; report = title = ""; ours = 0
		next
	}
	inside {
		report = report "# " $0 "\n"
		if (sub(/^BUG: KCSAN: data-race in /, "")) title = $0
		if (/(^|[ /_])repl_|pgtable_repl/) ours = 1
	}
	END {
		printf "# data races: %d pairs of functions, replication in %d\n", reports, mine
		if (mine) print "not ok 1 data_races"
		else print "ok 1 data_races"
		exit mine > 0
	}' || status=1
exit $status
