/*
 * A client that comes back by another connection: the older one takes nothing any more when the
 * newer one is welcome, whatever of its requests is still on the way.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <remora/kv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"

#define MANY 60

/* Connects as session `number` of the client `name`. Returns the op of the server's answer. */
static int come(struct raw *raw, const struct subject *subject, const char *by, const char *name,
		uint64_t number, const char *key_file)
{
	raw_connect(raw, by, subject_address(subject, by));
	snprintf((char *)raw->client_id, sizeof(raw->client_id), "%s", name);
	raw->session = number;
	return raw_greet(raw, key_file, 0);
}

static void check_value(struct raw *raw, const char *key, const char *value)
{
	CHECK_EQ(raw_get(raw, key, 100), KV_OK);
	CHECK_EQ(raw->reply.value_length, strlen(value));
	CHECK_MEM(raw->reply.value, value, strlen(value));
}

static struct raw_request put_of(const char *key, const char *value)
{
	return (struct raw_request){.header = {.op = KV_OP_PUT,
					       .key_length = (uint16_t)strlen(key),
					       .value_length = strlen(value)},
				    .key = key,
				    .value = value};
}

/* A value in two pieces, of which the second comes too late, and a put that comes too late. */
static void late_requests(const char *by)
{
	struct raw_request piece = {.header = {.op = KV_OP_PUT_PIECE, .value_length = 2},
				    .value = "zz"};
	struct raw_request late = put_of("k", "late");
	struct raw older, newer;
	struct subject subject;

	subject_start(&subject, NULL);
	CHECK_EQ(come(&older, &subject, by, "client", 1, NULL), KV_OP_WELCOME);
	CHECK_EQ(raw_put(&older, "k", "first", 5), KV_OK);
	CHECK_EQ(raw_put(&older, "d", "first", 5), KV_OK);
	piece.header.argument = older.next_id;
	CHECK_EQ(raw_call(&older, &(struct raw_request){.header = {.op = KV_OP_PUT_BEGIN,
								   .key_length = 1,
								   .value_length = 4},
							.key = "d"}),
		 KV_OK);
	CHECK_EQ(raw_call(&older, &piece), KV_OK);
	CHECK_EQ(come(&newer, &subject, by, "client", 2, NULL), KV_OP_WELCOME);
	piece.header.place = 2;
	piece.header.flags = KV_FINAL;
	raw_ask(&older, &piece);
	raw_ask(&older, &late);
	(void)raw_receive_end(&older);
	CHECK(older.is_gone);
	check_value(&newer, "k", "first");
	check_value(&newer, "d", "first");
	CHECK_EQ(raw_put(&newer, "k", "second", 6), KV_OK);
	check_value(&newer, "k", "second");
	subject_await(&subject, "drafts", 0);
	raw_close(&older);
	raw_close(&newer);
	subject_stop(&subject);
}

static void test_late_requests(void)
{
	subject_for_each(late_requests);
}

/* Requests that are sent and not answered when the newer session comes are carried out before its
 * WELCOME, or never. */
static void requests_under_way(const char *by)
{
	struct raw_request put = put_of("k", "old");
	struct subject subject;

	subject_start(&subject, NULL);
	for (uint64_t round = 0; round < 20; round++) {
		struct raw older, newer;

		CHECK_EQ(come(&older, &subject, by, "client", 2 * round + 1, NULL), KV_OP_WELCOME);
		for (int i = 0; i < 20; i++)
			raw_ask(&older, &put);
		CHECK_EQ(come(&newer, &subject, by, "client", 2 * round + 2, NULL), KV_OP_WELCOME);
		CHECK_EQ(raw_put(&newer, "k", "new", 3), KV_OK);
		for (int i = 0; i < 20; i++)
			raw_ask(&older, &put);
		(void)raw_receive_end(&older);
		check_value(&newer, "k", "new");
		raw_close(&older);
		raw_close(&newer);
	}
	subject_stop(&subject);
}

static void test_requests_under_way(void)
{
	subject_for_each(requests_under_way);
}

/* What comes too late to connect is refused, and so is what came already. */
static void older_is_refused(const char *by)
{
	struct raw older, newer;
	struct subject subject;

	subject_start(&subject, NULL);
	CHECK_EQ(come(&newer, &subject, by, "client", 7, NULL), KV_OP_WELCOME);
	for (uint64_t number = 6; number <= 7; number++) {
		CHECK_EQ(come(&older, &subject, by, "client", number, NULL), KV_OP_REFUSE);
		CHECK_EQ(older.refuse.status, KV_BUSY);
		raw_close(&older);
	}
	CHECK_EQ(raw_put(&newer, "k", "v", 1), KV_OK);
	raw_close(&newer);
	subject_await(&subject, "clients", 0);
	/* Nothing of it is remembered when it is gone. */
	CHECK_EQ(come(&older, &subject, by, "client", 1, NULL), KV_OP_WELCOME);
	raw_close(&older);
	subject_stop(&subject);
}

static void test_older_is_refused(void)
{
	subject_for_each(older_is_refused);
}

/* Other clients, those that say nothing of themselves, and those that do not know the key. */
static void others_end_nobody(const char *by)
{
	kv_server_options_t options = {.key_file = subject_key_file('w')};
	struct raw first, other, silent[2], stranger;
	struct subject subject;

	subject_start(&subject, &options);
	CHECK_EQ(come(&first, &subject, by, "client", 1, options.key_file), KV_OP_WELCOME);
	CHECK_EQ(come(&other, &subject, by, "clienu", 2, options.key_file), KV_OP_WELCOME);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(come(&silent[i], &subject, by, "", 1, options.key_file), KV_OP_WELCOME);
	CHECK_EQ(come(&stranger, &subject, by, "client", 2, NULL), KV_OP_REFUSE);
	CHECK_EQ(stranger.refuse.status, KV_DENIED);
	CHECK_EQ(raw_put(&first, "k", "1", 1), KV_OK);
	CHECK_EQ(raw_put(&other, "k", "2", 1), KV_OK);
	CHECK_EQ(raw_put(&silent[0], "k", "3", 1), KV_OK);
	CHECK_EQ(raw_put(&silent[1], "k", "4", 1), KV_OK);
	raw_close(&first);
	raw_close(&other);
	raw_close(&silent[0]);
	raw_close(&silent[1]);
	raw_close(&stranger);
	subject_stop(&subject);
}

static void test_others_end_nobody(void)
{
	subject_for_each(others_end_nobody);
}

/* A client that comes back again and again, and another one that does the same. */
static void again_and_again(const char *by)
{
	static struct raw sessions[2][MANY];
	kv_server_options_t options = {.workers = 4};
	struct subject subject;

	subject_start(&subject, &options);
	for (unsigned i = 0; i < MANY; i++) {
		CHECK_EQ(come(&sessions[0][i], &subject, by, "one", i + 1, NULL), KV_OP_WELCOME);
		CHECK_EQ(come(&sessions[1][i], &subject, by, "two", i + 1, NULL), KV_OP_WELCOME);
		CHECK_EQ(raw_put(&sessions[0][i], "k", &i, sizeof(i)), KV_OK);
	}
	subject_await(&subject, "clients", 2);
	for (unsigned i = 0; i < MANY - 1; i++) {
		(void)raw_receive_end(&sessions[0][i]);
		(void)raw_receive_end(&sessions[1][i]);
	}
	CHECK_EQ(raw_put(&sessions[0][MANY - 1], "k", "v", 1), KV_OK);
	CHECK_EQ(raw_put(&sessions[1][MANY - 1], "k", "v", 1), KV_OK);
	for (unsigned i = 0; i < MANY; i++) {
		raw_close(&sessions[0][i]);
		raw_close(&sessions[1][i]);
	}
	subject_stop(&subject);
}

static void test_again_and_again(void)
{
	subject_for_each(again_and_again);
}

/* ------------------------------------------------------------------------------------------
 * The client library, through a relay that holds its first connection's bytes back
 */

enum { RELAYED = 8, HELD = 65536 };

struct relay {
	int listener, port;
	int server_port;
	struct pair {
		int client, server;
	} pairs[RELAYED];
	unsigned count;
	/* Of the first connection: bytes of the client are kept from now on. */
	atomic_bool holds;
	atomic_bool cuts; /* the client's end of the first connection, now */
	atomic_bool lets_go, stops;
	atomic_size_t held_length;
	uint8_t held[HELD];
	pthread_t thread;
};

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void write_all(int fd, const uint8_t *bytes, size_t length)
{
	while (length) {
		ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);

		if (sent <= 0)
			return;
		bytes += sent;
		length -= (size_t)sent;
	}
}

static void accept_one(struct relay *relay)
{
	struct sockaddr_in to = loopback(relay->server_port);
	struct pair *pair = &relay->pairs[relay->count];

	CHECK(relay->count < RELAYED);
	pair->client = accept(relay->listener, NULL, NULL);
	pair->server = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(pair->client >= 0 && pair->server >= 0);
	CHECK_EQ(connect(pair->server, (struct sockaddr *)&to, sizeof(to)), 0);
	relay->count++;
}

/* Passes on what has come. The end is passed on, too, but for that of the connection that is held
 * back: to the server it looks as if the client were still there. */
static void pass_on(struct relay *relay, struct pair *pair, bool from_client)
{
	bool is_held = pair == relay->pairs && relay->holds;
	int from = from_client ? pair->client : pair->server;
	int to = from_client ? pair->server : pair->client;
	uint8_t bytes[16384];
	ssize_t length = read(from, bytes, sizeof(bytes));

	if (length <= 0) {
		if (from_client) {
			close(pair->client);
			pair->client = -1;
		}
		if (!from_client || !is_held) {
			shutdown(to, SHUT_RDWR);
			close(pair->server);
			pair->server = -1;
		}
	} else if (is_held && from_client) {
		CHECK(relay->held_length + (size_t)length <= sizeof(relay->held));
		memcpy(relay->held + relay->held_length, bytes, (size_t)length);
		relay->held_length += (size_t)length;
	} else if (to >= 0) {
		write_all(to, bytes, (size_t)length);
	}
}

static void *run_relay(void *argument)
{
	struct relay *relay = argument;

	while (!relay->stops) {
		struct pollfd fds[1 + 2 * RELAYED];
		unsigned count = relay->count;

		fds[0] = (struct pollfd){.fd = relay->listener, .events = POLLIN};
		for (unsigned i = 0; i < count; i++) {
			fds[1 + 2 * i] =
				(struct pollfd){.fd = relay->pairs[i].client, .events = POLLIN};
			fds[2 + 2 * i] =
				(struct pollfd){.fd = relay->pairs[i].server, .events = POLLIN};
		}
		if (poll(fds, 1 + 2 * count, 5) > 0) {
			for (unsigned i = 0; i < count; i++) {
				if (fds[1 + 2 * i].revents)
					pass_on(relay, &relay->pairs[i], true);
				else if (fds[2 + 2 * i].revents)
					pass_on(relay, &relay->pairs[i], false);
			}
			if (fds[0].revents)
				accept_one(relay);
		}
		if (relay->cuts) {
			shutdown(relay->pairs[0].client, SHUT_RDWR);
			relay->cuts = false;
		}
		if (relay->lets_go && relay->pairs[0].server >= 0) {
			write_all(relay->pairs[0].server, relay->held, relay->held_length);
			relay->lets_go = false;
		} else if (relay->lets_go) {
			relay->lets_go = false; /* the server has closed it */
		}
	}
	return NULL;
}

static void relay_start(struct relay *relay, int server_port)
{
	struct sockaddr_in address = loopback(0);
	socklen_t length = sizeof(address);

	memset(relay, 0, sizeof(*relay));
	relay->server_port = server_port;
	relay->listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(relay->listener >= 0);
	CHECK_EQ(bind(relay->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_EQ(listen(relay->listener, RELAYED), 0);
	CHECK_EQ(getsockname(relay->listener, (struct sockaddr *)&address, &length), 0);
	relay->port = ntohs(address.sin_port);
	CHECK_EQ(pthread_create(&relay->thread, NULL, run_relay, relay), 0);
}

static void relay_stop(struct relay *relay)
{
	relay->stops = true;
	pthread_join(relay->thread, NULL);
	for (unsigned i = 0; i < relay->count; i++) {
		if (relay->pairs[i].client >= 0)
			close(relay->pairs[i].client);
		if (relay->pairs[i].server >= 0)
			close(relay->pairs[i].server);
	}
	close(relay->listener);
}

static void wait_until(const atomic_bool *flag, bool value)
{
	while (*flag != value)
		test_sleep_ms(1);
}

/* The first put stays in the network until the client has come back and put something else. */
static void test_put_that_was_held_back(void)
{
	kv_client_options_t options = {.device = "tcp", .timeout_ms = 500};
	static struct relay relay;
	struct subject subject;
	kv_client_t *client;
	char value[16];
	size_t length = sizeof(value);
	int status;

	subject_start(&subject, NULL);
	relay_start(&relay, kv_server_port(subject.server));
	client = kv_client_create_with(CONN_MODE_AUTO, &options);
	CHECK(client);
	CHECK_EQ(kv_client_connect(client, "127.0.0.1", relay.port), KV_OK);
	CHECK_EQ(kv_client_put(client, "k", 1, "first", 5), KV_OK);
	relay.holds = true;
	CHECK_EQ(kv_client_put(client, "k", 1, "held", 4), KV_UNKNOWN);
	CHECK(relay.held_length > 0);
	/* The client sees its connection end; the server does not. */
	relay.cuts = true;
	wait_until(&relay.cuts, false);
	do
		status = kv_client_put(client, "k", 1, "second", 6);
	while (status == KV_UNKNOWN || status == KV_TIMEOUT || status == KV_DISCONNECTED);
	CHECK_EQ(status, KV_OK);
	relay.lets_go = true;
	wait_until(&relay.lets_go, false);
	/* As many requests as it takes until the server must have seen it. */
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(kv_client_ping(client, NULL), KV_OK);
		test_sleep_ms(5);
	}
	CHECK_EQ(kv_client_get(client, "k", 1, value, &length), KV_OK);
	CHECK_EQ(length, 6);
	CHECK_MEM(value, "second", 6);
	kv_client_destroy(client);
	relay_stop(&relay);
	subject_stop(&subject);
}

static const struct test tests[] = {
	{"late_requests", test_late_requests},
	{"requests_under_way", test_requests_under_way},
	{"older_is_refused", test_older_is_refused},
	{"others_end_nobody", test_others_end_nobody},
	{"again_and_again", test_again_and_again},
	{"put_that_was_held_back", test_put_that_was_held_back},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_session", tests, TEST_COUNT(tests));
}
