/*
 * Clients that break the rules: each costs itself its connection, is told why, and costs nobody
 * else anything. And clients that die, or take nothing.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/shm/internal.h"
#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"

static struct subject subject;
static struct raw bystander;

static void begin(struct raw *raw, const char *by, const kv_server_options_t *options)
{
	kv_server_options_t one = options ? *options : (kv_server_options_t){0};

	/* One worker, so that the bystander is served by the same. */
	one.workers = 1;
	subject_start(&subject, &one);
	raw_enter(&bystander, by, subject_address(&subject, by), NULL);
	CHECK_EQ(raw_put(&bystander, "bystander", "is served", 9), KV_OK);
	raw_enter(raw, by, subject_address(&subject, by), NULL);
}

static void end(struct raw *raw)
{
	raw_close(raw);
	CHECK_EQ(raw_get(&bystander, "bystander", 100), KV_OK);
	CHECK_MEM(bystander.reply.value, "is served", 9);
	raw_close(&bystander);
	subject_await(&subject, "clients", 0);
	subject_stop(&subject);
}

/* Sends a message that ends the connection, for a reason with these words. */
static void check_ends(const char *by, const void *message, size_t length, const char *words)
{
	struct raw raw;
	char text[256] = "";

	begin(&raw, by, NULL);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	raw_send(&raw, message, length);
	CHECK_EQ(raw_receive_end(&raw), KV_PROTOCOL);
	CHECK(raw.reply.value_length < sizeof(text));
	memcpy(text, raw.reply.value, raw.reply.value_length);
	CHECK_CONTAINS(text, words);
	CHECK_EQ(subject_figure(&subject, "violations"), 1);
	end(&raw);
}

static void malformed(const char *by)
{
	struct kv_request get = {.op = KV_OP_GET, .id = 2, .key_length = 3, .value_length = 10};
	struct kv_request bad;
	uint8_t message[8192] = {0};

	memcpy(message, &get, sizeof(get));
	memcpy(message + sizeof(get), "key", 3);
	check_ends(by, message, sizeof(get) + 2, "another length");
	check_ends(by, message, sizeof(get) + 4, "another length");
	check_ends(by, message, 10, "shorter than its header");
	check_ends(by, message, 0, "shorter than its header");
	bad = get;
	bad.op = 99;
	memcpy(message, &bad, sizeof(bad));
	check_ends(by, message, sizeof(bad) + 3, "unknown request");
	bad = get;
	bad.key_length = 5000;
	memcpy(message, &bad, sizeof(bad));
	check_ends(by, message, sizeof(bad) + 5000, "impossible length");
	bad = get;
	bad.key_length = 0;
	memcpy(message, &bad, sizeof(bad));
	check_ends(by, message, sizeof(bad), "impossible length");
	bad = get;
	bad.touch_count = KV_MAX_TOUCHES + 1;
	memcpy(message, &bad, sizeof(bad));
	check_ends(by, message, sizeof(bad) + 3 + 33 * sizeof(struct kv_touch), "touches");
	bad = get;
	bad.map_epoch = 1;
	memcpy(message, &bad, sizeof(bad));
	check_ends(by, message, sizeof(bad) + 3, "not 0");
	bad = get;
	bad.op = KV_OP_PUT;
	bad.value_length = UINT64_MAX - 50;
	memcpy(message, &bad, sizeof(bad));
	check_ends(by, message, sizeof(bad) + 3, "longer than its message");
}

static void out_of_order(const char *by)
{
	static const uint32_t ids[] = {1, 0, 3, 1000, UINT32_MAX};

	for (size_t i = 0; i < TEST_COUNT(ids); i++) {
		struct kv_request ping = {.op = KV_OP_PING, .id = ids[i]};

		check_ends(by, &ping, sizeof(ping), "out of order");
	}
}

/* A put that is sent once more is not carried out once more. */
static void replayed(const char *by)
{
	struct raw raw;
	struct raw_request add = {
		.header = {.op = KV_OP_ADD, .key_length = 1, .id = 1, .argument = 5}, .key = "n"};

	begin(&raw, by, NULL);
	CHECK_EQ(raw_call(&raw, &add), KV_OK);
	raw_ask(&raw, &add);
	CHECK_EQ(raw_receive_end(&raw), KV_PROTOCOL);
	CHECK_EQ(raw_get(&bystander, "n", 10), KV_OK);
	CHECK_EQ(bystander.reply.value_length, 1);
	CHECK_EQ(bystander.reply.value[0], '5');
	end(&raw);
}

/* What follows a wrong request is not carried out. */
static void nothing_after_a_violation(const char *by)
{
	struct raw raw;
	struct kv_request bad = {.op = 99, .id = 1};

	begin(&raw, by, NULL);
	raw_send(&raw, &bad, sizeof(bad));
	raw.next_id = 2;
	raw_ask(&raw, &(struct raw_request){
			      .header = {.op = KV_OP_PUT, .key_length = 5, .value_length = 1},
			      .key = "after",
			      .value = "x"});
	raw.next_id = 1;
	raw_ask(&raw, &(struct raw_request){
			      .header = {.op = KV_OP_PUT, .key_length = 5, .value_length = 1},
			      .key = "after",
			      .value = "x"});
	CHECK_EQ(raw_receive_end(&raw), KV_PROTOCOL);
	CHECK_EQ(raw_get(&bystander, "after", 10), KV_NOT_FOUND);
	end(&raw);
}

static void oversized(const char *by)
{
	struct raw raw;
	struct rmr_conn_info info;

	begin(&raw, by, NULL);
	rmr_conn_get_info(raw.conn, &info);
	/* The fabric does not even send it. */
	CHECK_EQ(info.max_send, (KV_REQUEST_EXTRA + 8192 + 63) / 64 * 64);
	end(&raw);
}

/* A request in a landing buffer of one page, which says that it is at this place. */
static void check_landing(const char *by, const struct kv_request *request, uint32_t immediate,
			  const char *words)
{
	struct raw raw;
	struct rmr_descriptor descriptor;
	struct rmr_remote *remote = NULL;
	struct rmr_region *region;
	uint8_t bytes[4096] = {0};
	char text[256] = "";

	begin(&raw, by, NULL);
	CHECK_EQ(raw_simple(&raw, KV_OP_LANDING, NULL, 4096), KV_OK);
	memcpy(&descriptor, raw.reply.value, sizeof(descriptor));
	CHECK_OK(rmr_remote_open(raw.conn, &descriptor, &remote));
	CHECK_OK(rmr_region_open(raw.device, bytes, sizeof(bytes), 0, &region));
	if (immediate < 64)
		memcpy(bytes + (size_t)immediate * KV_PLACE, request, sizeof(*request));
	CHECK_EQ(rmr_post(raw.conn,
			  &(struct rmr_work){.op = RMR_OP_WRITE_IMM,
					     .flags = RMR_UNSIGNALED,
					     .source = bytes,
					     .length = sizeof(bytes),
					     .region = region,
					     .remote = remote,
					     .immediate = immediate},
			  1),
		 1);
	CHECK_EQ(raw_receive_end(&raw), KV_PROTOCOL);
	CHECK(raw.reply.value_length < sizeof(text));
	memcpy(text, raw.reply.value, raw.reply.value_length);
	CHECK_CONTAINS(text, words);
	rmr_region_close(region);
	end(&raw);
}

static void landing_bounds(const char *by)
{
	struct kv_request put = {.op = KV_OP_PUT, .id = 2, .key_length = 16};

	check_landing(by, &put, 64, "outside");
	check_landing(by, &put, 65, "outside");
	check_landing(by, &put, UINT32_MAX, "outside");
	/* It begins inside, and would end outside. */
	put.value_length = 1;
	check_landing(by, &put, 63, "outside");
	put.value_length = 4096 - sizeof(put) - 16 + 1;
	check_landing(by, &put, 0, "outside");
	put.value_length = UINT64_MAX - 63;
	check_landing(by, &put, 0, "outside");
	put.value_length = 0;
	put.touch_count = UINT16_MAX;
	check_landing(by, &put, 0, "outside");
	/* Inside, but no request, or not in its turn. */
	check_landing(by, &(struct kv_request){0}, 0, "unknown request");
	put.touch_count = 0;
	put.id = 3;
	check_landing(by, &put, 63, "out of order");
}

/* A read-only region of the server is given; a WRITE to it fails, and nobody notices. */
static void arena_is_not_written(const char *by)
{
	struct raw raw;
	struct rmr_remote *arena;
	struct rmr_region *region;
	uint8_t bytes[64] = {0};

	begin(&raw, by, NULL);
	CHECK_OK(rmr_remote_open(raw.conn, &raw.welcome.arena, &arena));
	CHECK_OK(rmr_region_open(raw.device, bytes, sizeof(bytes), 0, &region));
	CHECK_STATUS(raw_transfer(&raw, &(struct rmr_work){.op = RMR_OP_WRITE,
							   .source = bytes,
							   .length = sizeof(bytes),
							   .region = region,
							   .remote = arena}),
		     RMR_ACCESS);
	rmr_region_close(region);
	end(&raw);
}

/* More requests than the window, whose replies nobody takes: thrown out at last, and others are
 * served meanwhile. */
static void takes_no_replies(const char *by)
{
	kv_server_options_t options = {.client_timeout_ms = 500, .window = 64};
	struct raw raw;
	uint8_t value[8000] = {0};
	struct kv_request header = {.op = KV_OP_GET, .key_length = 3, .value_length = 8000};
	uint8_t message[sizeof(header) + 3];
	int posted = 1;

	begin(&raw, by, &options);
	CHECK_EQ(raw_put(&raw, "key", value, sizeof(value)), KV_OK);
	for (int i = 0; i < 3000 && posted == 1; i++) {
		header.id = raw.next_id++;
		memcpy(message, &header, sizeof(header));
		memcpy(message + sizeof(header), "key", 3);
		posted = rmr_post(raw.conn,
				  &(struct rmr_work){.op = RMR_OP_SEND,
						     .flags = RMR_INLINE | RMR_UNSIGNALED,
						     .source = message,
						     .length = sizeof(message)},
				  1);
		if (i % 100 == 0)
			CHECK_EQ(raw_get(&bystander, "bystander", 100), KV_OK);
	}
	subject_await(&subject, "clients", 1);
	end(&raw);
}

/* Landing buffers are scarce: who has one and says nothing for long loses it to who asks. */
static void landing_is_given_on(const char *by)
{
	kv_server_options_t options = {.client_timeout_ms = 1500 * (int)TEST_TIME_FACTOR,
				       .landing_total = 1 << 20};
	uint64_t deadline_ns = clock_deadline_ns(20000 * (int)TEST_TIME_FACTOR);
	struct raw silent, raw;

	begin(&silent, by, &options);
	CHECK_EQ(raw_simple(&silent, KV_OP_LANDING, NULL, 1 << 20), KV_OK);
	raw_enter(&raw, by, subject_address(&subject, by), NULL);
	CHECK_EQ(raw_simple(&raw, KV_OP_LANDING, NULL, 1 << 20), KV_BUSY);
	/* While it is in use it stays where it is. */
	for (int i = 0; i < 20; i++) {
		test_sleep_ms(50);
		CHECK_EQ(raw_simple(&silent, KV_OP_PING, NULL, 0), KV_OK);
		CHECK_EQ(raw_simple(&raw, KV_OP_LANDING, NULL, 1 << 20), KV_BUSY);
	}
	while (raw_simple(&raw, KV_OP_LANDING, NULL, 1 << 20) != KV_OK) {
		CHECK_EQ(raw.reply.header.status, KV_BUSY);
		CHECK(!clock_passed(deadline_ns));
		test_sleep_ms(50);
	}
	CHECK_EQ(raw_receive_end(&silent), KV_BUSY);
	raw_close(&raw);
	end(&silent);
}

static void test_landing_is_given_on(void)
{
	subject_for_each(landing_is_given_on);
}

#define SLOW_CLIENTS 80

/* Fills the server's replies: so many requests as are permitted, whose replies it does not take. */
static void ask_for_much(struct raw *raw)
{
	struct kv_request header = {.op = KV_OP_GET, .key_length = 3, .value_length = 8000};
	uint8_t message[sizeof(header) + 3];

	for (uint32_t i = 0; i < 2 * raw->welcome.window + 20; i++) {
		header.id = raw->next_id++;
		memcpy(message, &header, sizeof(header));
		memcpy(message + sizeof(header), "key", 3);
		if (rmr_post(raw->conn,
			     &(struct rmr_work){.op = RMR_OP_SEND,
						.flags = RMR_INLINE | RMR_UNSIGNALED,
						.source = message,
						.length = sizeof(message)},
			     1) != 1)
			return;
	}
}

/* So many slow clients that no buffer is left: the others are still told something, and what they
 * change is changed; and after a while the slow ones are gone. */
static void no_buffer_left(const char *by)
{
	kv_server_options_t options = {.client_timeout_ms = 2000};
	static struct raw slow[SLOW_CLIENTS];
	struct raw raw;
	uint8_t value[8000] = {0};

	begin(&raw, by, &options);
	CHECK_EQ(raw_put(&raw, "key", value, sizeof(value)), KV_OK);
	for (int i = 0; i < SLOW_CLIENTS; i++) {
		raw_enter(&slow[i], by, subject_address(&subject, by), NULL);
		ask_for_much(&slow[i]);
	}
	for (int i = 0; i < 20; i++) {
		int status = raw_get(&raw, "key", 8000);

		CHECK(status == KV_OK || status == KV_BUSY);
		CHECK_EQ(raw_put(&raw, "small", "x", 1), KV_OK);
		CHECK_EQ(raw_get(&raw, "small", 10), KV_OK);
		status = raw_simple(&raw, KV_OP_STATS, NULL, 0);
		CHECK(status == KV_OK || status == KV_BUSY);
		status = raw_simple(&raw, KV_OP_LANDING, NULL, 0);
		CHECK_EQ(status, KV_INVALID);
	}
	/* By tcp the clients' side takes some although nobody asked it to. */
	if (strcmp(by, "shm") == 0)
		CHECK(subject_figure(&subject, "replies_without_buffer") > 0);
	subject_await(&subject, "clients", 2);
	CHECK_EQ(raw_get(&raw, "key", 8000), KV_OK);
	for (int i = 0; i < SLOW_CLIENTS; i++)
		raw_close(&slow[i]);
	end(&raw);
}

static void test_no_buffer_left(void)
{
	subject_for_each(no_buffer_left);
}

/* ------------------------------------------------------------------------------------------
 * Death
 */

struct victim {
	const char *by;
	struct test_pipe pipe;
};

/* Holds as much as a client can, and is killed. */
static void be_victim(void *context)
{
	struct victim *victim = context;
	struct raw raw;

	test_await(&victim->pipe, TEST_CHILD);
	raw_enter(&raw, victim->by, subject_address(&subject, victim->by), NULL);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_LANDING, NULL, 1 << 20), KV_OK);
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = {.op = KV_OP_PUT_BEGIN,
								 .key_length = 5,
								 .value_length = 100000},
						      .key = "draft"}),
		 KV_OK);
	test_signal(&victim->pipe, TEST_CHILD);
	pause();
}

/* The victim is forked before the server is there, as threads do not survive a fork: both have to
 * agree on a port beforehand. */
static pid_t fork_victim(struct victim *victim, void (*run)(void *),
			 const kv_server_options_t *options)
{
	pid_t pid;

	test_pipe_open(&victim->pipe);
	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	snprintf(subject.tcp, sizeof(subject.tcp), "127.0.0.1:%d", options->port);
	pid = test_spawn(run, victim);
	subject_start(&subject, options);
	test_signal(&victim->pipe, TEST_PARENT);
	return pid;
}

static void death(const char *by)
{
	struct victim victim = {.by = by};
	kv_server_options_t options = {.port = 20000 + getpid() % 10000};
	pid_t pid = fork_victim(&victim, be_victim, &options);

	test_await(&victim.pipe, TEST_PARENT);
	CHECK_EQ(subject_figure(&subject, "clients"), 1);
	CHECK_EQ(subject_figure(&subject, "landing_bytes"), 1 << 20);
	CHECK_EQ(subject_figure(&subject, "items"), 2);
	CHECK_EQ(subject_figure(&subject, "pins"), 2);
	CHECK_EQ(subject_figure(&subject, "drafts"), 1);
	test_kill(pid);
	subject_await(&subject, "clients", 0);
	CHECK_EQ(subject_figure(&subject, "pins"), 0);
	CHECK_EQ(subject_figure(&subject, "drafts"), 0);
	CHECK_EQ(subject_figure(&subject, "landing_bytes"), 0);
	CHECK_EQ(subject_figure(&subject, "items"), 1);
	subject_stop(&subject);
	test_pipe_close(&victim.pipe);
}

#define LONG_VALUE ((size_t)48 << 20)

/* Lets the server read a value, and stops in the middle. */
static void be_read_and_stop(void *context)
{
	struct victim *victim = context;
	struct raw raw;
	struct rmr_descriptor descriptor;
	struct rmr_region *region;
	uint8_t *value = calloc(1, LONG_VALUE);

	CHECK(value);
	test_await(&victim->pipe, TEST_CHILD);
	raw_enter(&raw, "tcp", subject_address(&subject, "tcp"), NULL);
	CHECK_OK(rmr_region_open(raw.device, value, LONG_VALUE, RMR_READ, &region));
	CHECK_OK(rmr_region_export(region, raw.conn, &descriptor));
	raw_ask(&raw, &(struct raw_request){.header = {.op = KV_OP_PUT_PULL,
						       .key_length = 4,
						       .value_length = sizeof(descriptor),
						       .place = LONG_VALUE},
					    .key = "long",
					    .value = &descriptor});
	raise(SIGSTOP);
}

/* A client whose memory cannot be read any more is thrown out, and what it began is given back. */
static void test_stops_while_it_is_read(void)
{
	kv_server_options_t options = {.port = 20000 + getpid() % 10000,
				       .client_timeout_ms = 500,
				       .memory = 4 * LONG_VALUE};
	struct victim victim = {.by = "tcp"};
	pid_t pid = fork_victim(&victim, be_read_and_stop, &options);

	subject_await(&subject, "drafts", 1);
	subject_await(&subject, "drafts", 0);
	subject_await(&subject, "clients", 0);
	CHECK_EQ(subject_figure(&subject, "keys"), 0);
	CHECK_EQ(subject_figure(&subject, "items"), 0);
	test_kill(pid);
	subject_stop(&subject);
	test_pipe_close(&victim.pipe);
}

/* ------------------------------------------------------------------------------------------
 * Chance
 */

/* A request that is mostly right, and in its turn; sometimes bytes of it are changed. */
static size_t make_request(struct raw *raw, struct test_rng *rng, uint8_t *message)
{
	struct kv_request header = {
		.op = (uint8_t)(KV_OP_GET + test_rng_below(rng, KV_OP_END_OF_REQUESTS - KV_OP_GET)),
		.flags = (uint8_t)test_rng_below(rng, 32),
		.id = raw->next_id++,
		.version = test_rng_below(rng, 4),
		.argument = test_rng_below(rng, 2) ? test_rng_below(rng, 300) : test_rng_next(rng),
		.place = test_rng_below(rng, 2) ? test_rng_below(rng, 300) : test_rng_next(rng),
	};
	uint8_t bytes[1000] = {0};
	size_t length;

	header.key_length = kv_op_has_key(header.op) ? 1 : 0;
	if (header.op == KV_OP_SCAN)
		header.key_length = (uint16_t)test_rng_below(rng, 2);
	header.value_length = test_rng_below(rng, sizeof(bytes));
	header.touch_count = (uint16_t)test_rng_below(rng, 3);
	bytes[0] = (uint8_t)('a' + test_rng_below(rng, 4));
	length = kv_request_size(&header);
	kv_encode_request(message, &header, bytes, bytes, (const struct kv_touch *)bytes);
	for (uint64_t i = test_rng_below(rng, 8) ? 0 : 3; i; i--)
		message[test_rng_below(rng, length)] ^= (uint8_t)(1 << test_rng_below(rng, 8));
	return length;
}

static void by_chance(const char *by)
{
	struct test_rng rng;
	struct raw raw;
	uint8_t message[4096];

	test_rng_init(&rng, 5);
	begin(&raw, by, NULL);
	for (int i = 0; i < 3000; i++) {
		raw_send(&raw, message, make_request(&raw, &rng, message));
		if (raw_receive_reply(&raw) && raw.reply.header.op != KV_OP_GOODBYE)
			continue;
		CHECK(raw.is_gone || raw.reply.header.status == KV_PROTOCOL);
		raw_close(&raw);
		raw_enter(&raw, by, subject_address(&subject, by), NULL);
		CHECK_EQ(raw_simple(&bystander, KV_OP_PING, NULL, 0), KV_OK);
	}
	CHECK_EQ(raw_put(&bystander, "bystander", "is served", 9), KV_OK);
	end(&raw);
}

static void test_by_chance(void)
{
	subject_for_each(by_chance);
}

static void test_malformed(void)
{
	subject_for_each(malformed);
}

static void test_out_of_order(void)
{
	subject_for_each(out_of_order);
}

static void test_replayed(void)
{
	subject_for_each(replayed);
}

static void test_nothing_after_a_violation(void)
{
	subject_for_each(nothing_after_a_violation);
}

static void test_oversized(void)
{
	subject_for_each(oversized);
}

static void test_landing_bounds(void)
{
	subject_for_each(landing_bounds);
}

static void test_arena_is_not_written(void)
{
	subject_for_each(arena_is_not_written);
}

static void test_takes_no_replies(void)
{
	subject_for_each(takes_no_replies);
}

static void test_death(void)
{
	subject_for_each(death);
}

/* ------------------------------------------------------------------------------------------
 * Memory that clients grant, by shm
 */

struct granted {
	struct rmr_arena *arena;
	struct rmr_region *region;
	struct rmr_descriptor descriptor;
};

static enum rmr_status grant(struct raw *raw, size_t size, struct granted *granted)
{
	CHECK_OK(rmr_arena_open(size, RMR_ARENA_PEERS_WRITE, &granted->arena));
	CHECK_OK(rmr_region_open(raw->device, rmr_arena_base(granted->arena), size, RMR_WRITE,
				 &granted->region));
	return rmr_region_export(granted->region, raw->conn, &granted->descriptor);
}

static void drop(struct granted *granted)
{
	rmr_region_close(granted->region);
	rmr_arena_close(granted->arena);
}

static int offer_buffer(struct raw *raw, const struct granted *granted)
{
	return raw_call(
		raw, &(struct raw_request){.header = {.op = KV_OP_BUFFER,
						      .value_length = sizeof(granted->descriptor)},
					   .value = &granted->descriptor});
}

/* The bystander is served by the worker that would have to map it all. */
static void test_grants_before_the_proof(void)
{
	struct raw raw, eager;
	struct granted granted[8];
	enum rmr_status status = RMR_OK;
	int count = 0;

	begin(&raw, "shm", NULL);
	raw_connect(&eager, "shm", subject_address(&subject, "shm"));
	while (count < 8 && status == RMR_OK)
		status = grant(&eager, 1 << 20, &granted[count++]);
	CHECK_EQ(raw_receive_end(&eager), 1); /* without a word */
	CHECK_EQ(raw_get(&bystander, "bystander", 100), KV_OK);
	raw_close(&(struct raw){.conn = eager.conn});
	while (count > 0)
		drop(&granted[--count]);
	rmr_queue_close(eager.queue);
	rmr_device_close(eager.device);
	end(&raw);
}

static void test_grants_beyond_the_limits(void)
{
	struct granted terabyte, buffer;
	struct raw raw;
	char text[512] = "";

	begin(&raw, "shm", NULL);
	CHECK_OK(grant(&raw, (size_t)1 << 40, &terabyte));
	CHECK_EQ(offer_buffer(&raw, &terabyte), KV_BUSY);
	CHECK(raw.reply.value_length < sizeof(text));
	memcpy(text, raw.reply.value, raw.reply.value_length);
	CHECK_CONTAINS(text, "a connection may grant");
	/* Nothing is lost by it. */
	CHECK_OK(grant(&raw, 1 << 20, &buffer));
	CHECK_EQ(offer_buffer(&raw, &buffer), KV_OK);
	raw_close(&(struct raw){.conn = raw.conn});
	raw.conn = NULL;
	drop(&terabyte);
	drop(&buffer);
	end(&raw);
}

/* Clients that go while they pretend to be in the server's memory: their worker does not wait for
 * them. Shown by one try in which the bystander is served before any of them is closed. */
static void test_gone_while_inside(void)
{
	enum { CLIENTS = 10 };
	bool seen = false;
	struct raw raw;

	begin(&raw, "shm", NULL);
	for (int i = 0; i < 20 && !seen; i++) {
		struct raw hostile[CLIENTS];

		for (int k = 0; k < CLIENTS; k++)
			raw_enter(&hostile[k], "shm", subject_address(&subject, "shm"), NULL);
		for (int k = 0; k < CLIENTS; k++) {
			atomic_store(&((struct shm_conn *)hostile[k].conn)->mine->active, 1);
			raw_close(&hostile[k]);
		}
		for (int k = 0; k < 100; k++)
			CHECK_EQ(raw_get(&bystander, "bystander", 100), KV_OK);
		seen = subject_figure(&subject, "clients") == CLIENTS + 2;
		subject_await(&subject, "clients", 2);
	}
	CHECK(seen);
	end(&raw);
}

/* Pieces of all the bytes together, which do not make up the value: what is missing would be
 * whatever the memory held before. */
static void pieces_that_overlap(const char *by)
{
	static const struct {
		uint64_t place[3];
		int right; /* that are accepted */
	} tries[] = {
		{{0, 0, 8}, 1},	 /* twice the same */
		{{0, 4, 12}, 1}, /* overlapping */
		{{4, 0, 12}, 0}, /* not from the beginning */
		{{0, 16, 8}, 1}, /* the last one too early */
		{{16, 8, 0}, 0}, /* backwards */
		{{0, 8, 9}, 2},	 /* the last one beyond the end */
		{{0, 8, 8}, 2},	 /* the last one missing */
		{{0, 8, 16}, 3},
	};
	struct raw raw;

	begin(&raw, by, NULL);
	for (size_t i = 0; i < TEST_COUNT(tries); i++) {
		struct kv_request first = {
			.op = KV_OP_PUT_BEGIN, .key_length = 1, .value_length = 24};
		uint32_t id = raw.next_id;

		CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = first, .key = "d"}), KV_OK);
		for (int j = 0; j < 3; j++) {
			struct kv_request piece = {.op = KV_OP_PUT_PIECE,
						   .flags = j == 2 ? KV_FINAL : 0,
						   .value_length = 8,
						   .argument = id,
						   .place = tries[i].place[j]};

			CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = piece,
								      .value = "12345678"}),
				 j < tries[i].right ? KV_OK : KV_INVALID);
		}
		CHECK_EQ(subject_figure(&subject, "drafts"), 0);
		CHECK_EQ(raw_get(&raw, "d", 100), tries[i].right == 3 ? KV_OK : KV_NOT_FOUND);
	}
	CHECK_MEM(raw.reply.value, "123456781234567812345678", 24);
	end(&raw);
}

static void test_pieces_that_overlap(void)
{
	subject_for_each(pieces_that_overlap);
}

static const struct test tests[] = {
	{"malformed", test_malformed},
	{"out_of_order", test_out_of_order},
	{"replayed", test_replayed},
	{"nothing_after_a_violation", test_nothing_after_a_violation},
	{"oversized", test_oversized},
	{"pieces_that_overlap", test_pieces_that_overlap},
	{"landing_bounds", test_landing_bounds},
	{"arena_is_not_written", test_arena_is_not_written},
	{"takes_no_replies", test_takes_no_replies},
	{"landing_is_given_on", test_landing_is_given_on},
	{"no_buffer_left", test_no_buffer_left, TEST_SLOW},
	{"stops_while_it_is_read", test_stops_while_it_is_read},
	{"grants_before_the_proof", test_grants_before_the_proof},
	{"grants_beyond_the_limits", test_grants_beyond_the_limits},
	{"gone_while_inside", test_gone_while_inside},
	{"death", test_death},
	{"by_chance", test_by_chance},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_hostile", tests, TEST_COUNT(tests));
}
