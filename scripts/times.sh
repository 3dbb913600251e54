#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Passes kselftest's output through as it arrives, and ends it with the seconds
# that each program took and each test of ten seconds or more, the longest first.
set -euo pipefail

program='' program_began=0 test_began=0 times=()
while IFS= read -r line; do
	printf '%s\n' "$line"
	case $line in
	'# selftests: '*)
		program=${line##* } program_began=$SECONDS
		;;
	'# #  RUN '*)
		test_began=$SECONDS
		;;
	'# #            OK  '* | '# #          FAIL  '*)
		[ $((SECONDS - test_began)) -lt 10 ] ||
			times+=("$((SECONDS - test_began)) s  $program ${line##* }")
		;;
	'ok '*' selftests: '* | 'not ok '*' selftests: '*)
		times+=("$((SECONDS - program_began)) s  $program")
		;;
	esac
done
[ "${#times[@]}" = 0 ] || printf '# %s\n' "${times[@]}" | sort -rnk 2
