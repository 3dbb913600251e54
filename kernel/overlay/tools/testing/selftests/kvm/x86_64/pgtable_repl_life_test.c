// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: a virtual machine that moves takes its tables along,
 * trees that no vCPU runs on go, and others stay.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

#define SEVERAL		6

static const struct repl_op spin = { .cmd = REPL_SPIN };

static struct repl_op write_one(uint64_t value)
{
	return (struct repl_op){ .cmd = REPL_WRITE, .pages = 1, .step = 1, .value = value };
}

/* Something else than an op that ends by itself: it has begun when this returns. */
static void start(struct repl_vm *r, int vcpu, int node, struct repl_op op)
{
	repl_start(r, vcpu, node, op);
	while (!r->shared->started[vcpu])
		usleep(1000);
}

static void expect_loaded(struct repl_vm *r, int vcpu, int key)
{
	int want, loaded = repl_loaded(r, vcpu, &want);

	TEST_ASSERT_EQ(loaded, key);
	TEST_ASSERT_EQ(want, key);
}

static void expect_local(const struct repl_state *s, int key)
{
	TEST_ASSERT(s->key[key].tables > 1, "Tree %d has %lu tables", key, s->key[key].tables);
	TEST_ASSERT_EQ(s->key[key].elsewhere, 0);
}

/* A thin one that moves: tables come along, and are no more than before. */
static void moved(struct repl_vm *r)
{
	struct repl_state s, before;
	int from, to;

	repl_set(r, "lazy");
	repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 1));
	repl_read(r, &before);
	from = repl_key_of_node(&before, 0);
	to = repl_key_of_node(&before, 1);
	TEST_ASSERT_EQ(before.tables, before.key[from].tables);

	repl_run(r, 0, 1, REPL_OP(REPL_CHECK, 1));
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.key[from].tables, before.tables);
	expect_local(&s, to);

	start(r, 0, 1, spin);
	repl_set(r, "trim\n");
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.tables, s.key[to].tables);
	TEST_ASSERT(s.tables <= before.tables, "%lu tables, %lu before", s.tables, before.tables);
	expect_local(&s, to);
	TEST_ASSERT_EQ(s.fallback, to);
	TEST_ASSERT_EQ(s.drops, 1);
	repl_stop(r);
	repl_run(r, 0, 1, REPL_OP(REPL_CHECK, 1));

	/* And back: the domain has a tree of its own again. */
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 1));
	expect_loaded(r, 0, from);
	repl_read(r, &s);
	expect_local(&s, from);
	start(r, 0, 0, spin);
	repl_set(r, "trim");
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.tables, s.key[from].tables);
	expect_local(&s, from);
	repl_stop(r);
}

/*
 * After a period, by itself: what belongs to a vCPU that is halted goes, though that has
 * it loaded; what one runs on that never leaves the guest stays.
 */
static void timed(struct repl_vm *r)
{
	struct repl_op halt = REPL_OP(REPL_HALT, 2);
	struct repl_state s, before;
	int i, key, gone = 0;
	time_t end;

	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 2));
	repl_read(r, &before);
	for (i = 0; i < repl_nodes; i++)
		if (i == 1)
			start(r, i, i, halt);
		else if (i != 3)
			start(r, i, i, spin);
	repl_idle("1");
	end = time(NULL) + 60;
	do {
		usleep(10000);
		repl_read(r, &s);
		gone = 0;
		for (i = 0; i < repl_nodes; i++)
			gone += !s.key[repl_key_of_node(&s, i)].tables;
	} while (gone < (repl_nodes > 3 ? 2 : 1) && time(NULL) < end);
	/* Some looks more. */
	sleep(2);
	repl_idle("0");
	repl_read(r, &s);
	for (i = 0; i < repl_nodes; i++) {
		key = repl_key_of_node(&s, i);
		TEST_ASSERT_EQ(s.key[key].tables, i == 1 || i == 3 ? 0 : before.key[key].tables);
	}
	TEST_ASSERT_EQ(s.drops, gone);

	r->shared->stop = 1;
	for (i = 0; i < repl_nodes; i++)
		if (i != 1)
			repl_join(r, i);
	repl_start(r, 0, 0, (struct repl_op){ .cmd = REPL_KICK, .value = 1 });
	repl_wait(r);
	repl_read(r, &s);
	expect_local(&s, repl_key_of_node(&s, 1));
	expect_loaded(r, 1, repl_key_of_node(&s, 1));
}

/* With none in use the largest one stays, and only that. */
static void last(struct repl_vm *r)
{
	struct repl_state s, before;
	int i, largest;

	TEST_ASSERT(!repl_try(r, "trim"), "Nothing to trim");
	repl_set(r, "lazy");
	repl_all(r, 0, write_one(3));
	repl_read(r, &before);
	/* Not the fallback. */
	for (i = 0; repl_key_of_node(&before, i) == before.fallback; i++)
		;
	largest = repl_key_of_node(&before, i);
	repl_run(r, i, i, REPL_OP(REPL_WRITE, 3));
	repl_read(r, &before);
	for (i = 0; i < 2; i++) {
		repl_set(r, "trim");
		repl_read(r, &s);
		TEST_ASSERT_EQ(s.tables, before.key[largest].tables);
		TEST_ASSERT_EQ(s.tables, s.key[largest].tables);
		TEST_ASSERT_EQ(s.fallback, largest);
		TEST_ASSERT_EQ(s.drops, repl_nodes - 1);
		TEST_ASSERT_EQ(s.nr_keys, repl_nodes);
		TEST_ASSERT(!strncmp(s.mode, "lazy ", 5), "Mode '%s'", s.mode);
	}
	repl_all(r, 0, REPL_OP(REPL_CHECK, 3));
	repl_read(r, &s);
	for (i = 0; i < repl_nodes; i++) {
		expect_local(&s, repl_key_of_node(&s, i));
		expect_loaded(r, i, repl_key_of_node(&s, i));
	}
}

/* Domains without a tree of their own keep that which they use, and follow the map. */
static void fallback(struct repl_vm *r)
{
	struct repl_state s, before;
	int first, second;
	char text[32];

	snprintf(text, sizeof(text), "lazy %d", repl_node[0]);
	repl_set(r, text);
	repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 4));
	repl_read(r, &before);
	start(r, 1, 1, spin);
	repl_set(r, "trim");
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.drops, 0);
	TEST_ASSERT(s.tables >= before.tables, "%lu tables, %lu before", s.tables, before.tables);
	repl_stop(r);
	if (repl_nodes < 3)
		return;

	snprintf(text, sizeof(text), "lazy %d,%d", repl_node[0], repl_node[1]);
	repl_set(r, text);
	repl_read(r, &before);
	first = repl_key_of_node(&before, 0);
	second = repl_key_of_node(&before, 1);
	TEST_ASSERT_EQ(before.fallback, first);
	repl_run(r, 1, 1, write_one(4));
	start(r, 1, 1, spin);
	repl_set(r, "trim");
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.fallback, second);
	TEST_ASSERT_EQ(s.key[first].tables, 0);
	repl_stop(r);
	repl_run(r, 2, 2, REPL_OP(REPL_CHECK, 4));
	expect_loaded(r, 2, second);
	repl_all(r, 1, REPL_OP(REPL_CHECK, 4));
}

static int trees(struct repl_vm *r)
{
	struct repl_state s;
	int key, nr = 0;

	repl_read(r, &s);
	for (key = 0; key < REPL_KEYS; key++)
		nr += s.key[key].there && s.key[key].tables;
	return nr;
}

/* Of domains that are no more, trees go as well where no vCPU runs that would tell. */
static void asleep(struct repl_vm *r)
{
	time_t end;

	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 5));
	TEST_ASSERT_EQ(trees(r), repl_nodes);
	repl_host_domains(false);
	repl_set(r, "trim");
	TEST_ASSERT_EQ(trees(r), 1);
	repl_all(r, 1, REPL_OP(REPL_CHECK, 5));
	TEST_ASSERT_EQ(trees(r), repl_nodes);
	repl_host_domains(true);
	repl_idle("1");
	for (end = time(NULL) + 60; trees(r) > 1 && time(NULL) < end;)
		usleep(10000);
	repl_idle("0");
	TEST_ASSERT_EQ(trees(r), 1);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 5));
}

static unsigned long copies(const struct repl_state *s)
{
	unsigned long most = 0;
	int key;

	for (key = 0; key < REPL_KEYS; key++)
		if (s->key[key].there && s->key[key].tables > most)
			most = s->key[key].tables;
	return (s->tables - most) * getpagesize();
}

/* Run on all nodes, then wait until trees that there was no room for are gone. */
static void run_limited(struct repl_vm *r, struct repl_state *s)
{
	time_t end = time(NULL) + 60;
	/* A fault may make a table of each level. */
	const unsigned long slack = 5 * repl_nodes * getpagesize();

	repl_all(r, 0, REPL_OP(REPL_CHECK, 6));
	repl_read(r, s);
	TEST_ASSERT(copies(s) <= s->max + slack, "%lu bytes of copies, %lu allowed", copies(s),
		    s->max);
	/* With none allowed there is nothing less. */
	while (s->copies >= s->max && s->copies && time(NULL) < end) {
		usleep(10000);
		repl_read(r, s);
	}
	TEST_ASSERT(s->copies < s->max || !s->copies, "%lu bytes of copies, %lu allowed",
		    s->copies, s->max);
}

/* Trees with more than a root, which a vCPU may leave that is refused one. */
static int used_trees(struct repl_vm *r)
{
	struct repl_state s;
	int key, nr = 0;

	repl_read(r, &s);
	for (key = 0; key < REPL_KEYS; key++)
		nr += s.key[key].there && s.key[key].tables > 1;
	return nr;
}

/* What trees may take beside the largest: those that would take more make way for it. */
static void limit(struct repl_vm *r)
{
	struct repl_state s, before, again;
	unsigned long all;
	char text[64];
	int i;

	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 6));
	repl_read(r, &before);
	all = copies(&before);
	TEST_ASSERT_EQ(trees(r), repl_nodes);
	TEST_ASSERT_EQ(before.max, ULONG_MAX);
	TEST_ASSERT_EQ(before.copies, all);
	TEST_ASSERT_EQ(before.limited, 0);

	/* As much as they have, and one table more. */
	snprintf(text, sizeof(text), "lazy max %lu", all + getpagesize());
	repl_set(r, text);
	run_limited(r, &s);
	TEST_ASSERT_EQ(s.max, all + getpagesize());
	TEST_ASSERT_EQ(s.limited, 0);
	TEST_ASSERT_EQ(s.drops, 0);

	/* Room for half of them, at once and when they are used again. */
	snprintf(text, sizeof(text), "lazy max %lu", all / 2);
	repl_set(r, text);
	repl_read(r, &s);
	TEST_ASSERT(copies(&s) < all / 2, "%lu bytes of copies, %lu allowed", copies(&s), all / 2);
	TEST_ASSERT(s.drops, "No tree was dropped");
	run_limited(r, &s);
	TEST_ASSERT(repl_nodes < 3 || copies(&s), "No copies, though there is room for one tree");

	/* None: all use the largest, and nobody tries again. */
	repl_set(r, "lazy max 0");
	for (i = 0; i < 2; i++)
		run_limited(r, &s);
	TEST_ASSERT_EQ(used_trees(r), 1);
	run_limited(r, &again);
	TEST_ASSERT_EQ(again.limited, s.limited);
	TEST_ASSERT_EQ(again.drops, s.drops);
	for (i = 0; i < repl_nodes; i++)
		expect_loaded(r, i, again.fallback);

	/* Whoever was refused is not any more. */
	repl_set(r, "lazy max 1073741824");
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.max, 1UL << 30);
	repl_set(r, "lazy max max");
	repl_all(r, 1, REPL_OP(REPL_CHECK, 6));
	TEST_ASSERT_EQ(trees(r), repl_nodes);
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.max, ULONG_MAX);
	TEST_ASSERT_EQ(s.limited, again.limited);
}

/* What no vCPU runs on goes first, however large it is. */
static void limit_idle(struct repl_vm *r)
{
	struct repl_state s, before;
	int large, small;

	repl_set(r, "lazy");
	repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 7));
	repl_run(r, 1, 1, write_one(7));
	repl_read(r, &before);
	large = repl_key_of_node(&before, 0);
	small = repl_key_of_node(&before, 1);
	TEST_ASSERT(before.key[large].tables > before.key[small].tables, "%lu and %lu tables",
		    before.key[large].tables, before.key[small].tables);
	start(r, 1, 1, spin);
	repl_set(r, "lazy max 0");
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.key[large].tables, 0);
	TEST_ASSERT(s.key[small].tables, "The tree in use has gone");
	TEST_ASSERT_EQ(s.fallback, small);
	repl_stop(r);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 7));
}

/* A thin one with next to no room for copies moves: its old tree goes, and not the new one. */
static void limit_moves(struct repl_vm *r)
{
	time_t end = time(NULL) + 60;
	int to, want, loaded;
	struct repl_state s;
	char text[64];

	snprintf(text, sizeof(text), "lazy max %d", 4 * getpagesize());
	repl_set(r, text);
	repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 8));
	repl_read(r, &s);
	to = repl_key_of_node(&s, 1);
	start(r, 0, 1, (struct repl_op){ .cmd = REPL_WATCH });
	do {
		usleep(10000);
		repl_read(r, &s);
		loaded = repl_loaded(r, 0, &want);
	} while ((loaded != to || s.fallback != to || s.tables != s.key[to].tables) &&
		 time(NULL) < end);
	TEST_ASSERT_EQ(loaded, to);
	TEST_ASSERT_EQ(s.fallback, to);
	TEST_ASSERT_EQ(s.tables, s.key[to].tables);
	repl_stop(r);
	repl_run(r, 0, 1, REPL_OP(REPL_CHECK, 8));
	expect_loaded(r, 0, to);
}

/* Who was refused comes back to a tree of its own once there is no limit, by itself. */
static void limit_lifted(struct repl_vm *r)
{
	time_t end = time(NULL) + 60;
	int i, want, loaded, back;
	struct repl_state s;

	repl_set(r, "lazy max 0");
	for (i = 0; i < repl_nodes; i++)
		start(r, i, i, spin);
	repl_set(r, "lazy");
	do {
		usleep(10000);
		repl_read(r, &s);
		for (i = 0, back = 0; i < repl_nodes; i++) {
			loaded = repl_loaded(r, i, &want);
			back += loaded == repl_key_of_node(&s, i) && want == loaded;
		}
	} while (back < repl_nodes && time(NULL) < end);
	TEST_ASSERT_EQ(back, repl_nodes);
	repl_stop(r);
}

static void *end_one(void *arg)
{
	struct repl_vm *r = arg;

	kvm_vm_free(r->vm);
	return NULL;
}

/* Virtual machines go while they are looked at; by the look, in the end. */
static void ends(struct repl_vm *r)
{
	static struct repl_vm other[SEVERAL];
	pthread_t thread[SEVERAL];
	char path[128];
	int i, fd;

	for (i = 0; i < SEVERAL; i++) {
		repl_create(&other[i]);
		repl_set(&other[i], "lazy");
		repl_all(&other[i], i, REPL_OP(REPL_WRITE, i + 1));
	}
	snprintf(path, sizeof(path), "/sys/kernel/debug/kvm/%d-%d/pgtable_repl", getpid(),
		 other[0].vm->fd);
	fd = open(path, O_WRONLY);
	TEST_ASSERT(fd >= 0, "Could not open %s", path);
	/* More than a period: the first look finds trees to drop. */
	usleep(1200000);
	repl_idle("1");
	for (i = 0; i < SEVERAL; i++)
		TEST_ASSERT(!pthread_create(&thread[i], NULL, end_one, &other[i]), "No thread");
	TEST_ASSERT_EQ(write(fd, "trim", 4), 4);
	for (i = 0; i < SEVERAL; i++)
		pthread_join(thread[i], NULL);
	/* Of the first one, this has the last reference. */
	TEST_ASSERT_EQ(write(fd, "trim", 4), 4);
	close(fd);
	repl_idle("0");
}

/* What the period may be. */
static void bounds(struct repl_vm *r)
{
	static const char * const bad[] = { "-1", "86401", "x", "1x", "4294967297" };
	char text[32];
	FILE *f;
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		TEST_ASSERT(repl_idle_try(bad[i]), "A period of '%s'", bad[i]);
	repl_idle("86400");
	f = fopen(REPL_IDLE, "r");
	TEST_ASSERT(f && fgets(text, sizeof(text), f), "Could not read " REPL_IDLE);
	fclose(f);
	TEST_ASSERT(!strcmp(text, "86400\n"), "Period '%s'", text);
	repl_idle("0");
}

static const struct repl_test tests[] = {
	{ "moved", moved },
	{ "timed", timed },
	{ "last", last },
	{ "fallback", fallback },
	{ "asleep", asleep },
	{ "limit", limit },
	{ "limit_idle", limit_idle },
	{ "limit_moves", limit_moves },
	{ "limit_lifted", limit_lifted },
	{ "ends", ends },
	{ "bounds", bounds },
};

int main(int argc, char *argv[])
{
	repl_host();
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
