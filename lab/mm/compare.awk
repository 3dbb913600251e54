# SPDX-License-Identifier: GPL-2.0-or-later
# Compares what the same tests gave on two kernels, or on one without copies and
# with them. Usage: awk -f compare.awk LIST BASE OURS: the list of tests, and two
# directories that run.sh wrote; what is compared with is called by the name of its.
# Prints a line for each test and one for each difference. The exit status is 1
# if there was one, if a test timed out, or if the consistency check of
# replicated page tables found something.

# Numbers that differ from run to run are no part of a test's name.
function plain(text) {
	gsub(/0x[0-9a-f]+/, "N", text)
	gsub(/[0-9]+(\.[0-9]+)?/, "N", text)
	gsub(/^[ \t#:-]+|[ \t]+$/, "", text)
	return text
}

function note(kernel, test, part, outcome) {
	part = plain(part)
	if (part == "") part = "(unnamed)"
	key = test SUBSEP part
	parts[key]
	result[kernel, key] = result[kernel, key] outcome " "
	total[kernel, test]++
	count[kernel, outcome]++
}

# The parts of a test, in the formats that the kernel's tests use.
function read_log(kernel, dir, test,    file, line, name, outcome) {
	file = dir "/" test ".log"
	heading = ""
	while ((getline line < file) > 0) {
		sub(/\r$/, "", line)
		# Colours, and progress that the rest was printed over.
		gsub(/\033\[[0-9;]*m/, "", line)
		sub(/.*\r/, "", line)
		if (line != "") {
			before[kernel, test] = last[kernel, test]
			last[kernel, test] = line
		}
		if (match(line, /^(# )?(not )?ok [0-9]+/)) {
			outcome = line ~ /^(# )?not ok/ ? "fail" : line ~ /# *SKIP/ ? "skip" : "pass"
			name = substr(line, RLENGTH + 1)
			# Reasons behind a number sign are for people.
			sub(/ # .*/, "", name)
			note(kernel, test, name, outcome)
		} else if (line ~ /^Testing .*\.\.\. *(done|failed|skipped)/) {
			# userfaultfd
			outcome = line ~ /\.\.\. *done/ ? "pass" : line ~ /\.\.\. *skipped/ ? "skip" : "fail"
			name = line
			sub(/^Testing /, "", name)
			sub(/\.\.\. *(done|failed|skipped).*/, "", name)
			note(kernel, test, name, outcome)
		} else if (line ~ /^Run test: /) {
			# khugepaged: a heading, then what it found out
			heading = substr(line, 11)
		} else if (test ~ /^khugepaged/ && match(line, /(OK|Fail|Skip|Timeout|Unexpected)(: .*)?$/)) {
			outcome = line ~ /OK$/ ? "pass" : line ~ /Skip(: .*)?$/ ? "skip" : "fail"
			name = substr(line, 1, RSTART - 1)
			sub(/\.\.\.+ *$/, "", name)
			note(kernel, test, heading ": " name, outcome)
		} else if (line ~ /^test +[0-9]+ PASSED/ || line ~ /^done \(all tests OK\)/) {
			# protection_keys: goes on in a child, so that its exit status says
			# little; it stops at the first failure
			note(kernel, test, line ~ /^done/ ? "all" : "test", "pass")
		} else if (line ~ /^assert\(\) at /) {
			note(kernel, test, line, "fail")
		} else if (line ~ /^(OK|Not OK)$/) {
			# ksm_tests
			note(kernel, test, "result", line == "OK" ? "pass" : "fail")
		}
	}
	close(file)
}

function verdict(status) {
	if (status == 0) return "pass"
	if (status == 4) return "skip"
	if (status == 124 || status == 137) return "timeout"
	return "fail"
}

function read_results(kernel, dir,    file, line, f) {
	file = dir "/results"
	while ((getline line < file) > 0) {
		split(line, f, " ")
		if (!(f[1] in seen)) order[++tests] = f[1]
		seen[f[1]]
		whole[kernel, f[1]] = verdict(f[2])
		seconds[kernel, f[1]] = f[3] / 1000
		check[kernel, f[1]] = f[4]
		read_log(kernel, dir, f[1])
	}
	close(file)
}

function read_list(file,    line, f) {
	while ((getline line < file) > 0) {
		split(line, f, /[ \t]+/)
		racy[f[1]] = f[4] ~ /(^|,)racy(,|$)/
	}
	close(file)
}

# Hangs, and tests that never ran, are no variation.
function ended(outcome) { return outcome != "timeout" && outcome != "missing" }

# may_vary: whether a test that varies may differ so.
function differ(test, text, may_vary) {
	may_vary = may_vary && racy[test]
	print (may_vary ? "  varies   " : "  DIFFERS  ") test ": " text
	if (!may_vary) differences++
}

# Failures of tests whose outcome varies on the stock kernel are counted apart.
function counted(test, outcome) { return outcome == "fail" && racy[test] ? "varies" : outcome }

# Where the log is lost with its machine, its end still says why.
function show_end(kernel, name, outcome, test) {
	if (outcome != "fail") return
	if (before[kernel, test] != "") print "    " name ": " before[kernel, test]
	if (last[kernel, test] != "") print "    " name ": " last[kernel, test]
}

# Outcomes for people: "pass pass pass fail " is "pass x3, fail".
function brief(outcomes,    n, i, f, run, text) {
	n = split(outcomes, f, " ")
	if (!n) return "none"
	for (i = 1; i <= n; i += run) {
		for (run = 1; i + run <= n && f[i + run] == f[i]; run++) ;
		text = text (i > 1 ? ", " : "") f[i] (run > 1 ? " x" run : "")
	}
	return text
}

BEGIN {
	read_list(ARGV[1]); base = ARGV[2]; ours = ARGV[3]
	of = base
	sub(/.*\//, "", of)
	read_results("base", base)
	read_results("ours", ours)
	printf "%-28s %-8s %-8s %5s %8s %8s\n", "test", of, "ours", "parts", of "/s", "ours/s"
	for (i = 1; i <= tests; i++) {
		t = order[i]
		b = ("base", t) in whole ? whole["base", t] : "missing"
		o = ("ours", t) in whole ? whole["ours", t] : "missing"
		printf "%-28s %-8s %-8s %5d %8.1f %8.1f\n", t, b, o, total["ours", t],
			seconds["base", t], seconds["ours", t]
		wholes["base", counted(t, b)]++; wholes["ours", counted(t, o)]++
		if (b != o) {
			differ(t, of " " b ", ours " o, ended(b) && ended(o))
			show_end("base", of, b, t)
			show_end("ours", "ours", o, t)
		}
		else if (!ended(b)) differ(t, b " on both", 0)
		if (check["ours", t] == "differs") differ(t, "copies differ from the canonical tables, see its log", 0)
		for (key in parts) {
			split(key, p, SUBSEP)
			if (p[1] != t || result["base", key] == result["ours", key]) continue
			differ(t, p[2] ": " of " " brief(result["base", key]) "; ours " brief(result["ours", key]), 1)
		}
	}
	for (k = 1; k <= 2; k++) {
		kernel = k == 1 ? "base" : "ours"
		printf "%-6s %d tests: %d passed, %d failed, %d skipped, %d varied; parts: %d passed, %d failed, %d skipped\n",
			k == 1 ? of : "ours", tests,
			wholes[kernel, "pass"], wholes[kernel, "fail"] + wholes[kernel, "timeout"], wholes[kernel, "skip"],
			wholes[kernel, "varies"], count[kernel, "pass"], count[kernel, "fail"], count[kernel, "skip"]
	}
	printf "%d differences\n", differences
	exit differences > 0 || tests == 0
}
