/*
 * Strangers who speak RDMA CM, but not as we do: callers and listeners that say something else,
 * nothing, or go away in the middle. The listener turns them away and tells them why; whoever
 * calls them learns it in time. Nobody else notices, and nothing is left behind.
 *
 * Runs in the lab's guest (scripts/lab/suite.py).
 *
 * What these tests would catch: a greeting that is believed before it is checked, a refusal without
 * words, a wait without a deadline, an id or a queue pair that an error path forgets.
 */
#include <remora/fabric.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "stranger.h"
#include "victim.h"

#define PATIENCE_MS	(8000 * (int)TEST_TIME_FACTOR)
#define REASON_CONSUMER 28 /* IB_CM_REJ_CONSUMER_DEFINED: somebody said no */

/* ------------------------------------------------------------------------------------------
 * Callers
 */

/* What is wrong with a greeting, and what the listener says to it. */
struct defect {
	const char *name;
	void (*spoil)(struct greeting *greeting);
	size_t length; /* of what is sent; RDMA CM puts zeros behind it */
	const char *reason;
};

static void spoil_all(struct greeting *greeting)
{
	struct test_rng rng;

	test_rng_init(&rng, 1);
	test_rng_fill(&rng, greeting, sizeof(*greeting));
	greeting->magic ^= greeting->magic == GREETING_MAGIC;
}

static void spoil_nothing(struct greeting *greeting)
{
	(void)greeting;
}

static void spoil_magic(struct greeting *greeting)
{
	greeting->magic ^= 0x20;
}

static void spoil_version(struct greeting *greeting)
{
	greeting->version++;
}

static void spoil_version_old(struct greeting *greeting)
{
	greeting->version = 0;
}

static void make_answer(struct greeting *greeting)
{
	greeting->kind = GREETING_ACCEPT;
}

static void make_hello(struct greeting *greeting)
{
	greeting->kind = GREETING_HELLO;
}

static void make_refusal(struct greeting *greeting)
{
	greeting->kind = GREETING_REJECT;
}

static void spoil_kind(struct greeting *greeting)
{
	greeting->kind = 0;
}

static void spoil_private_length(struct greeting *greeting)
{
	greeting->private_length = RMR_PRIVATE_MAX + 1;
}

static void spoil_zero1(struct greeting *greeting)
{
	greeting->zero1 = 1;
}

static void spoil_zero2(struct greeting *greeting)
{
	greeting->zero2 = 0x80000000;
}

static void spoil_recv_size(struct greeting *greeting)
{
	greeting->recv_size = 0;
}

static const struct defect defects[] = {
	{"garbage", spoil_all, GREETING_SIZE, "no greeting of ours"},
	{"a little garbage", spoil_all, 1, "no greeting of ours"},
	{"nothing", spoil_nothing, 0, "no greeting of ours"},
	{"cut in the magic", spoil_nothing, 3, "no greeting of ours"},
	{"cut before the version", spoil_nothing, 4, "another version of the protocol"},
	{"cut before the kind", spoil_nothing, 5, "unknown kind"},
	{"cut before the size", spoil_nothing, 8, "takes no messages"},
	{"another magic", spoil_magic, GREETING_SIZE, "no greeting of ours"},
	{"another version", spoil_version, GREETING_SIZE, "another version of the protocol"},
	{"version 0", spoil_version_old, GREETING_SIZE, "another version of the protocol"},
	{"an answer", make_answer, GREETING_SIZE, "an answer instead of a greeting"},
	{"a refusal", make_refusal, GREETING_SIZE, "unknown kind"},
	{"no kind", spoil_kind, GREETING_SIZE, "unknown kind"},
	{"too much private data", spoil_private_length, GREETING_SIZE, "more private data"},
	{"a bit in the first gap", spoil_zero1, GREETING_SIZE, "bits that mean nothing"},
	{"a bit in the second gap", spoil_zero2, GREETING_SIZE, "bits that mean nothing"},
	{"no room for messages", spoil_recv_size, GREETING_SIZE, "takes no messages"},
};

static void spoiled(const struct defect *defect, enum greeting_kind kind,
		    uint8_t bytes[GREETING_SIZE])
{
	struct greeting greeting = stranger_greeting(kind);

	defect->spoil(&greeting);
	memcpy(bytes, &greeting, GREETING_SIZE);
}

static void call_with(struct stranger *stranger, const char *address, const struct defect *defect)
{
	uint8_t bytes[GREETING_SIZE];

	spoiled(defect, GREETING_HELLO, bytes);
	stranger_resolve(stranger, address);
	stranger_call(stranger, bytes, defect->length);
}

/* A refusal of ours comes back, with this reason. */
static void expect_refusal(struct stranger *stranger, const struct defect *defect)
{
	struct stranger_event event = stranger_expect(stranger, RDMA_CM_EVENT_REJECTED);
	char text[GREETING_TEXT_MAX + 1];

	CHECK_EQ(event.status, REASON_CONSUMER);
	if (!refusal_decode(event.data, event.length, text))
		TEST_FAIL("%s: turned away without words", defect->name);
	if (!strstr(text, defect->reason))
		TEST_FAIL("%s: turned away because: %s", defect->name, text);
}

static void test_callers(void)
{
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	for (size_t i = 0; i < TEST_COUNT(defects); i++) {
		stranger_open(&stranger);
		call_with(&stranger, victim.board->address, &defects[i]);
		expect_refusal(&stranger, &defects[i]);
		victim_check(&victim);
		stranger_close(&stranger);
	}
	CHECK_EQ(atomic_load(&victim.board->accepted), 1);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	victim_stop(&victim);
}

/* What is cut behind the size cannot be told from a greeting with zeros there, for RDMA CM has no
 * lengths. It is taken, and that does no harm. */
static void test_cut_late(void)
{
	const struct defect defect = {"cut late", spoil_nothing, 12, ""};
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	stranger_open(&stranger);
	call_with(&stranger, victim.board->address, &defect);
	stranger_expect(&stranger, RDMA_CM_EVENT_CONNECT_RESPONSE);
	victim_await(&victim.board->accepted, 2);
	victim_check(&victim);
	stranger_close(&stranger);
	victim_expect_lost(&victim, 1, RMR_DISCONNECTED);
	victim_stop(&victim);
}

/* Many at once, and honest ones among them. */
static void test_crowd(void)
{
	struct stranger crowd[24];
	struct victim victim;

	victim_start(&victim);
	for (size_t i = 0; i < TEST_COUNT(crowd); i++) {
		stranger_open(&crowd[i]);
		call_with(&crowd[i], victim.board->address, &defects[i % TEST_COUNT(defects)]);
		if (i % 4 == 0)
			victim_check_caller(&victim);
	}
	victim_check(&victim);
	for (size_t i = 0; i < TEST_COUNT(crowd); i++) {
		expect_refusal(&crowd[i], &defects[i % TEST_COUNT(defects)]);
		stranger_close(&crowd[i]);
	}
	victim_check(&victim);
	victim_stop(&victim);
}

/* He is accepted, but never says that he is ready. */
static void test_never_ready(void)
{
	struct stranger stranger;
	struct victim victim;
	uint64_t before_ns, after_ms;

	victim_start(&victim);
	stranger_open(&stranger);
	stranger_meet_halfway(&stranger, victim.board->address);
	before_ns = clock_now_ns();
	victim_check(&victim);
	victim_expect_lost(&victim, 1, RMR_TIMEOUT);
	after_ms = (clock_now_ns() - before_ns) / 1000000;
	if (after_ms > VICTIM_DEAD_AFTER * 2)
		TEST_FAIL("it took %d ms", (int)after_ms);
	victim_check(&victim);
	stranger_close(&stranger);
	victim_stop(&victim);
}

/* ------------------------------------------------------------------------------------------
 * Callers that go away before they are accepted
 */

struct leaver {
	struct test_pipe pipe;
	char address[64];
};

static void leave_again_and_again(void *arg)
{
	struct leaver *leaver = arg;
	struct greeting hello = stranger_greeting(GREETING_HELLO);
	uint8_t bytes[GREETING_SIZE];

	test_recv(&leaver->pipe, TEST_CHILD, leaver->address, sizeof(leaver->address));
	greeting_encode(bytes, &hello);
	for (;;) {
		struct stranger stranger;
		bool go_on;

		test_recv(&leaver->pipe, TEST_CHILD, &go_on, sizeof(go_on));
		if (!go_on)
			return;
		stranger_open(&stranger);
		stranger_resolve(&stranger, leaver->address);
		stranger_call(&stranger, bytes, sizeof(bytes));
		test_signal(&leaver->pipe, TEST_CHILD);
		test_await(&leaver->pipe, TEST_CHILD);
		stranger_close(&stranger);
		test_signal(&leaver->pipe, TEST_CHILD);
	}
}

struct host {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_listener *listener;
};

static void host_open(struct host *host)
{
	CHECK_OK(rmr_device_open("verbs:rxe0", NULL, &host->device));
	CHECK_OK(rmr_queue_open(host->device, NULL, &host->queue));
	CHECK_OK(rmr_listener_open(host->device, STRANGER_HOST ":0", NULL, &host->listener));
}

static void host_close(struct host *host)
{
	rmr_listener_close(host->listener);
	rmr_queue_close(host->queue);
	rmr_device_close(host->device);
}

/* Accepting one who has gone fails, or is soon followed by his end. */
static void accept_gone(struct host *host, struct rmr_request *request)
{
	struct rmr_completion c;
	struct rmr_conn *conn;
	enum rmr_status status = rmr_accept(request, host->queue, NULL, &conn);

	if (status != RMR_OK) {
		CHECK_EQ(status, RMR_DISCONNECTED);
		CHECK_CONTAINS(rmr_error_message(), "gone");
		return;
	}
	CHECK_EQ(rmr_wait(host->queue, &c, 1, PATIENCE_MS), 1);
	CHECK_EQ(c.op, RMR_OP_DISCONNECT);
	CHECK(c.conn == conn);
	rmr_conn_close(conn);
}

/* One round; he leaves before we know of him, or while his request waits. */
static void let_leave(struct host *host, struct leaver *leaver, bool early)
{
	struct rmr_request *request = NULL;
	bool go_on = true;

	test_send(&leaver->pipe, TEST_PARENT, &go_on, sizeof(go_on));
	test_await(&leaver->pipe, TEST_PARENT);
	if (!early)
		CHECK_OK(rmr_listener_next(host->listener, PATIENCE_MS, &request));
	test_signal(&leaver->pipe, TEST_PARENT);
	test_await(&leaver->pipe, TEST_PARENT);
	test_sleep_ms(10); /* his goodbye is under way */
	if (early && rmr_listener_next(host->listener, 100, &request) != RMR_OK)
		return;
	accept_gone(host, request);
}

static void test_leavers(void)
{
	struct leaver leaver;
	struct host host;
	bool go_on = false;
	int fds = 0;
	pid_t pid;

	test_pipe_open(&leaver.pipe);
	pid = test_spawn(leave_again_and_again, &leaver);
	host_open(&host);
	snprintf(leaver.address, sizeof(leaver.address), "%s", rmr_listener_address(host.listener));
	test_send(&leaver.pipe, TEST_PARENT, leaver.address, sizeof(leaver.address));
	for (int i = 0; i < 20; i++) {
		let_leave(&host, &leaver, i % 2 == 0);
		if (i == 3) /* librdmacm opens the adapter when it first needs it */
			fds = test_open_fds();
	}
	CHECK_EQ(test_open_fds(), fds);
	test_send(&leaver.pipe, TEST_PARENT, &go_on, sizeof(go_on));
	test_wait(pid);
	host_close(&host);
}

/* ------------------------------------------------------------------------------------------
 * Listeners
 */

enum manner {
	ANSWERS,	/* accepts, with a spoiled answer */
	IS_SILENT,	/* until the caller has given up */
	REJECTS,	/* without a word */
	REJECTS_LOUDLY, /* with garbage */
	SWEARS,		/* with a refusal of ours that would do something to a terminal */
	HANGS_UP,	/* lets the request fall */
	LEAVES,		/* accepts well, and goes */
};

struct script {
	enum manner manner;
	struct defect defect; /* ANSWERS: of an ACCEPT */
	enum rmr_status status;
	const char *text; /* in the message */
};

static const struct script scripts[] = {
	{ANSWERS, {"garbage", spoil_all, 56}, RMR_PROTOCOL, "no greeting of ours"},
	{ANSWERS, {"much garbage", spoil_all, 196}, RMR_PROTOCOL, "something else listens there"},
	{ANSWERS, {"nothing", spoil_nothing, 0}, RMR_PROTOCOL, "something else listens there"},
	{ANSWERS, {"a cut one", spoil_nothing, 8}, RMR_PROTOCOL, "something else listens there"},
	{ANSWERS, {"another version", spoil_version, 56}, RMR_PROTOCOL, "another version"},
	{ANSWERS, {"a greeting", make_hello, 56}, RMR_PROTOCOL, "a greeting instead of an answer"},
	{ANSWERS, {"a refusal", make_refusal, 56}, RMR_PROTOCOL, "unknown kind"},
	{ANSWERS, {"no room", spoil_recv_size, 56}, RMR_PROTOCOL, "takes no messages"},
	{ANSWERS, {"a long one", spoil_private_length, 56}, RMR_PROTOCOL, "more private data"},
	{IS_SILENT, {0}, RMR_TIMEOUT, "no answer"},
	{REJECTS, {0}, RMR_REFUSED, "the listener said no"},
	{REJECTS_LOUDLY, {0}, RMR_REFUSED, "the listener said no"},
	{SWEARS, {0}, RMR_REFUSED, "the listener said no: ?[2Jhello?"},
	{HANGS_UP, {0}, RMR_REFUSED, ""},
	{LEAVES, {0}, RMR_OK, ""},
};

/* Bytes of an answer, or of a refusal; whatever is behind them is random. */
static size_t fill_answer(const struct script *script, uint8_t bytes[256])
{
	static const struct defect good = {"good", spoil_nothing, GREETING_SIZE, ""};
	const struct defect *defect = script->manner == ANSWERS ? &script->defect : &good;
	struct test_rng rng;

	test_rng_init(&rng, 2);
	test_rng_fill(&rng, bytes, 256);
	if (script->manner == REJECTS_LOUDLY)
		return 148; /* all that RDMA CM has room for */
	if (script->manner == SWEARS)
		return refusal_encode(bytes, "\033[2Jhello\n");
	spoiled(defect, GREETING_ACCEPT, bytes);
	return defect->length;
}

static void behave(struct stranger *stranger, const struct script *script, struct test_pipe *pipe)
{
	uint8_t bytes[256];
	size_t length = fill_answer(script, bytes);

	switch (script->manner) {
	case LEAVES:
		stranger_answer(stranger, bytes, length);
		stranger_expect(stranger, RDMA_CM_EVENT_ESTABLISHED);
		CHECK_EQ(rdma_disconnect(stranger->guest), 0);
		break;
	case ANSWERS:
		stranger_answer(stranger, bytes, length);
		break;
	case REJECTS:
		CHECK_EQ(rdma_reject(stranger->guest, NULL, 0), 0);
		break;
	case REJECTS_LOUDLY:
	case SWEARS:
		CHECK_EQ(rdma_reject(stranger->guest, bytes, (uint8_t)length), 0);
		break;
	case HANGS_UP:
		CHECK_EQ(rdma_destroy_id(stranger->guest), 0);
		stranger->guest = NULL;
		break;
	case IS_SILENT:
		break;
	}
	test_await(pipe, TEST_CHILD); /* the caller has seen what he should */
}

static void listen_for_all(void *arg)
{
	struct test_pipe *pipe = arg;

	for (size_t i = 0; i < TEST_COUNT(scripts); i++) {
		struct stranger stranger;
		char address[64] = "";

		stranger_open(&stranger);
		stranger_listen(&stranger, address);
		test_send(pipe, TEST_CHILD, address, sizeof(address));
		stranger_take(&stranger);
		behave(&stranger, &scripts[i], pipe);
		stranger_close(&stranger);
	}
}

static void expect_end(struct rmr_queue *queue, struct rmr_conn *conn)
{
	struct rmr_completion c;

	CHECK_EQ(rmr_wait(queue, &c, 1, PATIENCE_MS), 1);
	CHECK_EQ(c.op, RMR_OP_DISCONNECT);
	CHECK_EQ(c.status, RMR_DISCONNECTED);
	rmr_conn_close(conn);
}

static void check_script(struct rmr_queue *queue, const char *address, const struct script *script)
{
	int timeout_ms = script->manner == IS_SILENT ? 700 : PATIENCE_MS;
	uint64_t deadline_ns = clock_deadline_ns(timeout_ms + 500 * (int)TEST_TIME_FACTOR);
	struct rmr_conn *conn;
	enum rmr_status status = rmr_connect(queue, address, timeout_ms, NULL, &conn);
	size_t number = (size_t)(script - scripts);

	if (clock_passed(deadline_ns))
		TEST_FAIL("script %zu: it took too long", number);
	if (status != script->status)
		TEST_FAIL("script %zu: %s: %s", number, rmr_status_text(status),
			  rmr_error_message());
	if (status != RMR_OK)
		CHECK_CONTAINS(rmr_error_message(), script->text);
	else
		expect_end(queue, conn);
}

static void test_listeners(void)
{
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct test_pipe pipe;
	int fds = 0;
	pid_t pid;

	test_pipe_open(&pipe);
	pid = test_spawn(listen_for_all, &pipe);
	CHECK_OK(rmr_device_open("verbs:rxe0", NULL, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	for (size_t i = 0; i < TEST_COUNT(scripts); i++) {
		char address[64];

		test_recv(&pipe, TEST_PARENT, address, sizeof(address));
		check_script(queue, address, &scripts[i]);
		test_signal(&pipe, TEST_PARENT);
		if (i == 0)
			fds = test_open_fds();
	}
	CHECK_EQ(test_open_fds(), fds);
	test_wait(pid);
	rmr_queue_close(queue);
	rmr_device_close(device);
}

/* ------------------------------------------------------------------------------------------
 * Listeners that die, or lie about their queue pair
 */

static void die_when_called(void *arg)
{
	struct test_pipe *pipe = arg;
	struct stranger stranger;
	char address[64] = "";

	stranger_open(&stranger);
	stranger_listen(&stranger, address);
	test_send(pipe, TEST_CHILD, address, sizeof(address));
	stranger_take(&stranger);
	kill(getpid(), SIGKILL);
}

static void test_listener_dies(void)
{
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct test_pipe pipe;
	char address[64];
	pid_t pid;

	test_pipe_open(&pipe);
	pid = test_spawn(die_when_called, &pipe);
	CHECK_OK(rmr_device_open("verbs:rxe0", NULL, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	test_recv(&pipe, TEST_PARENT, address, sizeof(address));
	/* Its kernel says it for the dead one. */
	CHECK_STATUS(rmr_connect(queue, address, PATIENCE_MS, NULL, &conn), RMR_REFUSED);
	test_kill(pid);
	CHECK_STATUS(rmr_connect(queue, address, PATIENCE_MS, NULL, &conn), RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "nobody listens there");
	rmr_queue_close(queue);
	rmr_device_close(device);
}

static void answer_without_qp(void *arg)
{
	struct test_pipe *pipe = arg;
	struct greeting greeting = stranger_greeting(GREETING_ACCEPT);
	struct stranger stranger;
	char address[64] = "";

	stranger_open(&stranger);
	stranger_listen(&stranger, address);
	test_send(pipe, TEST_CHILD, address, sizeof(address));
	stranger_take(&stranger);
	stranger_answer(&stranger, &greeting, sizeof(greeting));
	stranger_destroy_qp(&stranger);
	test_await(pipe, TEST_CHILD);
	stranger_close(&stranger);
}

/* He is there, but his queue pair is not: what is posted fails, in bounded time. */
static void test_listener_without_qp(void)
{
	struct rmr_conn_options options = {.dead_after_ms = 2000};
	struct rmr_work work = {
		.op = RMR_OP_SEND, .flags = RMR_INLINE, .source = "hello", .length = 5};
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_completion c;
	struct rmr_conn *conn;
	struct test_pipe pipe;
	char address[64];
	pid_t pid;

	test_pipe_open(&pipe);
	pid = test_spawn(answer_without_qp, &pipe);
	CHECK_OK(rmr_device_open("verbs:rxe0", NULL, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	test_recv(&pipe, TEST_PARENT, address, sizeof(address));
	CHECK_OK(rmr_connect(queue, address, PATIENCE_MS, &options, &conn));
	CHECK_EQ(rmr_post(conn, &work, 1), 1);
	CHECK_EQ(rmr_wait(queue, &c, 1, 2000 + 1000 * (int)TEST_TIME_FACTOR), 1);
	CHECK_EQ(c.op, RMR_OP_SEND);
	CHECK_EQ(c.status, RMR_DISCONNECTED);
	expect_end(queue, conn);
	test_signal(&pipe, TEST_PARENT);
	test_wait(pid);
	rmr_queue_close(queue);
	rmr_device_close(device);
}

static const struct test tests[] = {
	{"callers_are_told_why", test_callers}, {"caller_cut_late", test_cut_late},
	{"callers_in_a_crowd", test_crowd},	{"caller_never_ready", test_never_ready},
	{"callers_that_leave", test_leavers},	{"listeners", test_listeners},
	{"listener_dies", test_listener_dies},	{"listener_without_qp", test_listener_without_qp},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "verbs_cm_hostile", tests, TEST_COUNT(tests));
}
