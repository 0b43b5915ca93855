/*
 * Coming together: in any order, with some missing, and with those that do not belong.
 */
#include <stdio.h>
#include <string.h>

#include "fixture.h"

/* ------------------------------------------------------------------------------------------
 * Any order
 */
static void exchange(struct member *member)
{
	for (int i = 0; i < member->count; i++)
		if (i != member->id)
			member_send(member, i, "hello", 5, 0);
	UNTIL(member, member->seen[RMR_MESH_RECV] == (uint64_t)member->count - 1 &&
			      member->seen[RMR_MESH_SEND] == (uint64_t)member->count - 1);
}

static void late_role(struct member *member)
{
	const int *order = member->arg;

	test_sleep_ms(30u * (unsigned)order[member->id]);
	member_open(member, NULL);
	member_connect(member);
	CHECK_EQ(member->seen[RMR_MESH_UP], 0); /* not told of by connect */
	exchange(member);
	member_meet(member);
	member_close(member);
}

static void test_any_order(void)
{
	static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {0, 0, 0}};
	struct crew crew;

	for (size_t i = 0; i < TEST_COUNT(orders); i++) {
		crew_start(&crew, 3, late_role, (void *)(uintptr_t)orders[i]);
		crew_meet(&crew);
		crew_join(&crew);
	}
}

/* One that opens is there for others, but meets them only when it polls or connects itself; one who
 * says all it has to say and goes has been there. */
static void hasty_role(struct member *member)
{
	member_open(member, NULL);
	if (member->id == 0)
		test_sleep_ms(100);
	member_connect(member);
	if (member->id == 1) {
		member_send(member, 0, "bye", 3, 0);
		rmr_mesh_flush(member->mesh, 0);
		member_close(member);
		test_signal(&member->pipe, TEST_CHILD);
		return;
	}
	if (member->id == 2)
		test_await(&member->pipe, TEST_CHILD); /* comes last */
	UNTIL(member, member->seen[RMR_MESH_DOWN] >= 1);
	CHECK_EQ(member->seen[RMR_MESH_RECV], member->id == 0);
	member_meet(member);
	member_close(member);
}

static void test_short_life(void)
{
	struct crew crew;

	crew_start(&crew, 3, hasty_role, NULL);
	test_await(&crew.members[1].pipe, TEST_PARENT);
	test_signal(&crew.members[2].pipe, TEST_PARENT);
	crew_join_one(&crew, 1);
	crew_meet(&crew);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * Some are missing
 */
static void missing_role(struct member *member)
{
	struct rmr_mesh_options options = {.redial_ms = 20};
	char name[16];

	member_open(member, &options);
	if (member->id != 1) {
		CHECK_STATUS(rmr_mesh_connect(member->mesh, 300 * (int)TEST_TIME_FACTOR),
			     RMR_TIMEOUT);
		CHECK_CONTAINS(rmr_error_message(), "missing of 3 peers: 1 at ");
		snprintf(name, sizeof(name), "%d at", member->id == 0 ? 2 : 0);
		CHECK(strstr(rmr_error_message(), name) == NULL);
		/* The rest works. */
		for (int i = 0; i < 4; i++)
			if (i != member->id && i != 1)
				member_send(member, i, "hello", 5, 0);
		CHECK_EQ(rmr_mesh_post_send(member->mesh, "hello", 5, 1, 0), RMR_DISCONNECTED);
		CHECK_EQ(rmr_mesh_terminate(member->mesh, 0), 2);
		UNTIL(member, member->seen[RMR_MESH_TERMINATE] == 2);
		member_meet(member);
		/* It comes late: that is told. */
		UNTIL(member, member->seen[RMR_MESH_UP] == 1);
		CHECK_EQ(member->last.peer, 1);
		CHECK(rmr_mesh_is_up(member->mesh, 1));
	} else {
		member_connect(member);
	}
	for (int i = 0; i < 4; i++)
		if (i != member->id && (i == 1 || member->id == 1))
			member_send(member, i, "late", 4, 0);
	UNTIL(member, member->id == 1 ? member->seen[RMR_MESH_RECV] == 3 : member->from[1] == 1);
	member_meet(member);
	member_close(member);
}

static void test_missing(void)
{
	struct crew crew;

	crew_make(&crew, 4);
	for (int i = 0; i < 4; i++)
		if (i != 1)
			crew_spawn(&crew, i, missing_role, NULL);
	crew_meet(&crew);
	crew_spawn(&crew, 1, missing_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

/* A deadline is kept, and closing while the dialer is at work takes no longer than a call of it. */
static void test_deadline(void)
{
	struct member member = {.id = 1, .count = 2};
	uint64_t begin_ns;
	char hosts[256];
	int fds;

	fixture_hosts(hosts, sizeof(hosts), 2);
	member.hosts = hosts;
	member_open(&member, NULL);
	member_close(&member);
	fds = test_open_fds();
	member_open(&member, NULL);
	begin_ns = clock_now_ns();
	CHECK_STATUS(rmr_mesh_connect(member.mesh, 200), RMR_TIMEOUT);
	CHECK(clock_now_ns() - begin_ns >= 200000000u);
	CHECK(clock_now_ns() - begin_ns < 200000000u + 2000000000u * TEST_TIME_FACTOR);
	CHECK_STATUS(rmr_mesh_connect(member.mesh, 0), RMR_TIMEOUT);
	member_close(&member);
	CHECK(clock_now_ns() - begin_ns < 5000000000u * TEST_TIME_FACTOR);
	CHECK_EQ(test_open_fds(), fds);
}

/* ------------------------------------------------------------------------------------------
 * Strangers
 */

struct mismatch {
	struct rmr_mesh_options options;
	int thread;
	const char *hosts_added; /* to the list */
	const char *reason;
};

/* 2 has other options than 0 and 1: it is told so, they go on without it. */
static void mismatch_role(struct member *member)
{
	const struct mismatch *mismatch = member->arg;
	struct rmr_mesh_options options = {0};
	char hosts[512];

	if (member->id == 2) {
		member_meet(member);
		options = mismatch->options;
		if (mismatch->hosts_added) {
			snprintf(hosts, sizeof(hosts), "%s%s", member->hosts,
				 mismatch->hosts_added);
			options.hosts = hosts;
		}
		member_open(member, &options);
		CHECK_STATUS(rmr_mesh_connect(member->mesh, PATIENCE_MS), RMR_PROTOCOL);
		CHECK_CONTAINS(rmr_error_message(), mismatch->reason);
		member_close(member);
		member_meet(member);
		return;
	}
	member_open(member, NULL);
	member_meet(member);
	CHECK_STATUS(rmr_mesh_connect(member->mesh, 500 * (int)TEST_TIME_FACTOR), RMR_TIMEOUT);
	CHECK_CONTAINS(rmr_error_message(), "2 at");
	if (member->id == 0) /* the first that is called */
		CHECK_CONTAINS(rmr_error_message(), mismatch->reason);
	member_send(member, 1 - member->id, "hello", 5, 0);
	UNTIL(member, member->seen[RMR_MESH_RECV] == 1);
	member_meet(member);
	member_close(member);
}

static void test_mismatch(void)
{
	static const struct mismatch mismatches[] = {
		{.options = {.depth = 64}, .reason = "depth"},
		{.options = {.message_size = 1000}, .reason = "message size"},
		{.hosts_added = ",another:1234", .reason = "number of hosts"},
	};
	struct crew crew;

	for (size_t i = 0; i < TEST_COUNT(mismatches); i++) {
		crew_start(&crew, 3, mismatch_role, (void *)(uintptr_t)&mismatches[i]);
		crew_meet(&crew);
		crew_meet(&crew);
		crew_join(&crew);
	}
}

/* Two who both think that they are the same place of the list, or have it in another order. */
static void swapped_role(struct member *member)
{
	char a[128], b[128], hosts[300];

	if (member->id == 0) {
		member_open(member, NULL);
		CHECK_STATUS(rmr_mesh_connect(member->mesh, 500 * (int)TEST_TIME_FACTOR),
			     RMR_TIMEOUT);
		member_meet(member);
		member_close(member);
		return;
	}
	/* Its list is 1,0,2 and it is 2: whom it calls as 1 is 0. */
	CHECK(sscanf(member->hosts, "%127[^,],%127[^,]", a, b) == 2);
	snprintf(hosts, sizeof(hosts), "%s,%s%s", b, a, strrchr(member->hosts, ','));
	member->hosts = hosts;
	member_open(member, NULL);
	CHECK_STATUS(rmr_mesh_connect(member->mesh, PATIENCE_MS), RMR_PROTOCOL);
	CHECK_CONTAINS(rmr_error_message(), "id 0 here, 1 was called");
	member_close(member);
	member_meet(member);
}

static void test_swapped(void)
{
	struct crew crew;

	crew_make(&crew, 3);
	crew_spawn(&crew, 0, swapped_role, NULL);
	crew_spawn(&crew, 2, swapped_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

/* Two threads of each process, each in its own mesh. */
static void threads_role(struct member *member)
{
	struct member second = *member;

	second.thread = 1;
	member_open(member, NULL);
	member_open(&second, NULL);
	member_connect(member);
	member_connect(&second);
	member_send(member, 1 - member->id, "zero", 4, 0);
	member_send(&second, 1 - member->id, "one", 3, 1);
	UNTIL(member, member->seen[RMR_MESH_RECV] == 1);
	UNTIL(&second, second.seen[RMR_MESH_RECV] == 1);
	CHECK_EQ(member->last.opcode == RMR_MESH_RECV ? member->last.immediate : 0, 0);
	member_meet(member);
	member_close(member);
	member_close(&second);
}

static void test_threads(void)
{
	struct crew crew;

	crew_start(&crew, 2, threads_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

const struct test connect_tests[] = {
	{"connect_in_any_order", test_any_order}, {"connect_short_life", test_short_life},
	{"connect_missing_peer", test_missing},	  {"connect_deadline", test_deadline},
	{"connect_mismatch", test_mismatch},	  {"connect_swapped_list", test_swapped},
	{"connect_threads", test_threads},	  {NULL},
};
