/*
 * What a client makes of the answers to a put, from a server that is played here: right ones, wrong
 * ones, late ones, and none. Whatever comes, the put goes out once, unless the server said that it
 * was not carried out; and the client goes on afterwards.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "harness/test.h"
#include "kv/protocol.h"
#include "remora/fabric.h"
#include "remora/kv.h"

#define KEY(text) text, sizeof(text) - 1
#define RECV_SIZE 16384u
/* Of the client that waits for nothing; the others have time. */
#define SHORT_MS 500
#define VERSION	 77u

enum answer {
	ANSWER_PLAIN,
	ANSWER_STATUS, /* without a text */
	ANSWER_TEXT,   /* with one */
	ANSWER_EPOCH,  /* of the cells: a new one */
	ANSWER_OTHER_ID,
	ANSWER_OTHER_OP,
	ANSWER_SHORT,	   /* than its header */
	ANSWER_STOPS,	   /* GOODBYE: it was not carried out */
	ANSWER_THROWN_OUT, /* the same, with a reason */
	ANSWER_CLOSES,
	ANSWER_TWICE,
	ANSWER_LAST, /* and GOODBYE behind it, and it closes */
	ANSWER_NONE, /* until the next request comes */
};

/* The server, on a thread of its own. What it is to do is set while no request is under way. */
struct player {
	struct rmr_device *device;
	struct rmr_listener *listener;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	pthread_t thread;
	atomic_bool stops;
	_Atomic enum answer next; /* to the next put; then plain ones */
	atomic_int status;
	atomic_uint puts, cells;
	uint32_t ids, epoch, held; /* held: the id of one that was not answered; 0: none */
};

static void say(struct player *player, const void *message, size_t length)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = message,
				.length = length};

	(void)!rmr_post(player->conn, &work, 1);
}

/* Says that it stops, and does; what comes meanwhile is not carried out. */
static void leave(struct player *player)
{
	struct kv_reply goodbye = {.op = KV_OP_GOODBYE, .cells_epoch = player->epoch};
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE,
				.source = &goodbye,
				.length = sizeof(goodbye)};
	struct rmr_completion done = {0};

	if (rmr_post(player->conn, &work, 1) == 1)
		while (done.op != RMR_OP_SEND && done.op != RMR_OP_DISCONNECT &&
		       !atomic_load(&player->stops))
			if (rmr_wait(player->queue, &done, 1, 20) == 1 && done.op == RMR_OP_RECV)
				rmr_recv_release(player->queue, done.data);
	rmr_conn_close(player->conn);
	player->conn = NULL;
}

static void greet(struct player *player, const struct rmr_completion *done)
{
	struct kv_challenge challenge = {.op = KV_OP_CHALLENGE};
	struct kv_welcome welcome = {.op = KV_OP_WELCOME,
				     .capabilities = KV_CAN_WRITE,
				     .window = 64,
				     .cells_epoch = player->epoch,
				     .eager_limit = KV_MIN_EAGER,
				     .instance = 1,
				     .max_value = 1 << 20};

	if (*(const uint8_t *)done->data == KV_OP_HELLO)
		say(player, &challenge, sizeof(challenge));
	else
		say(player, &welcome, sizeof(welcome));
}

static void answer_put(struct player *player, uint32_t id)
{
	struct {
		struct kv_reply header;
		char text[8];
	} reply = {.header = {.op = KV_OP_PUT,
			      .id = id,
			      .cells_epoch = player->epoch,
			      .version = VERSION,
			      .cell = KV_NO_CELL},
		   .text = "because."};
	enum answer answer = atomic_exchange(&player->next, ANSWER_PLAIN);
	size_t length = sizeof(reply.header);

	if (answer == ANSWER_STATUS || answer == ANSWER_TEXT || answer == ANSWER_THROWN_OUT)
		reply.header.status = (int16_t)atomic_load(&player->status);
	if (answer == ANSWER_TEXT) {
		reply.header.flags = KV_HAS_VALUE;
		length += sizeof(reply.text);
	}
	if (answer == ANSWER_EPOCH)
		reply.header.cells_epoch = ++player->epoch;
	if (answer == ANSWER_OTHER_ID)
		reply.header.id++;
	if (answer == ANSWER_OTHER_OP)
		reply.header.op = KV_OP_DELETE;
	if (answer == ANSWER_SHORT)
		length--;
	if (answer == ANSWER_STOPS || answer == ANSWER_THROWN_OUT)
		reply.header.op = KV_OP_GOODBYE;
	if (answer == ANSWER_NONE) {
		player->held = id;
	} else if (answer == ANSWER_CLOSES) {
		rmr_conn_close(player->conn);
		player->conn = NULL;
	} else {
		say(player, &reply, length);
		if (answer == ANSWER_TWICE)
			say(player, &reply, length);
		if (answer == ANSWER_LAST)
			leave(player);
	}
}

/* One key, and more that lie there; and when asked for these, nothing but that there are more. */
static void answer_scan(struct player *player, const struct kv_request_view *view)
{
	struct {
		struct kv_reply header;
		struct kv_scan_entry entry;
		char key[8];
	} reply = {.header = {.op = KV_OP_SCAN,
			      .flags = KV_HAS_VALUE | KV_AMONG,
			      .id = view->header.id,
			      .cells_epoch = player->epoch,
			      .number = 1},
		   .entry = {.version = VERSION, .key_length = 3},
		   .key = "key"};

	CHECK(view->header.flags & KV_GO_BEHIND);
	if (view->header.key_length) {
		CHECK_EQ(view->header.argument, 1);
		CHECK_EQ(view->header.key_length, 3);
		CHECK_MEM(view->key, "key", 3);
	}
	say(player, &reply, view->header.key_length ? sizeof(reply.header) : sizeof(reply));
}

static void answer(struct player *player, const struct rmr_completion *done)
{
	struct kv_request_view view;

	if (*(const uint8_t *)done->data < KV_OP_GET) {
		greet(player, done);
		return;
	}
	CHECK(!kv_decode_request(done->data, done->length, &view));
	/* Each has its own, whichever way it went out. */
	CHECK_EQ(view.header.id, ++player->ids);
	if (player->held) {
		uint32_t held = player->held;

		player->held = 0;
		answer_put(player, held);
	}
	if (view.header.op == KV_OP_PUT) {
		CHECK_EQ(view.header.key_length + view.header.value_length, 8);
		CHECK_MEM(view.key, "keyvalue", 8);
		atomic_fetch_add(&player->puts, 1);
		answer_put(player, view.header.id);
	} else if (view.header.op == KV_OP_SCAN) {
		answer_scan(player, &view);
	} else {
		struct kv_reply reply = {
			.op = view.header.op, .id = view.header.id, .cells_epoch = player->epoch};

		CHECK_EQ(view.header.op, KV_OP_CELLS);
		CHECK_EQ(view.header.argument, player->epoch);
		atomic_fetch_add(&player->cells, 1);
		say(player, &reply, sizeof(reply));
	}
}

static void *play(void *argument)
{
	struct player *player = argument;

	while (!atomic_load(&player->stops)) {
		struct rmr_completion done;
		struct rmr_request *request;

		if (!player->conn) {
			if (rmr_listener_next(player->listener, 20, &request) != RMR_OK)
				continue;
			CHECK_OK(rmr_accept(request, player->queue, NULL, &player->conn));
			player->ids = player->held = 0;
		}
		if (rmr_wait(player->queue, &done, 1, 20) != 1)
			continue;
		if (done.op == RMR_OP_DISCONNECT) {
			rmr_conn_close(player->conn);
			player->conn = NULL;
		}
		if (done.op != RMR_OP_RECV || done.status != RMR_OK)
			continue;
		answer(player, &done);
		rmr_recv_release(player->queue, done.data);
	}
	return NULL;
}

static kv_client_t *start(struct player *player, int timeout_ms)
{
	struct rmr_queue_options queue_options = {.recv_slots = 64, .recv_size = RECV_SIZE};
	kv_client_options_t options = {.timeout_ms = timeout_ms};
	char url[128];
	kv_client_t *client = kv_client_create_with(CONN_MODE_AUTO, &options);

	CHECK(client);
	*player = (struct player){.epoch = 1};
	CHECK_OK(rmr_device_open("tcp", NULL, &player->device));
	CHECK_OK(rmr_queue_open(player->device, &queue_options, &player->queue));
	CHECK_OK(rmr_listener_open(player->device, "127.0.0.1:0", NULL, &player->listener));
	CHECK_EQ(pthread_create(&player->thread, NULL, play, player), 0);
	snprintf(url, sizeof(url), "tcp://%s", rmr_listener_address(player->listener));
	CHECK_EQ(kv_client_connect(client, url, 0), KV_OK);
	return client;
}

static void stop(struct player *player, kv_client_t *client)
{
	kv_client_destroy(client);
	atomic_store(&player->stops, true);
	pthread_join(player->thread, NULL);
	rmr_conn_close(player->conn);
	rmr_listener_close(player->listener);
	rmr_queue_close(player->queue);
	rmr_device_close(player->device);
}

static const struct answer_case {
	enum answer answer;
	int said;     /* by the server */
	int expected; /* of the put */
	unsigned puts;
	unsigned reconnects; /* by the end of the put after it */
	const char *text;    /* NULL: no matter */
} cases[] = {
	{ANSWER_PLAIN, 0, KV_OK, 1, 0, NULL},
	{ANSWER_STATUS, KV_CAS_FAILED, KV_CAS_FAILED, 1, 0, NULL},
	{ANSWER_STATUS, KV_NO_MEMORY, KV_NO_MEMORY, 1, 0, NULL},
	/* It is an answer, and not a reason to send it again. */
	{ANSWER_STATUS, KV_AGAIN, KV_AGAIN, 1, 0, NULL},
	{ANSWER_STATUS, 2, KV_INTERNAL, 1, 0, NULL},
	{ANSWER_STATUS, KV_AGAIN - 10, KV_INTERNAL, 1, 0, NULL},
	{ANSWER_TEXT, KV_NO_MEMORY, KV_NO_MEMORY, 1, 0, "because."},
	{ANSWER_TEXT, KV_OK, KV_OK, 1, 0, NULL},
	{ANSWER_EPOCH, 0, KV_OK, 1, 0, NULL},
	{ANSWER_OTHER_ID, 0, KV_UNKNOWN, 1, 1, "no request of ours"},
	{ANSWER_OTHER_OP, 0, KV_UNKNOWN, 1, 1, "no request of ours"},
	{ANSWER_SHORT, 0, KV_UNKNOWN, 1, 1, "shorter"},
	{ANSWER_STOPS, 0, KV_OK, 2, 1, NULL},
	{ANSWER_THROWN_OUT, KV_DENIED, KV_OK, 2, 1, NULL},
	{ANSWER_CLOSES, 0, KV_UNKNOWN, 1, 1, "may have been made"},
	{ANSWER_NONE, 0, KV_UNKNOWN, 1, 0, "no answer within"},
};

static void check_case(const struct answer_case *now)
{
	kv_put_options_t put_options = {.condition = KV_IF_VERSION, .version = 5};
	kv_info_t info = {0};
	kv_client_totals_t totals;
	struct player player;
	kv_client_t *client =
		start(&player, now->answer == ANSWER_NONE ? SHORT_MS * (int)TEST_TIME_FACTOR : 0);
	int status;

	atomic_store(&player.status, now->said);
	atomic_store(&player.next, now->answer);
	status = kv_client_put_with(client, KEY("key"), KEY("value"), &put_options, &info);
	if (status != now->expected)
		TEST_FAIL("answer %d, said %d: %d (%s) instead of %d", (int)now->answer, now->said,
			  status, kv_client_error(client), now->expected);
	CHECK_EQ(atomic_load(&player.puts), now->puts);
	if (now->text)
		CHECK_CONTAINS(kv_client_error(client), now->text);
	CHECK_EQ(info.version,
		 now->expected == KV_OK || now->expected == KV_CAS_FAILED ? VERSION : 0);
	CHECK_EQ(kv_client_put(client, KEY("key"), KEY("value")), KV_OK);
	CHECK_EQ(kv_client_put(client, KEY("key"), KEY("value")), KV_OK);
	CHECK_EQ(kv_client_last_path(client), KV_PATH_EAGER);
	CHECK_EQ(kv_client_last_round_trips(client), 1);
	CHECK_EQ(atomic_load(&player.puts), now->puts + 2);
	/* It was told at once that the cells are forgotten, and so it was before the next put. */
	CHECK_EQ(atomic_load(&player.cells), now->answer == ANSWER_EPOCH);
	kv_client_get_totals(client, &totals);
	CHECK_EQ(totals.reconnects, now->reconnects);
	CHECK_EQ(totals.operations[KV_PATH_EAGER], 3);
	stop(&player, client);
}

static void test_answers(void)
{
	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		check_case(&cases[i]);
}

/* The second answer comes instead of the one to the next put, which is not done again. */
static void test_one_answer_too_many(void)
{
	struct player player;
	kv_client_t *client = start(&player, 0);

	atomic_store(&player.next, ANSWER_TWICE);
	CHECK_EQ(kv_client_put(client, KEY("key"), KEY("value")), KV_OK);
	CHECK_EQ(kv_client_put(client, KEY("key"), KEY("value")), KV_UNKNOWN);
	CHECK_CONTAINS(kv_client_error(client), "no request of ours");
	CHECK_EQ(kv_client_put(client, KEY("key"), KEY("value")), KV_OK);
	CHECK(atomic_load(&player.puts) <= 3);
	stop(&player, client);
}

/* Whoever finds the connection closed has not sent anything, and whoever has sent is told that it
 * was not carried out: no put is in doubt. */
static void test_stop_between_puts(void)
{
	struct player player;
	kv_client_t *client = start(&player, 0);

	for (unsigned i = 0; i < 20; i++) {
		/* After a shorter life of a connection the client waits before it comes back. */
		test_sleep_ms(30);
		atomic_store(&player.next, ANSWER_LAST);
		CHECK_EQ(kv_client_put(client, KEY("key"), KEY("value")), KV_OK);
		test_sleep_ms(i % 4);
		CHECK_EQ(kv_client_put(client, KEY("key"), KEY("value")), KV_OK);
	}
	CHECK_EQ(atomic_load(&player.puts), 40);
	stop(&player, client);
}

static void see_nothing(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	(void)context, (void)key, (void)key_length, (void)info;
	TEST_FAIL("a key of a scan that went wrong");
}

/* A server that says that there is more, and tells nothing: that is no scan. */
static void test_scan_without_end(void)
{
	struct player player;
	kv_client_t *client = start(&player, 0);
	uint64_t cursor = 0;

	CHECK_EQ(kv_client_scan(client, &cursor, 10, see_nothing, NULL), KV_PROTOCOL);
	CHECK_CONTAINS(kv_client_error(client), "does not go on");
	CHECK_EQ(cursor, 0);
	stop(&player, client);
}

static const struct test tests[] = {
	{"answers", test_answers},
	{"one_answer_too_many", test_one_answer_too_many},
	{"stop_between_puts", test_stop_between_puts},
	{"scan_without_end", test_scan_without_end},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "kv_answers", tests, TEST_COUNT(tests));
}
