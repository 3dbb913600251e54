#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Configurations that nothing else here builds. Each has an object directory of
# its own under build/configs, which is deleted at the end unless KEEP=1.
# Usage: configs.sh [NAME...], by default all of
#   tracers   lab.config with what comes between functions and callers, and BTF
#   rt        lab.config with PREEMPT_RT
#   kcsan     lab.config with the detector of data races
#   small     lab.config for one node, without control groups of memory or THP
#   guests    compiles only what uses mm->pgd or roots beside what the lab boots: guests
#             of Hyper-V and Xen, hosts on Intel's CPUs, SGX; and tells whether tracers
#             are kept from the functions that must not be traced
#   cloud     Debian's configuration for cloud machines, with replication; what has
#             no part in it (drivers, most file systems and networks) is left out
#             by building no modules
#   off       compiles what replication touches with all that is ours configured out, and
#             compares it with Linux and the patches of kernel/series that stand on it alone
#   random    RANDOM_SEEDS (default "1 2 ... 20"): compiles only what replication
#             touches, with it and without
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/apply-patch.sh
. "$(dirname "$0")/apply-patch.sh"
cd "$ROOT"

all=(tracers rt kcsan small guests cloud off random)
for name in "$@"; do
	[[ " ${all[*]} " = *" $name "* ]] || die "no configuration '$name'; allowed: ${all[*]}"
done
[ $# = 0 ] || all=("$@")
debian=/usr/src/linux-config-6.12/config.amd64_none_cloud-amd64.xz
nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
source=$BUILD/linux-nearwalk
logs=$BUILD/configs
export KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970'
export KBUILD_BUILD_USER=nearwalk KBUILD_BUILD_HOST=lab KBUILD_BUILD_VERSION=1
export CCACHE_BASEDIR=$BUILD CCACHE_NOHASHDIR=1

# What the patches and the overlay touch and every configuration compiles.
touched=(arch/x86/mm/ mm/ kernel/fork.o kernel/exit.o fs/exec.o fs/proc/)

make_in() {
	local out=$1
	shift
	make -C "$source" O="$out" LOCALVERSION="-${out##*/}" CC='ccache gcc' HOSTCC='ccache gcc' "$@"
}

# compile OUT TARGET...: to OUT.log, with what went wrong on standard error.
compile() {
	local out=$1
	shift
	make_in "$out" -j"$JOBS" "$@" >"$out.log" 2>&1 || {
		grep -nE 'error:|undefined reference|Error [0-9]' -A3 "$out.log" | head -n 30 >&2 || true
		return 1
	}
	# By #warning, Linux says what it thinks of a configuration.
	! grep -E 'warning:' "$out.log" | grep -vF '[-Wcpp]' >&2
}

# configured OUT LINE...: those lines of a configuration must have taken effect.
configured() {
	local out=$1 line missing=0
	shift
	for line in "$@"; do
		grep -qxF -- "$line" "$out/.config" || {
			say "  $line did not take effect"
			missing=1
		}
	done
	return "$missing"
}

# fragments OUT FILE...: allnoconfig and these.
fragments() {
	local out=$1
	shift
	mkdir -p "$out"
	cat "$@" >"$out/.fragments"
	make_in "$out" -s KCONFIG_ALLCONFIG="$out/.fragments" allnoconfig >"$out.log" 2>&1
}

# boot OUT NAME OPTION... -- COMMAND...
boot() {
	local out=$1 name=$2
	shift 2
	"$nearwalk" lab run --kernel "$out/arch/x86/boot/bzImage" --timeout 3600 \
		--log "$logs/$name.console" --cpu-model EPYC,+svm,+npt,+pku "$@" >"$logs/$name.tap" || {
		local status=$?
		tail -n 20 "$logs/$name.tap" >&2
		return "$status"
	}
	say "  $name: $(awk -f scripts/tap.awk "$logs/$name.tap") (passed, failed, skipped)"
}

selftests() { # OUT NAME OPTION... -- TEST...
	local out=$1 name=$2 options=() tests=()
	shift 2
	while [ $# != 0 ] && [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	[ $# = 0 ] || shift
	for test in "$@"; do tests+=(-t "pgtable_repl:$test"); done
	boot "$out" "$name" "${options[@]}" -- "$BUILD/selftests/run_kselftest.sh" -o 1800 "${tests[@]}"
}

config_tracers() {
	local out=$1
	fragments "$out" kernel/config/lab.config kernel/config/tracers.config
	configured "$out" CONFIG_FUNCTION_GRAPH_TRACER=y CONFIG_DEBUG_INFO_BTF=y CONFIG_PGTABLE_REPL=y
	compile "$out" bzImage
	boot "$out" tracers-traced -- "$BUILD/selftests/pgtable_repl/traced"
	boot "$out" tracers-traced-lazy --append sysctl.vm.pgtable_repl_mode=4 -- \
		"$BUILD/selftests/pgtable_repl/traced"
	selftests "$out" tracers -- ops_trace race stale
}

config_rt() {
	local out=$1
	printf '%s\n' CONFIG_PREEMPT_VOLUNTARY=n CONFIG_PREEMPT=y CONFIG_PREEMPT_RT=y >"$logs/rt.config"
	fragments "$out" kernel/config/lab.config "$logs/rt.config"
	configured "$out" CONFIG_PREEMPT_RT=y CONFIG_PGTABLE_REPL=y
	compile "$out" bzImage
	selftests "$out" rt --append sysctl.vm.pgtable_repl_mode=3 -- young stale race ops_map ops_fork
	selftests "$out" rt-lazy --append sysctl.vm.pgtable_repl_mode=4 -- stale race ops_map lazy
}

# Reports go to the kernel's log alone: a guest whose console shows one has failed.
# With a thread for each CPU, a host that is busy has nobody run beside who looks
# for a race: see kcsan.config.
config_kcsan() {
	local out=$1 mode options
	fragments "$out" kernel/config/lab.config kernel/config/kcsan.config
	configured "$out" CONFIG_KCSAN=y CONFIG_PGTABLE_REPL=y
	compile "$out" bzImage
	for mode in 3 4; do
		options=(--icount --append "loglevel=3 sysctl.vm.pgtable_repl_mode=$mode")
		boot "$out" "kcsan-$mode" "${options[@]}" -- env PGTABLE_REPL_TEST_PERCENT=25 \
			"$ROOT/lab/kcsan.sh" "$BUILD/selftests/run_kselftest.sh" -o 1800 \
			-t pgtable_repl:race -t pgtable_repl:stale -t pgtable_repl:ops_fork -t pgtable_repl:young
		boot "$out" "kcsan-model-$mode" "${options[@]}" -- \
			"$ROOT/lab/kcsan.sh" "$BUILD/selftests/pgtable_repl/model" --mode mix --seed 100 --seeds 2 --ops 100
	done
}

config_small() {
	local out=$1
	printf 'CONFIG_%s=n\n' MEMCG MEMCG_V1 CGROUP_HUGETLB TRANSPARENT_HUGEPAGE READ_ONLY_THP_FOR_FS \
		HUGETLBFS NUMA_EMU LRU_GEN FS_DAX >"$logs/small.config"
	fragments "$out" kernel/config/lab.config "$logs/small.config"
	configured "$out" CONFIG_PGTABLE_REPL=y
	configured "$out" '# CONFIG_MEMCG is not set' '# CONFIG_TRANSPARENT_HUGEPAGE is not set'
	compile "$out" bzImage
	# On one node there is nothing to replicate between: it must boot and say so.
	boot "$out" small-one --nodes 1 --cpus 2 --memory 1G -- cat /proc/sys/vm/pgtable_repl_mode
	selftests "$out" small -- interface ops_map ops_fork stale race
}

# untraced OBJECT: functions that save the registers they use, by __repl_slow, must
# not be traced: a tracer that they return to changes some.
untraced() {
	local object=$1 traced name failed=0
	traced=$(join <(objdump -r -j __mcount_loc "$object" |
		sed -nE 's/.* \.text(\+0x0*([0-9a-f]*))?$/0\2/p' | sort) \
		<(nm "$object" | sed -nE 's/^0*([0-9a-f]*) [tT] /0\1 /p' | sort) | cut -d' ' -f2)
	# One that may be: the question was the right one.
	grep -qx __pgtable_repl_has_copies <<<"$traced" || {
		say "  nothing in $object can be traced"
		return 1
	}
	while IFS= read -r name; do
		grep -qx "$name" <<<"$traced" || continue
		say "  $name can be traced"
		failed=1
	done < <(cat "$source"/arch/x86/include/asm/pgtable_repl*.h "$source"/arch/x86/mm/pgtable_repl/*.[ch] |
		grep -oE '__repl_slow [a-z_0-9]+\(' | sed 's/.* //; s/($//' | sort -u)
	return "$failed"
}

# Of these the lab can boot none, so what is checked is that they compile.
config_guests() {
	local out=$1 objects
	printf 'CONFIG_%s\n' PARAVIRT_XXL=y XEN=y XEN_PV=y XEN_PVHVM=y HYPERV=y HYPERV_VTL_MODE=n \
		X86_SGX=y CRYPTO=y CRYPTO_SHA256=y KVM_INTEL=y X86_SGX_KVM=y \
		FUNCTION_TRACER=y FUNCTION_GRAPH_TRACER=y DYNAMIC_FTRACE=y >"$logs/guests.config"
	fragments "$out" kernel/config/lab.config "$logs/guests.config"
	configured "$out" CONFIG_PGTABLE_REPL=y CONFIG_HYPERV=y CONFIG_XEN_PV=y CONFIG_X86_SGX=y CONFIG_KVM_INTEL=y \
		CONFIG_DYNAMIC_FTRACE=y
	compile "$out" arch/x86/hyperv/ arch/x86/xen/ arch/x86/kernel/cpu/sgx/ arch/x86/kvm/ arch/x86/mm/pgtable_repl/
	for objects in hyperv/mmu.o xen/mmu_pv.o kernel/cpu/sgx/encl.o kvm/vmx/nested.o; do
		[ -f "$out/arch/x86/$objects" ] || {
			say "  no arch/x86/$objects"
			return 1
		}
	done
	# Both kinds of flushes ask whether CPUs are on other roots than mm->pgd. No hypervisor
	# is here to show it, and without it this compiles as well.
	[ "$(grep -c 'mm_has_domain_roots(' "$source/arch/x86/hyperv/mmu.c")" = 2 ] || {
		say "  arch/x86/hyperv/mmu.c does not ask mm_has_domain_roots() twice"
		return 1
	}
	untraced "$out/arch/x86/mm/pgtable_repl/entry.o"
}

# What the lab's machine boots from has to be built in; CMA Debian leaves out here.
config_cloud() {
	local out=$1
	[ -f "$debian" ] || die "no $debian; scripts/setup.sh configs installs it"
	mkdir -p "$out"
	xz -dc "$debian" >"$out/.config"
	# Keys and lists of Debian's build are not here.
	"$source/scripts/config" --file "$out/.config" \
		-e PGTABLE_REPL -e EXPERT -e CMA -d MODULE_SIG -d SECURITY_LOCKDOWN_LSM \
		--set-str SYSTEM_TRUSTED_KEYS '' --set-str SYSTEM_REVOCATION_KEYS '' \
		-e NET_9P -e NET_9P_VIRTIO -e 9P_FS -e 9P_FS_POSIX_ACL -e OVERLAY_FS -e NETFS_SUPPORT \
		-e VIRTIO -e VIRTIO_PCI -e VIRTIO_CONSOLE -e ZRAM -e ZSMALLOC -e BLK_DEV_LOOP
	make_in "$out" -s olddefconfig >"$out.log" 2>&1
	configured "$out" CONFIG_PGTABLE_REPL=y CONFIG_9P_FS=y CONFIG_OVERLAY_FS=y \
		CONFIG_VIRTIO_CONSOLE=y CONFIG_PREEMPT_DYNAMIC=y CONFIG_KFENCE=y CONFIG_CPUMASK_OFFSTACK=y \
		CONFIG_FUNCTION_GRAPH_TRACER=y CONFIG_DEBUG_INFO_BTF=y CONFIG_HYPERV=m CONFIG_XEN_PV=y CONFIG_CMA=y
	compile "$out" bzImage
	selftests "$out" cloud
	selftests "$out" cloud-lazy --append sysctl.vm.pgtable_repl_mode=4 \
		--append sysctl.vm.pgtable_repl_fork_delay=0
}

# code OBJECT: its instructions, without numbers that the compiler gives to names, and
# without the places of constants, among which are names of source files. The disassembler
# takes the symbol before a place for its name, which may be a constant's: addresses and
# relocations tell as much.
code() {
	objdump -dr --no-show-raw-insn "$1" |
		sed -E '1,3d; s/ <[^>]*>$//; s/\.[0-9]+\>//g; s/(\.rodata[a-z0-9_.]*|__bug_table|\.LC)[-+]0x[0-9a-f]+/\1/'
}

config_off() {
	local out=$1 base=$logs/off-source source=$source patch file object number series differ=0 count=0
	rm -rf "$base"
	cp -al "$BUILD/linux-stock" "$base"
	while read -r number series _; do
		case $series in lab | mend) ;; *) continue ;; esac
		[[ $number = [0-9]* ]] || continue
		patch=$(echo kernel/patches/"$number"-*.patch)
		# The other name of the file stays as it is.
		while IFS= read -r file; do
			[ ! -f "$base/$file" ] || cp --remove-destination "$BUILD/linux-stock/$file" "$base/$file.new"
			[ ! -f "$base/$file.new" ] || mv "$base/$file.new" "$base/$file"
		done < <(patched_files "$patch")
		apply_patch "$ROOT/$patch" "$base" "Linux alone"
	done <kernel/series
	printf 'CONFIG_%s=n\n' PGTABLE_REPL KVM_PGTABLE_REPL MIGRATE_COPY FOLIO_EXCHANGE RANGER MEMCG_TIERING \
		>"$logs/off.config"
	fragments "$out" kernel/config/lab.config "$logs/off.config"
	! grep -E 'CONFIG_(PGTABLE_REPL|KVM_PGTABLE_REPL|MIGRATE_COPY|FOLIO_EXCHANGE|RANGER|MEMCG_TIERING)=' "$out/.config" ||
		return 1
	compile "$out" "${touched[@]}" arch/x86/kvm/
	source=$base
	fragments "$out-base" kernel/config/lab.config
	compile "$out-base" "${touched[@]}" arch/x86/kvm/
	while IFS= read -r object; do
		count=$((count + 1))
		cmp -s <(code "$out-base/$object") <(code "$out/$object") && continue
		say "  $object: $(size "$out-base/$object" | awk 'NR == 2 { print $1 }') bytes of code and constants, $(size "$out/$object" | awk 'NR == 2 { print $1 }') with ours configured out"
		differ=$((differ + 1))
	done < <(cd "$out-base" && find arch/x86/mm arch/x86/kvm mm kernel fs -name '*.o' ! -name built-in.o ! -name '.*' | LC_ALL=C sort)
	say "  $differ of $count objects differ"
	rm -rf "$base" "$out-base"
	[ "$differ" = 0 ] && [ "$count" -gt 100 ]
}

# What a seed chose must compile whatever it is; what it takes to have the feature
# at all is fixed, so that most of them are not without it.
config_random() {
	local out=$1 seed feature line failed=0
	for seed in ${RANDOM_SEEDS:-$(seq 20)}; do
		for feature in y n; do
			rm -rf "$out"
			mkdir -p "$out"
			printf 'CONFIG_%s\n' 64BIT=y SMP=y NUMA=y ACPI=y PCI=y JUMP_LABEL=y \
				PGTABLE_REPL=$feature COMPILE_TEST=n WERROR=n GCC_PLUGINS=n DEBUG_INFO_NONE=y >"$out.fragment"
			make_in "$out" -s KCONFIG_SEED="$seed" KCONFIG_ALLCONFIG="$out.fragment" \
				randconfig >"$out.log" 2>&1
			line="  seed $seed, $(grep -w CONFIG_PGTABLE_REPL "$out/.config" || echo 'no PGTABLE_REPL')"
			if compile "$out" "${touched[@]}"; then
				say "$line: compiles"
			else
				cp "$out/.config" "$logs/random-$seed-$feature.config"
				say "$line: FAILS, kept $logs/random-$seed-$feature.config"
				failed=1
			fi
		done
	done
	return "$failed"
}

scripts/kernel-prepare.sh nearwalk
# Those that nothing of is booted need neither.
case ${all[*]} in
guests | off | random) ;;
*)
	scripts/setup.sh configs
	scripts/selftests.sh >/dev/null
	cargo build --locked --quiet
	;;
esac
mkdir -p "$logs"
passed=0 failed=0
for name in "${all[@]}"; do
	say "configuration $name"
	status=0
	# In a shell of its own, so that it stops at its first error.
	(set -e && "config_$name" "$logs/$name") &
	wait $! || status=$?
	[ "${KEEP:-0}" = 1 ] || rm -rf "${logs:?}/$name"
	if [ "$status" = 0 ]; then
		passed=$((passed + 1))
		say "ok    $name"
	else
		failed=$((failed + 1))
		say "FAIL  $name, see $logs/$name.*"
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
