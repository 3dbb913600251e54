#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs selftests where there is nothing but a shell: reports as kselftest's own
# runner does, which wants a whole system. Usage: run.sh DIRECTORY "TEST [ARGUMENT...]"...
cd "$1" || exit
shift
echo 'TAP version 13'
number=0
for test; do
	number=$((number + 1))
	name="$number selftests: ${PWD##*/}: $test"
	# shellcheck disable=SC2086 # a test and its arguments
	{
		./$test 2>&1
		echo "exit status $?"
	} | while IFS= read -r line; do
		case $line in
		'exit status 0') echo "ok $name" ;;
		'exit status 4') echo "ok $name # SKIP" ;;
		'exit status '*) echo "not ok $name # $line" ;;
		*) echo "# $line" ;;
		esac
	done
done
