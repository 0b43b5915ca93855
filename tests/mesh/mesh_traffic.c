/*
 * Traffic: rings that wrap many times, batches of all sizes, back-pressure, callbacks that post.
 *
 * What these tests would catch: a slot reused too early or never, a credit lost, a doorbell that is
 * not rung, a batch that waits for itself, a message twice or out of order, an event that a post in
 * a callback overwrote.
 */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

/* ------------------------------------------------------------------------------------------
 * Streams: each to each, random sizes, every byte checked
 */
struct stream {
	uint32_t depth, batch;
	uint64_t messages; /* to each peer */
	int style;	   /* of polling */
};

struct stream_state {
	uint64_t received[CREW_MAX], done[CREW_MAX];
};

/* The i-th message from one to another: length and seed follow from who and which. */
static size_t length_of(int from, int to, uint64_t number)
{
	uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(from * 64 + to);

	x ^= x >> 31;
	return x % 16 == 0 ? x % 301 : x % 40;
}

static uint64_t seed_of(int from, int to, uint64_t number)
{
	return number << 16 | (uint64_t)from << 8 | (uint64_t)to;
}

static void stream_event(struct member *member, const struct rmr_mesh_event *event)
{
	struct stream_state *state = member->state;
	uint64_t number;

	CHECK_EQ(event->status, RMR_OK);
	if (event->opcode == RMR_MESH_SEND) {
		state->done[event->peer]++;
		return;
	}
	CHECK_EQ(event->opcode, RMR_MESH_RECV);
	number = state->received[event->peer]++;
	CHECK_EQ(event->immediate, (uint32_t)(number * 7));
	CHECK_EQ(event->length, length_of(event->peer, member->id, number));
	pattern_check(event->data, event->length, seed_of(event->peer, member->id, number));
}

static void poll_by_style(struct member *member, int style, int peer)
{
	struct rmr_mesh *mesh = member->mesh;
	int count = 0;

	switch (style) {
	case 0:
		count = rmr_mesh_poll(mesh);
		break;
	case 1:
		count = rmr_mesh_poll_sq(mesh, peer) + rmr_mesh_poll_rq(mesh, peer);
		break;
	case 2:
		count = rmr_mesh_poll_rq_all(mesh) + rmr_mesh_poll_sq_all(mesh);
		break;
	default:
		count = rmr_mesh_wait(mesh, 10);
		break;
	}
	CHECK(count >= 0);
}

/* Posts the next message to a peer, if there is room. */
static bool post_next(struct member *member, int peer, uint64_t number)
{
	size_t length = length_of(member->id, peer, number);
	char *slot = rmr_mesh_get_send_buf(member->mesh, peer);

	if (!slot)
		return false;
	pattern_fill(slot, length, seed_of(member->id, peer, number));
	CHECK(rmr_mesh_post_send(member->mesh, slot, length, peer, (uint32_t)(number * 7)) > 0);
	return true;
}

static void stream_role(struct member *member)
{
	const struct stream *stream = member->arg;
	struct rmr_mesh_options options = {
		.depth = stream->depth, .batch = stream->batch, .message_size = 300};
	static struct stream_state state;
	uint64_t posted[CREW_MAX] = {0}, left = 1;

	member->state = &state;
	member->on_event = stream_event;
	member_open(member, &options);
	member_connect(member);
	while (left) {
		uint64_t before = member->seen[RMR_MESH_SEND] + member->seen[RMR_MESH_RECV];

		left = 0;
		for (int peer = 0; peer < member->count; peer++) {
			if (peer == member->id)
				continue;
			while (posted[peer] < stream->messages &&
			       post_next(member, peer, posted[peer]))
				posted[peer]++;
			if (posted[peer] == stream->messages)
				rmr_mesh_flush(member->mesh, peer);
			poll_by_style(member, stream->style, peer);
			left += stream->messages * 2 - state.done[peer] - state.received[peer];
		}
		/* On a busy machine the others need the processor that we would poll on. */
		if (left && member->seen[RMR_MESH_SEND] + member->seen[RMR_MESH_RECV] == before)
			CHECK(rmr_mesh_wait(member->mesh, 10) >= 0);
	}
	member_meet(member);
	member_close(member);
}

static void run_stream(int members, const struct stream *stream)
{
	struct crew crew;

	crew_start(&crew, members, stream_role, (void *)(uintptr_t)stream);
	crew_meet(&crew);
	crew_join(&crew);
}

static uint64_t scaled(uint64_t messages)
{
	return TEST_TIME_FACTOR > 1 ? messages / 20 : messages;
}

static void test_batches(void)
{
	static const struct {
		uint32_t depth, batch;
	} shapes[] = {{128, 1}, {128, 16}, {128, 128}, {16, 1000},
		      {4, 3},	{1, 1},	   {2, 2},     {1024, 7}};

	for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
		struct stream stream = {.depth = shapes[i].depth,
					.batch = shapes[i].batch,
					.messages = scaled(20000),
					.style = (int)i % 4};

		run_stream(2, &stream);
	}
}

static void test_polls(void)
{
	for (int style = 0; style < 4; style++) {
		struct stream stream = {.depth = 32, .messages = scaled(20000), .style = style};

		run_stream(3, &stream);
	}
}

/* The ring wraps thousands of times; both ways at once. */
static void test_long(void)
{
	struct stream stream = {.depth = 64, .messages = scaled(500000)};

	run_stream(2, &stream);
}

/* ------------------------------------------------------------------------------------------
 * Back-pressure
 */
#define SLOW_DEPTH 16u

/* 0 sends until there is no room, and polls only its works; 1 does nothing at all, then takes all.
 * */
static void pressure_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = SLOW_DEPTH, .batch = 5};
	uint64_t posted = 0;
	int64_t work;

	member_open(member, &options);
	member_connect(member);
	for (int round = 0; round < 5; round++) {
		if (member->id == 0) {
			uint64_t all = SLOW_DEPTH * ((uint64_t)round + 1);
			uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

			/* Room comes back by halves of the ring: the second may be on its way. */
			while (posted < all) {
				work = rmr_mesh_post_send(member->mesh, NULL, 1, 1, 0);
				CHECK(work > 0 || work == RMR_AGAIN);
				if (work > 0)
					posted++;
				else
					member_wait(member, deadline_ns, "all of the room");
			}
			CHECK_EQ(rmr_mesh_post_send(member->mesh, NULL, 1, 1, 0), RMR_AGAIN);
			CHECK(rmr_mesh_get_send_buf(member->mesh, 1) == NULL);
			member_meet(member);
			member_meet(member);
			/* Room again, although nothing is called back for that. */
			while (rmr_mesh_get_send_buf(member->mesh, 1) == NULL)
				member_wait(member, clock_deadline_ns(PATIENCE_MS), "room");
			UNTIL(member, member->seen[RMR_MESH_SEND] == posted);
		} else {
			member_meet(member); /* full */
			UNTIL(member,
			      member->seen[RMR_MESH_RECV] == SLOW_DEPTH * ((uint64_t)round + 1));
			member_meet(member);
		}
		member_meet(member);
	}
	member_close(member);
}

static void test_pressure(void)
{
	struct crew crew;

	crew_start(&crew, 2, pressure_role, NULL);
	for (int i = 0; i < 15; i++)
		crew_meet(&crew);
	crew_join(&crew);
}

/* A sender without a slot that sleeps is woken when there is one. */
static void sleeper_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = 4};
	uint64_t begin_ns;

	member_open(member, &options);
	member_connect(member);
	if (member->id == 0) {
		for (int i = 0; i < 4; i++)
			CHECK(rmr_mesh_post_send(member->mesh, "x", 1, 1, 0) > 0);
		CHECK_EQ(rmr_mesh_post_send(member->mesh, "x", 1, 1, 0), RMR_AGAIN);
		member_meet(member);
		begin_ns = clock_now_ns();
		while (rmr_mesh_post_send(member->mesh, "x", 1, 1, 0) == RMR_AGAIN) {
			CHECK(rmr_mesh_wait(member->mesh, PATIENCE_MS) >= 0);
			CHECK(clock_now_ns() - begin_ns < (uint64_t)PATIENCE_MS * 900000u);
		}
		rmr_mesh_flush(member->mesh, 1);
		CHECK_EQ(member->seen[RMR_MESH_SEND], 4);
	} else {
		/* It takes the messages in, so that they are done there, but does not look at them
		 * for a while; by then the other is asleep. */
		member_meet(member);
		for (int i = 0; i < 100; i++) {
			CHECK_EQ(rmr_mesh_poll_sq(member->mesh, 0), 0);
			test_sleep_ms(1);
		}
		UNTIL(member, member->seen[RMR_MESH_RECV] == 5);
	}
	member_meet(member);
	member_close(member);
}

static void test_sleeper(void)
{
	struct crew crew;

	crew_start(&crew, 2, sleeper_role, NULL);
	crew_meet(&crew);
	crew_meet(&crew);
	crew_join(&crew);
}

/* Room that a poll before has found out of is no reason to sleep. */
static void early_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = 4};
	uint64_t begin_ns;

	member_open(member, &options);
	member_connect(member);
	if (member->id == 0) {
		for (int i = 0; i < 4; i++)
			CHECK(rmr_mesh_post_send(member->mesh, "x", 1, 1, 0) > 0);
		CHECK_EQ(rmr_mesh_post_send(member->mesh, "x", 1, 1, 0), RMR_AGAIN);
		member_meet(member); /* it is flushed, and the other takes it in */
		member_meet(member);
		for (int i = 0; i < 100; i++) {
			CHECK(rmr_mesh_poll(member->mesh) >= 0);
			test_sleep_ms(1);
		}
		CHECK_EQ(member->seen[RMR_MESH_SEND], 4);
		begin_ns = clock_now_ns();
		CHECK_EQ(rmr_mesh_wait(member->mesh, PATIENCE_MS), 0);
		CHECK(clock_now_ns() - begin_ns < (uint64_t)PATIENCE_MS * 500000u);
		CHECK(rmr_mesh_post_send(member->mesh, "x", 1, 1, 0) > 0);
	} else {
		member_meet(member);
		UNTIL(member, member->seen[RMR_MESH_RECV] == 4);
		member_meet(member);
	}
	member_meet(member);
	member_close(member);
}

static void test_early(void)
{
	struct crew crew;

	crew_start(&crew, 2, early_role, NULL);
	crew_meet(&crew);
	crew_meet(&crew);
	crew_meet(&crew);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * What is in a slot behind the message is nobody's business, however messages leave.
 */
static void look_behind(struct member *member, const struct rmr_mesh_event *event)
{
	const char *data = event->data;

	(void)member;
	if (event->opcode != RMR_MESH_RECV)
		return;
	for (size_t i = 0; i < 200; i++)
		CHECK_EQ(data[i] == 's', i < event->length);
}

static void secret_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = 16, .batch = 5, .message_size = 200};

	member->on_event = look_behind;
	member_open(member, &options);
	member_connect(member);
	for (uint32_t i = 0; i < 500 && member->id == 0; i++) {
		char *slot;

		while ((slot = rmr_mesh_get_send_buf(member->mesh, 1)) == NULL)
			member_wait(member, clock_deadline_ns(PATIENCE_MS), "a slot");
		memset(slot, 's', 200);
		/* A slot has the same length in each lap: what the peer has seen is no secret. */
		CHECK(rmr_mesh_post_send(member->mesh, slot, 10 + i % 16 * 10, 1, i) > 0);
	}
	if (member->id == 0)
		UNTIL(member, member->seen[RMR_MESH_SEND] == 500);
	else
		UNTIL(member, member->seen[RMR_MESH_RECV] == 500);
	member_meet(member);
	member_close(member);
}

static void test_secret(void)
{
	struct crew crew;

	crew_start(&crew, 2, secret_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * Callbacks that post
 */
#define ROUNDS 2000u

struct juggler {
	uint64_t owed[CREW_MAX]; /* answers that found no room */
	uint64_t answers, begun;
};

/* Each message with a count above 0 is passed on, to the sender and to another one, from within the
 * callback; a work that is done begins another one. */
static void juggle(struct member *member, const struct rmr_mesh_event *event)
{
	struct juggler *juggler = member->state;
	uint64_t before[4], hops;
	int next = event->peer, peer;

	CHECK_EQ(event->status, RMR_OK);
	if (event->opcode == RMR_MESH_SEND) {
		memcpy(before, event->data, sizeof(before));
		if (juggler->begun < ROUNDS &&
		    rmr_mesh_post_send(member->mesh, (char[32]){1}, 32, event->peer, 0) > 0)
			juggler->begun++;
		/* What we look at is as it was. */
		CHECK_MEM(event->data, before, sizeof(before));
		return;
	}
	CHECK_EQ(event->opcode, RMR_MESH_RECV);
	CHECK_EQ(event->length, 32);
	memcpy(before, event->data, sizeof(before));
	hops = before[0];
	for (int i = 0; hops > 0 && i < 2; i++) {
		peer = next;
		hops--;
		if (rmr_mesh_post_send(member->mesh, (char *)(uint64_t[4]){hops / 2}, 32, peer, 0) <
		    0)
			juggler->owed[peer]++;
		next = 3 - member->id - peer; /* the third of us */
		rmr_mesh_flush(member->mesh, peer);
	}
	CHECK_MEM(event->data, before, sizeof(before));
	juggler->answers++;
}

static void juggler_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = 8, .batch = 4, .message_size = 32};
	uint64_t quiet_ns;
	static struct juggler juggler;

	member->state = &juggler;
	member->on_event = juggle;
	member_open(member, &options);
	member_connect(member);
	for (int i = 0; i < 3; i++)
		if (i != member->id)
			member_send(member, i, (char *)(uint64_t[4]){9}, 32, 0);
	/* Until all rounds are begun, and nothing has happened for a while. */
	quiet_ns = clock_deadline_ns(200);
	while (juggler.begun < ROUNDS || !clock_passed(quiet_ns)) {
		int other = (member->id + 1) % 3;

		if (juggler.begun < ROUNDS &&
		    rmr_mesh_post_send(member->mesh, (char[32]){1}, 32, other, 0) > 0)
			juggler.begun++;
		rmr_mesh_flush_all(member->mesh);
		if (rmr_mesh_poll_sq_all(member->mesh) + rmr_mesh_poll_rq_all(member->mesh) > 0 ||
		    rmr_mesh_wait(member->mesh, 10) > 0)
			quiet_ns = clock_deadline_ns(200);
	}
	CHECK(juggler.answers > 2);
	member_meet(member);
	member_close(member);
}

static void test_callbacks_post(void)
{
	struct crew crew;

	crew_start(&crew, 3, juggler_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

/* Ping-pong by callbacks alone, asleep in between. */
static void pong(struct member *member, const struct rmr_mesh_event *event)
{
	uint64_t *rounds = member->state;

	if (event->opcode != RMR_MESH_RECV)
		return;
	++*rounds;
	CHECK(rmr_mesh_post_send(member->mesh, event->data, event->length, event->peer,
				 event->immediate + 1) > 0);
}

static void pong_role(struct member *member)
{
	static uint64_t rounds;
	uint64_t wanted = scaled(4000);

	member->state = &rounds;
	member->on_event = pong;
	member_open(member, NULL);
	member_connect(member);
	if (member->id == 0)
		member_send(member, 1, "ping", 4, 0);
	UNTIL(member, rounds >= wanted);
	rmr_mesh_flush_all(member->mesh);
	member_meet(member);
	member_close(member);
}

static void test_pong(void)
{
	struct crew crew;

	crew_start(&crew, 2, pong_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

const struct test traffic_tests[] = {
	{"traffic_batches", test_batches},
	{"traffic_ways_to_poll", test_polls},
	{"traffic_long", test_long},
	{"traffic_back_pressure", test_pressure},
	{"traffic_sleeper_without_a_slot", test_sleeper},
	{"traffic_room_found_early", test_early},
	{"traffic_nothing_but_messages", test_secret},
	{"traffic_callbacks_post", test_callbacks_post},
	{"traffic_ping_pong", test_pong},
	{NULL},
};
