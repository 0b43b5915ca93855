/*
 * Peers that die, stop, come back; the others go on.
 *
 * Each of a crew of three sends numbered messages to the others, writes and reads their memory,
 * until the test says that it is enough. What it has seen it writes into memory that the test
 * sees. What these tests would catch: a program that ends or hangs because a peer did, works
 * without an event, DOWN before them or twice, a peer that cannot come back, an old message after
 * it.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"

/* Numbers start anew with each life of a peer. */
struct ledger {
	uint64_t incarnation[CREW_MAX]; /* of the peer, as it says */
	uint64_t next[CREW_MAX];
	uint64_t lives[CREW_MAX];
	int64_t works[CREW_MAX];
	uint64_t open_works[CREW_MAX];
	bool is_up[CREW_MAX];
};

struct note {
	uint64_t incarnation, number;
};

static void keep_ledger(struct member *member, const struct rmr_mesh_event *event)
{
	struct ledger *ledger = member->state;
	int peer = event->peer;
	struct note note;

	switch (event->opcode) {
	case RMR_MESH_SEND:
	case RMR_MESH_WRITE:
	case RMR_MESH_READ:
		CHECK(ledger->open_works[peer] > 0);
		ledger->open_works[peer]--;
		CHECK(event->work > ledger->works[peer]); /* in order, each once */
		ledger->works[peer] = event->work;
		break;
	case RMR_MESH_RECV:
		CHECK(ledger->is_up[peer]);
		CHECK_EQ(event->length, sizeof(note));
		memcpy(&note, event->data, sizeof(note));
		if (ledger->next[peer] == 0)
			ledger->incarnation[peer] = note.incarnation;
		CHECK_EQ(note.incarnation, ledger->incarnation[peer]);
		CHECK_EQ(note.number, ledger->next[peer]);
		ledger->next[peer]++;
		break;
	case RMR_MESH_DOWN:
		CHECK(ledger->is_up[peer]);
		CHECK_EQ(ledger->open_works[peer], 0); /* after all works */
		CHECK(event->status != RMR_OK);
		CHECK(event->length > 0 && strlen(event->data) == event->length);
		ledger->is_up[peer] = false;
		CHECK_EQ(rmr_mesh_post_send(member->mesh, NULL, 0, peer, 0), RMR_DISCONNECTED);
		break;
	case RMR_MESH_UP:
		CHECK(!ledger->is_up[peer]);
		ledger->is_up[peer] = true;
		ledger->next[peer] = 0;
		ledger->lives[peer]++;
		break;
	default:
		TEST_FAIL("event %d", (int)event->opcode);
	}
}

struct talk {
	uint64_t sent[CREW_MAX];
	uint64_t lives[CREW_MAX];
};

/* One message, one read and one write to each that is up. */
static void talk_to_all(struct member *member, struct talk *talk)
{
	struct ledger *ledger = member->state;
	char *memory = rmr_mesh_memory(member->mesh);

	for (int peer = 0; peer < member->count; peer++) {
		struct note note = {.incarnation = (uint64_t)getpid()};

		if (peer == member->id || !ledger->is_up[peer])
			continue;
		if (talk->lives[peer] != ledger->lives[peer])
			talk->sent[peer] = 0;
		talk->lives[peer] = ledger->lives[peer];
		note.number = talk->sent[peer];
		if (rmr_mesh_post_send(member->mesh, (char *)&note, sizeof(note), peer, 0) > 0) {
			talk->sent[peer]++;
			ledger->open_works[peer]++;
		}
		if (rmr_mesh_post_read(member->mesh, memory, 5000, peer, 0, RMR_MESH_OFFSET) > 0)
			ledger->open_works[peer]++;
		if (rmr_mesh_post_write(member->mesh, memory + 5000, 100, peer, 6000,
					RMR_MESH_OFFSET, 0) > 0)
			ledger->open_works[peer]++;
	}
}

/* What the test and the crew share. */
struct stage {
	atomic_bool is_over;
	struct {
		atomic_ullong from[3], downs, ups;
	} seen[3];
};

static struct stage *stage_make(void)
{
	struct stage *stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(stage != MAP_FAILED);
	return stage;
}

static void publish(struct member *member)
{
	struct stage *stage = member->arg;

	for (int i = 0; i < 3; i++)
		atomic_store(&stage->seen[member->id].from[i], member->from[i]);
	atomic_store(&stage->seen[member->id].downs, member->seen[RMR_MESH_DOWN]);
	atomic_store(&stage->seen[member->id].ups, member->seen[RMR_MESH_UP]);
}

static void talker_role(struct member *member)
{
	struct rmr_mesh_options options = {
		.depth = 16, .batch = 3, .memory_size = 8192, .redial_ms = 30};
	struct stage *stage = member->arg;
	struct ledger ledger = {0};
	struct talk talk = {0};

	member->state = &ledger;
	member->on_event = keep_ledger;
	member_open(member, &options);
	member_connect(member);
	for (int i = 0; i < member->count; i++)
		ledger.is_up[i] = i != member->id;
	while (!atomic_load(&stage->is_over)) {
		talk_to_all(member, &talk);
		CHECK(rmr_mesh_wait(member->mesh, 20) >= 0);
		publish(member);
	}
	member->on_event = NULL;
	member_close(member);
}

/* Waits until `who` has had so many messages more from `from`. */
static void await_talk(struct stage *stage, int who, int from)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	uint64_t before = atomic_load(&stage->seen[who].from[from]);

	while (atomic_load(&stage->seen[who].from[from]) < before + 20) {
		if (clock_passed(deadline_ns))
			TEST_FAIL("%d hears nothing from %d", who, from);
		test_sleep_ms(1);
	}
}

static void await_count(atomic_ullong *count, uint64_t wanted, const char *what)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

	while (atomic_load(count) < wanted) {
		if (clock_passed(deadline_ns))
			TEST_FAIL("%s: %llu instead of %llu", what, atomic_load(count),
				  (unsigned long long)wanted);
		test_sleep_ms(1);
	}
}

static void await_all(struct stage *stage)
{
	for (int who = 0; who < 3; who++)
		for (int from = 0; from < 3; from++)
			if (who != from)
				await_talk(stage, who, from);
}

/* Starts it again; it has seen nothing yet. */
static void start_again(struct crew *crew, struct stage *stage, int id)
{
	for (int i = 0; i < 3; i++)
		atomic_store(&stage->seen[id].from[i], 0);
	atomic_store(&stage->seen[id].downs, 0);
	atomic_store(&stage->seen[id].ups, 0);
	crew_spawn(crew, id, talker_role, stage);
}

/* Each is killed once and started again, while the two others talk. */
static void test_killed(void)
{
	struct stage *stage = stage_make();
	struct crew crew;

	crew_start(&crew, 3, talker_role, stage);
	await_all(stage);
	for (int victim = 0; victim < 3; victim++) {
		int a = (victim + 1) % 3, b = (victim + 2) % 3;
		uint64_t downs_a = atomic_load(&stage->seen[a].downs);
		uint64_t downs_b = atomic_load(&stage->seen[b].downs);
		uint64_t ups_a = atomic_load(&stage->seen[a].ups);
		uint64_t ups_b = atomic_load(&stage->seen[b].ups);

		crew_kill(&crew, victim);
		await_count(&stage->seen[a].downs, downs_a + 1, "DOWN");
		await_count(&stage->seen[b].downs, downs_b + 1, "DOWN");
		await_talk(stage, a, b);
		await_talk(stage, b, a);
		start_again(&crew, stage, victim);
		await_count(&stage->seen[a].ups, ups_a + 1, "UP");
		await_count(&stage->seen[b].ups, ups_b + 1, "UP");
		await_all(stage);
	}
	atomic_store(&stage->is_over, true);
	crew_join(&crew);
}

/* One that is started again at once, before its death was told perhaps. */
static void test_replaced(void)
{
	struct stage *stage = stage_make();
	struct crew crew;

	crew_start(&crew, 3, talker_role, stage);
	await_all(stage);
	for (int round = 0; round < 4; round++) {
		int victim = round % 3;

		crew_kill(&crew, victim);
		start_again(&crew, stage, victim);
		await_all(stage);
	}
	atomic_store(&stage->is_over, true);
	crew_join(&crew);
}

/* One that is stopped hinders nobody else, and goes on where it was. */
static void test_stopped(void)
{
	struct stage *stage = stage_make();
	struct crew crew;

	crew_start(&crew, 3, talker_role, stage);
	await_all(stage);
	for (int victim = 0; victim < 3; victim++) {
		int a = (victim + 1) % 3, b = (victim + 2) % 3;

		CHECK_EQ(kill(crew.members[victim].pid, SIGSTOP), 0);
		test_sleep_ms(100);
		await_talk(stage, a, b);
		await_talk(stage, b, a);
		CHECK_EQ(kill(crew.members[victim].pid, SIGCONT), 0);
		await_all(stage);
	}
	for (int i = 0; i < 3; i++)
		CHECK_EQ(atomic_load(&stage->seen[i].downs), 0);
	atomic_store(&stage->is_over, true);
	crew_join(&crew);
}

/* Killed while it is stopped: its works were under way, its messages not taken. */
static void test_killed_while_stopped(void)
{
	struct stage *stage = stage_make();
	struct crew crew;

	crew_start(&crew, 3, talker_role, stage);
	await_all(stage);
	CHECK_EQ(kill(crew.members[1].pid, SIGSTOP), 0);
	test_sleep_ms(50);
	crew_kill(&crew, 1);
	await_count(&stage->seen[0].downs, 1, "DOWN");
	await_count(&stage->seen[2].downs, 1, "DOWN");
	start_again(&crew, stage, 1);
	await_all(stage);
	atomic_store(&stage->is_over, true);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * Closing and opening again in the same process
 */
static void again_role(struct member *member)
{
	int fds = -1, mappings = -1;

	for (int round = 0; round < 6; round++) {
		member_open(member, NULL);
		member_connect(member);
		member_send(member, 1 - member->id, "again", 5, (uint32_t)round);
		UNTIL(member, member->seen[RMR_MESH_RECV] > (uint64_t)round &&
				      member->seen[RMR_MESH_SEND] > (uint64_t)round);
		member_meet(member);
		member_close(member);
		if (round == 1) {
			fds = test_open_fds();
			mappings = test_mapping_count();
		}
		member_meet(member);
	}
	CHECK_EQ(test_open_fds(), fds);
	CHECK(TEST_HAS_SANITIZER || test_mapping_count() <= mappings + 8);
}

static void test_again(void)
{
	struct crew crew;

	crew_start(&crew, 2, again_role, NULL);
	for (int i = 0; i < 12; i++)
		crew_meet(&crew);
	crew_join(&crew);
}

/* What was posted before the close arrives, flushed or not. */
static void farewell_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = 128, .batch = 128};

	member_open(member, &options);
	member_connect(member);
	if (member->id == 1) {
		for (uint32_t i = 0; i < 100; i++)
			CHECK(rmr_mesh_post_send(member->mesh, "bye", 3, 0, i) > 0);
		rmr_mesh_flush(member->mesh, 0);
		CHECK(rmr_mesh_post_send(member->mesh, "at last", 7, 0, 0) > 0);
		member_close(member);
		return;
	}
	UNTIL(member, member->seen[RMR_MESH_DOWN] == 1);
	CHECK_EQ(member->seen[RMR_MESH_RECV], 101);
	member_close(member);
}

static void test_farewell(void)
{
	struct crew crew;

	crew_start(&crew, 2, farewell_role, NULL);
	crew_join(&crew);
}

/* A program that never polls its works is told of the loss when it has: DOWN is the last. */
static void order_role(struct member *member)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

	member_open(member, NULL);
	member_connect(member);
	if (member->id == 1) {
		member_meet(member);
		pause();
	}
	for (int i = 0; i < 10; i++)
		CHECK(rmr_mesh_post_send(member->mesh, "x", 1, 1, 0) > 0); /* not flushed */
	member_meet(member);
	while (rmr_mesh_is_up(member->mesh, 1)) {
		CHECK_EQ(rmr_mesh_poll_rq_all(member->mesh), 0);
		CHECK(!clock_passed(deadline_ns));
	}
	CHECK_EQ(rmr_mesh_poll_rq_all(member->mesh), 0);
	CHECK_EQ(rmr_mesh_poll_sq_all(member->mesh), 10);
	CHECK_EQ(member->failed, 10);
	CHECK_EQ(member->last.status, RMR_CANCELED);
	CHECK_EQ(rmr_mesh_poll_rq_all(member->mesh), 1);
	CHECK_EQ(member->last.opcode, RMR_MESH_DOWN);
	CHECK_EQ(rmr_mesh_poll(member->mesh), 0);
	member_close(member);
}

static void test_order(void)
{
	struct crew crew;

	crew_start(&crew, 2, order_role, NULL);
	crew_meet(&crew);
	crew_kill(&crew, 1);
	crew_join(&crew);
}

const struct test death_tests[] = {
	{"death_killed_and_back", test_killed},
	{"death_replaced_at_once", test_replaced},
	{"death_stopped", test_stopped},
	{"death_killed_while_stopped", test_killed_while_stopped},
	{"death_closed_and_opened_again", test_again},
	{"death_farewell", test_farewell},
	{"death_order_of_events", test_order},
	{NULL},
};
