/*
 * Cells of counters whose clients were stopped in the middle of an addition: they are another
 * counter's only when the client's process is dead.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/shm/internal.h"
#include "harness/test.h"
#include "server/internal.h"
#include "server/raw.h"
#include "server/subject.h"

#define CELLS 8

static struct subject subject;

/* A client in a process of its own, that is told when to do its next step by SIGCONT. */
struct late {
	pid_t pid;
	struct test_pipe pipe;
	bool is_inside; /* it is stopped inside the cells, not beside them */
};

/* Something for which the server ends the session. Inline: no region, which could not be closed by
 * a connection that says that it is inside. */
static void say_nonsense(struct raw *raw)
{
	struct rmr_work work = {
		.op = RMR_OP_SEND, .flags = RMR_INLINE, .source = "nonsense", .length = 8};

	CHECK_EQ(rmr_post(raw->conn, &work, 1), 1);
}

/* Counts once, begins another addition as shm/access.c does, is stopped, and adds late. */
static void be_late(void *context)
{
	struct late *late = context;
	struct shm_segment *segment;
	struct rmr_remote *cells;
	struct raw raw;
	int64_t *cell;

	raw_enter(&raw, "shm", subject_address(&subject, "shm"), NULL);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "victim", 5), KV_OK);
	CHECK(raw.reply.header.cell < CELLS);
	CHECK_OK(rmr_remote_open(raw.conn, &raw.welcome.cells, &cells));
	cell = (int64_t *)rmr_remote_pointer(cells) + raw.reply.header.cell;
	segment = ((struct shm_conn *)raw.conn)->mine;
	atomic_store(&segment->active, late->is_inside);
	say_nonsense(&raw);
	raise(SIGSTOP);
	if (late->is_inside)
		(void)__atomic_fetch_add(cell, 1000000, __ATOMIC_SEQ_CST);
	atomic_store(&segment->active, 0);
	test_signal(&late->pipe, TEST_CHILD);
	pause();
}

static void start_late(struct late *late, bool is_inside)
{
	int status;

	late->is_inside = is_inside;
	test_pipe_open(&late->pipe);
	late->pid = test_spawn(be_late, late);
	CHECK_EQ(waitpid(late->pid, &status, WUNTRACED), late->pid);
	CHECK(WIFSTOPPED(status));
	/* Its session has ended: the one that is left is ours. */
	subject_await(&subject, "clients", 1);
	CHECK_EQ(subject_figure(&subject, "violations"), 1);
}

/* Makes counters, more than there are cells, and ends them all, so that cells are missed and an
 * epoch begins; and says that we have forgotten ours. */
static void wear_cells_out(struct raw *raw)
{
	char key[16];

	for (int i = 0; i < 2 * CELLS; i++) {
		snprintf(key, sizeof(key), "n%d", i);
		CHECK_EQ(raw_simple(raw, KV_OP_ADD, key, 1), KV_OK);
	}
	for (int i = 0; i < 2 * CELLS; i++) {
		snprintf(key, sizeof(key), "n%d", i);
		CHECK_EQ(raw_simple(raw, KV_OP_DELETE, key, 0), KV_OK);
	}
}

static void forget_cells(struct raw *raw)
{
	CHECK_EQ(raw_simple(raw, KV_OP_PING, NULL, 0), KV_OK);
	CHECK_EQ(raw_simple(raw, KV_OP_CELLS, NULL, raw->reply.header.cells_epoch), KV_OK);
}

/* Until some cells have come back. */
static void await_cells(struct raw *raw)
{
	while (subject_figure(&subject, "cells_retired") == CELLS) {
		forget_cells(raw);
		test_sleep_ms(10);
	}
}

/* All counters of this client are as it left them. */
static void check_untouched(struct raw *raw, int64_t expected)
{
	char key[16];

	for (int i = 0; i < 2 * CELLS; i++) {
		snprintf(key, sizeof(key), "m%d", i);
		CHECK_EQ(raw_simple(raw, KV_OP_ADD, key, 1), KV_OK);
		CHECK_EQ((int64_t)raw->reply.header.number, expected);
	}
}

/* A client that was stopped beside the cells has lost them with its session. */
static void test_stopped_beside(void)
{
	kv_server_options_t options = {.counters = CELLS, .workers = 1};
	struct late late;
	struct raw raw;

	subject_start(&subject, &options);
	raw_enter(&raw, "shm", subject_address(&subject, "shm"), NULL);
	start_late(&late, false);
	CHECK_EQ(raw_simple(&raw, KV_OP_DELETE, "victim", 0), KV_OK);
	wear_cells_out(&raw);
	await_cells(&raw);
	CHECK_EQ(subject_figure(&subject, "cells_lost"), 0);
	test_kill(late.pid);
	raw_close(&raw);
	subject_stop(&subject);
}

/* One that was stopped inside adds late, and to nothing that lives; its cells come back when it is
 * dead. */
static void test_stopped_inside(void)
{
	kv_server_options_t options = {.counters = CELLS, .workers = 1};
	struct late late;
	struct raw raw;

	subject_start(&subject, &options);
	raw_enter(&raw, "shm", subject_address(&subject, "shm"), NULL);
	start_late(&late, true);
	CHECK_EQ(raw_simple(&raw, KV_OP_DELETE, "victim", 0), KV_OK);
	wear_cells_out(&raw);
	/* Enough time for an epoch, and we are in nobody's way. */
	for (int i = 0; i < 30; i++) {
		forget_cells(&raw);
		test_sleep_ms(20);
	}
	CHECK(subject_figure(&subject, "cells_epoch") > 1);
	CHECK_EQ(subject_figure(&subject, "cells_retired"), CELLS);
	check_untouched(&raw, 1);
	CHECK_EQ(kill(late.pid, SIGCONT), 0);
	test_await(&late.pipe, TEST_PARENT);
	check_untouched(&raw, 2);
	/* It lives on, whatever it does. */
	CHECK_EQ(subject_figure(&subject, "cells_retired"), CELLS);
	test_kill(late.pid);
	await_cells(&raw);
	CHECK_EQ(subject_figure(&subject, "cells_lost"), 0);
	check_untouched(&raw, 3);
	CHECK(subject_figure(&subject, "cells_used") > 0);
	raw_close(&raw);
	subject_stop(&subject);
}

/* More of them than the server keeps account of: the cells that were used so far are given up, and
 * counting goes on. */
static void test_too_many_ghosts(void)
{
	enum { CLIENTS = SERVER_MAX_GHOSTS + 2 };
	kv_server_options_t options = {.counters = CELLS, .workers = 1};
	static struct raw clients[CLIENTS];
	struct raw raw;

	subject_start(&subject, &options);
	raw_enter(&raw, "shm", subject_address(&subject, "shm"), NULL);
	for (int i = 0; i < CLIENTS; i++) {
		raw_enter(&clients[i], "shm", subject_address(&subject, "shm"), NULL);
		CHECK_EQ(raw_simple(&clients[i], KV_OP_ADD, "victim", 5), KV_OK);
		CHECK(clients[i].reply.header.cell < CELLS);
		atomic_store(&((struct shm_conn *)clients[i].conn)->mine->active, 1);
		say_nonsense(&clients[i]);
	}
	subject_await(&subject, "clients", 1);
	for (int i = 0; i < CLIENTS; i++)
		raw_close(&clients[i]);
	CHECK_EQ(raw_simple(&raw, KV_OP_DELETE, "victim", 0), KV_OK);
	for (int i = 0; i < 10; i++) {
		wear_cells_out(&raw);
		forget_cells(&raw);
	}
	check_untouched(&raw, 1);
	check_untouched(&raw, 2);
	raw_close(&raw);
	subject_stop(&subject);
}

static const struct test tests[] = {
	{"stopped_beside_the_cells", test_stopped_beside},
	{"stopped_inside_the_cells", test_stopped_inside},
	{"too_many_ghosts", test_too_many_ghosts},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_cells", tests, TEST_COUNT(tests));
}
