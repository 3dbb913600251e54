# SPDX-License-Identifier: GPL-2.0-or-later
# Passes the output of kselftest through and ends it with the seconds that each
# program took, the longest first, and each test of ten seconds or more.
# Usage: awk -f times.awk, on output that arrives as it is written.

{ print; fflush() }

/^# selftests: / { program = $4; started = test_started = systime() }
/^# #  RUN / { test_started = systime() }
/^# #  *OK |^# # .*FAIL / {
	if (systime() - test_started >= 10)
		line[systime() - test_started, NR] = program ": " $NF
}
/^(not )?ok [0-9]+ selftests: / { line[systime() - started, NR] = program }

END {
	sorted = "sort -rn"
	for (key in line) {
		split(key, part, SUBSEP)
		printf "# %5d s  %s\n", part[1], line[key] | (sorted " -k 2")
	}
}
