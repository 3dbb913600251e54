# SPDX-License-Identifier: GPL-2.0-or-later
# Entry points for people. `make help` lists them; the work is in scripts/.

.PHONY: help
help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 24

.PHONY: setup
setup: ## install the packages that everything below needs
	@scripts/setup.sh all

.PHONY: kernel kernel-stock kernel-debug
kernel: ## build Linux with Nearwalk; prints where the image is
	@scripts/setup.sh kernel
	@scripts/kernel-build.sh nearwalk

kernel-stock: ## build the same Linux unmodified, to compare with
	@scripts/setup.sh kernel
	@scripts/kernel-build.sh stock

kernel-debug: ## build Nearwalk's Linux with every check on, and KUnit
	@scripts/setup.sh kernel
	@scripts/kernel-build.sh debug

.PHONY: kernel-edit kernel-export kernel-checkpatch
kernel-edit: ## make a git repository of the kernel, one commit a patch
	@scripts/setup.sh kernel
	@scripts/kernel-edit.sh

kernel-export: ## write that repository's commits back to kernel/
	@scripts/kernel-export.sh

kernel-checkpatch: ## check kernel/ with the kernel's checkpatch
	@scripts/setup.sh kernel
	@scripts/kernel-checkpatch.sh

.PHONY: selftests
selftests: ## build the kernel's selftests for the lab VM
	@scripts/setup.sh kernel
	@scripts/selftests.sh

.PHONY: module
module: ## build the page-table dump and lens modules; KDIR=... for another kernel than the running one
	@$(MAKE) -s -C module BUILD=$(abspath $(or $(NEARWALK_BUILD),build))/module

.PHONY: test
test: setup ## run every check; ends with "N passed, N failed, N skipped"
	@scripts/test.sh

.PHONY: test-mm soak model
test-mm: ## compare the kernel's own mm and KVM tests, stock and ours; MM_TESTS=quick or names, REPL_MODE=4 lazily, KVM_MODE=lazy nested
	@scripts/setup.sh mm
	@scripts/kernel-build.sh stock >/dev/null
	@scripts/kernel-build.sh nearwalk >/dev/null
	@scripts/test-mm.sh $(or $(MM_TESTS),all)

soak: ## servers and stressors while replication changes, on both kernels; DURATION=5m each, KERNELS=debug for one, REPL_MODE=4 lazily
	@scripts/setup.sh soak
	@scripts/kernel-build.sh nearwalk >/dev/null
	@scripts/kernel-build.sh debug >/dev/null
	@scripts/selftests.sh >/dev/null
	@scripts/soak.sh $(or $(DURATION),5m) $(KERNELS)

model: ## random operations against a model, with new seeds, over all modes; DURATION=1h for all together, MODES="lazy mix"
	@scripts/setup.sh lab
	@scripts/kernel-build.sh nearwalk >/dev/null
	@scripts/kernel-build.sh debug >/dev/null
	@scripts/selftests.sh >/dev/null
	@scripts/model.sh $(or $(DURATION),30m) $(MODES)

.PHONY: configs
configs: ## build and boot configurations that nothing else builds, hours; CONFIGS="tracers rt small cloud random"
	@scripts/configs.sh $(CONFIGS)

.PHONY: demo demo-vm
demo: ## build what is missing and watch memcached's page tables move
	@scripts/setup.sh demo
	@scripts/demo.sh

demo-vm: ## the same of a virtual machine: memcached in a guest, whose two page tables both become local
	@scripts/setup.sh demo
	@scripts/demo-vm.sh $(ARGS)

.PHONY: bench-vmops
bench-vmops: ## count instructions per page of virtual-memory operations, stock and ours; ARGS="--ops munmap ..."
	@scripts/setup.sh demo
	@scripts/bench-vmops.sh $(ARGS)

.PHONY: bench-move
bench-move: ## count instructions of moving pages to another node by phase, stock and ours; ARGS="--size 2M ..."
	@scripts/setup.sh demo
	@scripts/bench-move.sh $(ARGS)

.PHONY: bench-ranger
bench-ranger: ## count how contiguous programs' memory is where memory is fragmented, with Ranger and without; ARGS="--memory 8G ..."
	@scripts/setup.sh demo
	@scripts/bench-ranger.sh $(ARGS)

.PHONY: bench-tier
bench-tier: ## count which node serves programs' accesses with each policy for a fast and a slow one; ARGS="--policies thp,exchange ..."
	@scripts/setup.sh demo
	@scripts/bench-tier.sh $(ARGS)

.PHONY: bench-tape
bench-tape: ## record tapes for lens hatric: what KVM does while a guest's pages move, for 2, 4 and 8 vCPUs; ARGS="--vcpus 4 ..."
	@scripts/setup.sh demo
	@scripts/bench-tape.sh $(ARGS)

.PHONY: bench-hydra
bench-hydra: ## count TLB interrupts, table pages, faults and instructions: stock, eager, lazy; NODES="4 8"
	@scripts/setup.sh bench
	@scripts/bench-hydra.sh $(NODES)

.PHONY: bench-switching
bench-switching: ## count what switching on and off takes, and how long the mmap lock is held; SIZES="1 8 64" (GiB)
	@scripts/setup.sh bench
	@scripts/bench-switching.sh $(SIZES)

.PHONY: bench-vm
bench-vm: ## count what guests of KVM have: walks by both halves, nested tables, faults, a move; ARGS="--parts walks --quick"
	@scripts/setup.sh demo
	@scripts/bench-vm.sh $(ARGS)

.PHONY: bench-lens
bench-lens: ## how fast the timing model is; CHAMPSIM=path of its binary compares
	@cargo build --release --locked --quiet -p nearwalk
	@$${CARGO_TARGET_DIR:-target}/release/nearwalk lens bench $(if $(CHAMPSIM),--champsim "$(CHAMPSIM)")

.PHONY: bench-plugin
bench-plugin: ## how much the lens slows a random-access loop in the lab VM
	@scripts/setup.sh demo
	@scripts/bench-plugin.sh
