/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested page tables by domain: a guest with a vCPU for each node of the host that has
 * CPUs and memory, and readers of its files in debugfs.
 */
#ifndef SELFTEST_KVM_PGTABLE_REPL_H
#define SELFTEST_KVM_PGTABLE_REPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"

#define REPL_MAX		8	/* nodes that are used, at most */
#define REPL_SLOT		10
#define REPL_GPA		(4UL << 30)
#define REPL_GVA		REPL_GPA
#define REPL_PAGES		1536UL
#define REPL_KEYS		65
#define REPL_IDLE		"/sys/module/kvm/parameters/pgtable_repl_idle"

/* What a vCPU is to do. */
enum repl_cmd {
	REPL_WRITE,	/* repl_value() to pages */
	REPL_CHECK,	/* that they are there */
	REPL_WATCH,	/* that no page ever gets older than repl_shared.oldest, till stop */
	REPL_SPIN,	/* nothing, without exits of its own, till stop */
	REPL_HALT,	/* as REPL_CHECK, then halt, and once more when kicked */
	REPL_KICK,	/* vCPU repl_op.value */
	REPL_READ,	/* pages, the last one first, a while after go is set and each other */
};

struct repl_op {
	uint64_t cmd, first, pages, step, value;
};

/* In the guest's memory, for both sides. */
struct repl_shared {
	volatile uint64_t stop, oldest, go;
	volatile uint64_t passes[REPL_MAX], steps[REPL_MAX], started[REPL_MAX];
	struct repl_op op[REPL_MAX];
};

struct repl_vm {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu[REPL_MAX];
	pthread_t thread[REPL_MAX];
	volatile pid_t tid[REPL_MAX];
	bool running[REPL_MAX];
	struct repl_shared *shared;
	char *mem;		/* the memory of REPL_SLOT here */
};

/* A line "key" of the file pgtable_repl, or what a dump says of it. */
struct repl_key {
	bool there;
	int domain, node, vcpus;
	unsigned long tables, elsewhere, idle;
};

struct repl_state {
	char mode[64], source[16];
	int nr_keys;
	unsigned long map, host, fallback, switches, fallbacks, drops, tables;
	unsigned long cloned_entries, cloned_tables, moved, hints, looks;
	unsigned long max, copies, limited;	/* max: ULONG_MAX without */
	struct repl_key key[REPL_KEYS];
};

struct repl_test {
	const char *name;
	void (*run)(struct repl_vm *r);
};

/* The host: repl_nodes of them, with a CPU of each. */
extern int repl_nodes, repl_node[REPL_MAX], repl_cpu[REPL_MAX];

/* What is repeated: so much of it, PGTABLE_REPL_TEST_PERCENT of the environment. */
extern double repl_share;

void repl_host(void);
uint64_t repl_value(uint64_t value, uint64_t page);
void repl_create(struct repl_vm *r);
void repl_free(struct repl_vm *r);
void __attribute__((noreturn)) repl_main(int argc, char *argv[], const struct repl_test *tests, int nr);
void repl_start(struct repl_vm *r, int vcpu, int node, struct repl_op op);
void repl_move(struct repl_vm *r, int vcpu, int node);
void repl_stop(struct repl_vm *r);
void repl_wait(struct repl_vm *r);
void repl_join(struct repl_vm *r, int vcpu);
void repl_pin(int node);
unsigned long repl_descheduled(struct repl_vm *r, int vcpu);
void repl_run(struct repl_vm *r, int vcpu, int node, struct repl_op op);
void repl_all(struct repl_vm *r, int turn, struct repl_op op);

int repl_idle_try(const char *seconds);
void repl_idle(const char *seconds);
void repl_parameter(const char *name, const char *value);
int repl_try(struct repl_vm *r, const char *text);
void repl_set(struct repl_vm *r, const char *text);
void repl_read(struct repl_vm *r, struct repl_state *s);
int repl_loaded(struct repl_vm *r, int vcpu, int *want);
void repl_dump(struct repl_vm *r, unsigned long present[REPL_KEYS],
	       unsigned long remote[REPL_KEYS]);
unsigned long repl_leaves(struct repl_vm *r, int key, int level, uint64_t gfn, uint64_t end);
unsigned long repl_stat(struct repl_vm *r, const char *name);
unsigned long repl_check(struct repl_vm *r, bool print);
void repl_host_domains(bool nodes);
int repl_domain_of_node(int node);
int repl_key_if_any(const struct repl_state *s, int node);
int repl_key_of_node(const struct repl_state *s, int node);

#define REPL_OP(cmd_, value_)	\
	((struct repl_op){ .cmd = (cmd_), .pages = REPL_PAGES, .step = 1, .value = (value_) })

#endif /* SELFTEST_KVM_PGTABLE_REPL_H */
