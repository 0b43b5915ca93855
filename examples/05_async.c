/*
 * Many operations under way at once.
 *	05_async [server]	a host, or shm:NAME, tcp://HOST:PORT, verbs://HOST:PORT
 * Puts and then gets 1000 keys without waiting for each: what is submitted travels together, and
 * answers are polled as they come, in any order; the cookie tells which is which.
 */
#include <err.h>
#include <remora/kv.h>
#include <stdio.h>
#include <string.h>

#define KEYS 1000

static kv_client_t *client;
static char values[KEYS][32]; /* a get's buffer is the client's until its result is polled */
static int right;

static size_t make_value(char value[32], unsigned number)
{
	return (size_t)snprintf(value, 32, "value %u", number * 7);
}

/* Keys and values of puts are copied or sent before submit returns: they may lie on the stack. */
static int submit(unsigned number, int put)
{
	char key[32], value[32];
	size_t key_length = (size_t)snprintf(key, sizeof(key), "example:async:%u", number);
	size_t length = make_value(value, number);

	if (put)
		return kv_client_submit_put(client, key, key_length, value, length, NULL, number);
	return kv_client_submit_get(client, key, key_length, values[number], 32, number);
}

/* Takes what has come in, and waits for it if nothing has. */
static int take_results(int put)
{
	kv_result_t results[16];
	int count = kv_client_poll(client, results, 16, -1);

	if (count <= 0)
		errx(1, "%s", count ? kv_client_error(client) : "no answer in time");
	for (int i = 0; i < count; i++) {
		unsigned number = (unsigned)results[i].cookie;
		char expected[32];
		size_t length = make_value(expected, number);

		if (results[i].status != KV_OK)
			errx(1, "key %u: %s", number, kv_strerror(results[i].status));
		if (!put && results[i].length == length &&
		    !memcmp(values[number], expected, length))
			right++;
	}
	return count;
}

int main(int argc, char **argv)
{
	client = kv_client_create(CONN_MODE_AUTO);
	if (!client || kv_client_connect(client, argc > 1 ? argv[1] : NULL, 0) != KV_OK)
		errx(1, "%s", client ? kv_client_error(client) : "no memory");
	for (int put = 1; put >= 0; put--) {
		unsigned sent = 0, done = 0;

		while (done < KEYS) {
			int status = sent < KEYS ? submit(sent, put) : KV_AGAIN;

			if (status == KV_OK)
				sent++;
			else if (status == KV_AGAIN) /* the window is full, or all are sent */
				done += (unsigned)take_results(put);
			else
				errx(1, "%s", kv_client_error(client));
		}
	}
	printf("%d of %d values are right\n", right, KEYS);
	kv_client_destroy(client);
	return right != KEYS;
}
