/*
 * All functions and what they return, between two or three processes where all goes well.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fixture.h"

static char memory[64];

static void test_options(void)
{
	static const struct {
		struct rmr_mesh_options options;
		enum rmr_status status;
		const char *message;
	} wrong[] = {
		{{.depth = 3}, RMR_INVALID, "power of two"},
		{{.depth = 8192}, RMR_INVALID, "4096"},
		{{.message_size = 2ul << 30}, RMR_INVALID, "messages"},
		{{.memory = memory}, RMR_INVALID, "memory"},
		{{.redial_ms = -1}, RMR_INVALID, "redial_ms"},
		{{.dead_after_ms = -1}, RMR_INVALID, "dead_after_ms"},
		{{.hosts = "a:1,,b:2"}, RMR_BAD_ADDRESS, "empty"},
		{{.hosts = "a:1,b:2,a:1"}, RMR_BAD_ADDRESS, "0 and 2"},
	};
	struct member member = {.count = 2};
	struct rmr_mesh_options options = {.hosts = "x:1,y:2", .device = fixture.device};
	char hosts[256];

	fixture_hosts(hosts, sizeof(hosts), 2);
	member.hosts = hosts;
	for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
		CHECK_STATUS(member_try_open(&member, &wrong[i].options), wrong[i].status);
		CHECK_CONTAINS(rmr_error_message(), wrong[i].message);
	}
	CHECK_STATUS(rmr_mesh_open(&options, &member.mesh), RMR_INVALID); /* no callback */
	member.id = 2;
	CHECK_STATUS(member_try_open(&member, NULL), RMR_INVALID);
	member.id = -1;
	CHECK_STATUS(member_try_open(&member, NULL), RMR_INVALID);
	member.id = 0;
	member.thread = -1;
	CHECK_STATUS(member_try_open(&member, NULL), RMR_INVALID);
	member.thread = 0;
	member.hosts = "";
	CHECK_STATUS(member_try_open(&member, NULL), RMR_INVALID);
	fixture.device = "no-such-device";
	member.hosts = "a:1";
	CHECK_STATUS(member_try_open(&member, NULL), RMR_NO_DEVICE);
	rmr_mesh_close(NULL);
}

static void test_addresses(void)
{
	struct member member = {.count = 2}, second = {.count = 2};
	char hosts[256];

	fixture_hosts(hosts, sizeof(hosts), 2);
	member.hosts = second.hosts = hosts;
	member_open(&member, NULL);
	CHECK_STATUS(member_try_open(&second, NULL), RMR_ADDRESS_IN_USE);
	second.thread = 1; /* another thread of the process has another address */
	member_open(&second, NULL);
	member_close(&second);
	member_close(&member);
	member_open(&member, NULL); /* closed is closed */
	member_close(&member);
	if (strstr(fixture.device, "shm"))
		return;
	member.hosts = "localhost,localhost:1";
	CHECK_STATUS(member_try_open(&member, NULL), RMR_BAD_ADDRESS);
	member.hosts = "localhost:65535,localhost:1";
	member.thread = 1;
	CHECK_STATUS(member_try_open(&member, NULL), RMR_BAD_ADDRESS);
}

/* A mesh of one is complete, and has nobody to talk to. */
static void test_alone(void)
{
	struct member member = {.count = 1};
	struct rmr_mesh_options options = {.memory_size = 100};
	char hosts[256];
	int fds;

	fixture_hosts(hosts, sizeof(hosts), 1);
	member.hosts = hosts;
	member_open(&member, &options); /* what libraries keep open for good is there then */
	member_close(&member);
	fds = test_open_fds();
	member_open(&member, &options);
	member_connect(&member);
	CHECK_EQ(rmr_mesh_size(member.mesh), 1);
	CHECK_EQ(rmr_mesh_id(member.mesh), 0);
	CHECK_EQ(rmr_mesh_memory_size(member.mesh), 100);
	CHECK(rmr_mesh_memory(member.mesh) != NULL);
	CHECK(rmr_mesh_user(member.mesh) == &member);
	CHECK_EQ(rmr_mesh_poll(member.mesh), 0);
	CHECK_EQ(rmr_mesh_wait(member.mesh, 1), 0);
	CHECK_EQ(rmr_mesh_terminate(member.mesh, 1), 0);
	CHECK_EQ(rmr_mesh_post_send(member.mesh, NULL, 0, 0, 0), RMR_INVALID);
	CHECK_CONTAINS(rmr_error_message(), "this process");
	member_close(&member);
	CHECK_EQ(test_open_fds(), fds);
}

/* ------------------------------------------------------------------------------------------
 * Wrong peers, wrong moments
 */

static void poll_inside(struct member *member, const struct rmr_mesh_event *event)
{
	(void)event;
	CHECK_EQ(rmr_mesh_poll(member->mesh), RMR_INVALID);
	CHECK_EQ(rmr_mesh_poll_sq_all(member->mesh), RMR_INVALID);
	CHECK_EQ(rmr_mesh_poll_rq_all(member->mesh), RMR_INVALID);
	CHECK_EQ(rmr_mesh_poll_sq(member->mesh, 1 - member->id), RMR_INVALID);
	CHECK_EQ(rmr_mesh_poll_rq(member->mesh, 1 - member->id), RMR_INVALID);
	CHECK_EQ(rmr_mesh_wait(member->mesh, 0), RMR_INVALID);
	CHECK_STATUS(rmr_mesh_connect(member->mesh, 0), RMR_INVALID);
	rmr_mesh_close(member->mesh); /* logged, and that is all */
}

static void check_wrong_peer(struct rmr_mesh *mesh, int peer)
{
	CHECK_EQ(rmr_mesh_post_send(mesh, "x", 1, peer, 0), RMR_INVALID);
	CHECK_EQ(rmr_mesh_post_write(mesh, NULL, 0, peer, 0, RMR_MESH_OFFSET, 0), RMR_INVALID);
	CHECK_EQ(rmr_mesh_post_read(mesh, NULL, 0, peer, 0, RMR_MESH_OFFSET), RMR_INVALID);
	CHECK(rmr_mesh_get_send_buf(mesh, peer) == NULL);
	CHECK_EQ(rmr_mesh_poll_sq(mesh, peer), RMR_INVALID);
	CHECK_EQ(rmr_mesh_poll_rq(mesh, peer), RMR_INVALID);
	CHECK(!rmr_mesh_is_up(mesh, peer));
	rmr_mesh_flush(mesh, peer);
}

/* What is logged about closing in a callback. */
static void keep_quiet(enum log_level level, const char *text, void *context)
{
	(void)level;
	(void)context;
	CHECK_CONTAINS(text, "callback");
}

static void misuse_role(struct member *member)
{
	struct rmr_mesh_options options = {.message_size = 100};

	log_set_sink(keep_quiet, NULL);
	member_open(member, &options);
	/* Before it is there: told, not crashed. */
	CHECK_EQ(rmr_mesh_post_send(member->mesh, "x", 1, 1 - member->id, 0), RMR_DISCONNECTED);
	CHECK(rmr_mesh_get_send_buf(member->mesh, 1 - member->id) == NULL);
	CHECK_CONTAINS(rmr_error_message(), "down");
	member_connect(member);
	check_wrong_peer(member->mesh, -1);
	check_wrong_peer(member->mesh, 2);
	check_wrong_peer(member->mesh, 1000000);
	check_wrong_peer(member->mesh, member->id);
	CHECK_EQ(rmr_mesh_post_send(member->mesh, NULL, 101, 1 - member->id, 0), RMR_TOO_LONG);
	CHECK_CONTAINS(rmr_error_message(), "101");
	member->on_event = poll_inside;
	member_send(member, 1 - member->id, "x", 1, 0);
	UNTIL(member, member->seen[RMR_MESH_SEND] == 1 && member->seen[RMR_MESH_RECV] == 1);
	member->on_event = NULL;
	member_meet(member);
	member_close(member);
}

static void test_misuse(void)
{
	struct crew crew;

	crew_start(&crew, 2, misuse_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * Messages
 */
#define ODD 123 /* a size */

static void check_message(struct member *member, const struct rmr_mesh_event *event)
{
	uint64_t number;

	if (event->opcode != RMR_MESH_RECV)
		return;
	number = member->seen[RMR_MESH_RECV];
	CHECK_EQ((uintptr_t)event->data % 64, 0);
	CHECK_EQ(event->status, RMR_OK);
	switch (number) {
	case 1:
		CHECK_EQ(event->length, 1000);
		CHECK_EQ(event->immediate, 0xffffffffu);
		break;
	case 2:
		CHECK_EQ(event->length, 0);
		CHECK_EQ(event->immediate, 0);
		return;
	default:
		CHECK_EQ(event->length, ODD);
		CHECK_EQ(event->immediate, number);
		break;
	}
	pattern_check(event->data, event->length, number);
}

static void check_sent(struct member *member, const struct rmr_mesh_event *event)
{
	int64_t *expected = member->state;

	CHECK_EQ(event->opcode, RMR_MESH_SEND);
	CHECK_EQ(event->work, ++*expected);
	CHECK_EQ(event->status, RMR_OK);
	if (event->length == ODD) /* the slot is as it was */
		pattern_check(event->data, ODD, (uint64_t)event->work);
}

static void send_all_kinds(struct member *member)
{
	struct rmr_mesh *mesh = member->mesh;
	static int64_t expected;
	char own[1000], *slot;

	member->state = &expected;
	member->on_event = check_sent;
	pattern_fill(own, sizeof(own), 1);
	CHECK_EQ(rmr_mesh_post_send(mesh, own, 1000, 1, 0xffffffffu), 1);
	memset(own, 0, sizeof(own)); /* it was copied */
	CHECK_EQ(rmr_mesh_post_send(mesh, NULL, 0, 1, 0), 2);
	/* A slot, the same until it is posted; by its address and by NULL. */
	slot = rmr_mesh_get_send_buf(mesh, 1);
	CHECK(slot != NULL);
	CHECK_EQ((uintptr_t)slot % 64, 0);
	CHECK(rmr_mesh_get_send_buf(mesh, 1) == slot);
	pattern_fill(slot, ODD, 4);
	/* Own memory meanwhile does not touch it. */
	pattern_fill(own, ODD, 3);
	CHECK_EQ(rmr_mesh_post_send(mesh, own, ODD, 1, 3), 3);
	CHECK(rmr_mesh_get_send_buf(mesh, 1) == slot);
	CHECK_EQ(rmr_mesh_post_send(mesh, slot, ODD, 1, 4), 4);
	slot = rmr_mesh_get_send_buf(mesh, 1);
	CHECK(slot != NULL);
	pattern_fill(slot, ODD, 5);
	CHECK_EQ(rmr_mesh_post_send(mesh, NULL, ODD, 1, 5), 5);
	/* Nothing has left yet, for a batch is larger. */
	CHECK_EQ(rmr_mesh_poll(mesh), 0);
	rmr_mesh_flush(mesh, 1);
	UNTIL(member, member->seen[RMR_MESH_SEND] == 5);
}

static void message_role(struct member *member)
{
	struct rmr_mesh_options options = {.message_size = 1000};
	struct rmr_mesh_stats stats;

	member_open(member, &options);
	member_connect(member);
	if (member->id == 0) {
		send_all_kinds(member);
		rmr_mesh_get_stats(member->mesh, &stats);
		CHECK_EQ(stats.sends, 5);
		CHECK_EQ(stats.doorbells, 1);
	} else {
		member->on_event = check_message;
		UNTIL(member, member->seen[RMR_MESH_RECV] == 5);
		rmr_mesh_get_stats(member->mesh, &stats);
		CHECK_EQ(stats.received, 5);
		CHECK_EQ(stats.sends, 0);
	}
	member_meet(member);
	member_close(member);
}

static void test_messages(void)
{
	struct crew crew;

	crew_start(&crew, 2, message_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * What one poll finds for the other is kept; polls of one peer tell of no other.
 */

static void flush_and_meet(struct member *member)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

	rmr_mesh_flush_all(member->mesh);
	/* Our works are done at the peers, who poll only rq by now. */
	while (member->seen[RMR_MESH_SEND] < 20) {
		CHECK(rmr_mesh_poll_sq_all(member->mesh) >= 0);
		CHECK(!clock_passed(deadline_ns));
	}
	member_meet(member);
}

static void kept_role(struct member *member)
{
	int other = (member->id + 1) % 3, third = (member->id + 2) % 3;

	member_open(member, NULL);
	member_connect(member);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(rmr_mesh_post_send(member->mesh, "abc", 3, other, i) > 0);
		CHECK(rmr_mesh_post_send(member->mesh, "abc", 3, third, i) > 0);
	}
	flush_and_meet(member);
	CHECK_EQ(member->seen[RMR_MESH_RECV], 0); /* sq has told of none */
	while (member->from[other] < 10)
		CHECK(rmr_mesh_poll_rq(member->mesh, other) >= 0);
	CHECK_EQ(member->from[third], 0);
	while (member->from[third] < 10)
		CHECK(rmr_mesh_poll_rq_all(member->mesh) >= 0);
	CHECK_EQ(member->seen[RMR_MESH_SEND], 20);
	/* The other way round: rq keeps the works. */
	CHECK(rmr_mesh_post_send(member->mesh, NULL, 0, other, 0) > 0);
	rmr_mesh_flush(member->mesh, other);
	while (member->from[third] < 11)
		CHECK(rmr_mesh_poll_rq_all(member->mesh) >= 0);
	member_meet(member); /* all have had theirs, so all works are done */
	for (int i = 0; i < 100; i++)
		CHECK_EQ(rmr_mesh_poll_rq_all(member->mesh), 0);
	CHECK_EQ(member->seen[RMR_MESH_SEND], 20);
	while (member->seen[RMR_MESH_SEND] < 21)
		CHECK(rmr_mesh_poll_sq(member->mesh, other) >= 0);
	member_meet(member);
	member_close(member);
}

static void test_kept(void)
{
	struct crew crew;

	crew_start(&crew, 3, kept_role, NULL);
	for (int i = 0; i < 3; i++)
		crew_meet(&crew);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * The end, announced
 */
static void terminate_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = 4, .batch = 4};

	member_open(member, &options);
	member_connect(member);
	if (member->id == 1) {
		/* Works that wait, and no slot: both come before the end. */
		for (int i = 0; i < 4; i++)
			CHECK(rmr_mesh_post_send(member->mesh, "x", 1, 0, 0) > 0);
		CHECK_EQ(rmr_mesh_post_send(member->mesh, "x", 1, 0, 0), RMR_AGAIN);
		CHECK(rmr_mesh_post_send(member->mesh, "x", 1, 2, 0) > 0);
		CHECK_EQ(rmr_mesh_terminate(member->mesh, 77), 2);
		UNTIL(member, member->seen[RMR_MESH_SEND] == 5 && member->seen[RMR_MESH_RECV] == 2);
		member_close(member);
		member_meet(member);
		return;
	}
	UNTIL(member, member->seen[RMR_MESH_TERMINATE] == 1);
	CHECK_EQ(member->seen[RMR_MESH_RECV], member->id == 0 ? 4 : 1);
	CHECK_EQ(member->last.opcode, RMR_MESH_TERMINATE);
	CHECK_EQ(member->last.immediate, 77);
	member_send(member, 1, "farewell", 8, 0);
	UNTIL(member, member->seen[RMR_MESH_DOWN] == 1);
	member_meet(member);
	member_close(member);
}

static void test_terminate(void)
{
	struct crew crew;

	crew_start(&crew, 3, terminate_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

const struct test basic_tests[] = {
	{"basic_options", test_options},     {"basic_addresses", test_addresses},
	{"basic_alone", test_alone},	     {"basic_misuse", test_misuse},
	{"basic_messages", test_messages},   {"basic_polls_keep_for_each_other", test_kept},
	{"basic_terminate", test_terminate}, {NULL},
};
