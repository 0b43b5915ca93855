/* The greeting, right and wrong, and what the keys permit. */
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"

static struct subject subject;

/* That a client is served, whatever the others do. */
static void check_served(const char *by, const char *key_file)
{
	struct raw raw;

	raw_enter(&raw, by, subject_address(&subject, by), key_file);
	CHECK_EQ(raw_put(&raw, "served", "yes", 3), KV_OK);
	CHECK_EQ(raw_get(&raw, "served", 10), KV_OK);
	raw_close(&raw);
}

/* Of one who may write. */
static uint32_t all_capabilities(const char *by)
{
	uint32_t pull = strcmp(by, "tcp") == 0 ? KV_CAN_PULL : 0;

	return KV_CAN_READ | KV_CAN_WRITE | KV_CAN_COUNT | pull;
}

static void check_no_descriptor(const struct raw *raw)
{
	const struct kv_welcome none = {0};

	CHECK_MEM(&raw->welcome, &none, sizeof(none));
}

static void without_keys(const char *by)
{
	struct raw raw;

	subject_start(&subject, NULL);
	raw_connect(&raw, by, subject_address(&subject, by));
	CHECK_EQ(raw_greet(&raw, NULL, 7), KV_OP_WELCOME);
	CHECK_EQ(raw.challenge.needs_proof, 0);
	CHECK_EQ(raw.welcome.capabilities, all_capabilities(by));
	CHECK_EQ(raw.welcome.window, 7);
	CHECK_EQ(raw.welcome.cells_epoch, 1);
	CHECK_EQ(raw.welcome.map_epoch, 0);
	CHECK_EQ(raw.welcome.eager_limit, 8192);
	CHECK(raw.welcome.instance != 0);
	CHECK(raw.welcome.max_value > (size_t)15 << 20);
	CHECK(raw.welcome.max_value < (size_t)16 << 20);
	CHECK_EQ(raw.welcome.landing_size, 4 << 20);
	CHECK_EQ(raw.welcome.max_pins, 1024);
	raw_close(&raw);
	raw_connect(&raw, by, subject_address(&subject, by));
	CHECK_EQ(raw_greet(&raw, NULL, 100000), KV_OP_WELCOME);
	CHECK_EQ(raw.welcome.window, 64);
	raw_close(&raw);
	subject_stop(&subject);
}

static void keys(const char *by)
{
	kv_server_options_t options = {.key_file = subject_key_file('w'),
				       .read_key_file = subject_key_file('r')};
	const char *address;
	struct raw raw;

	subject_start(&subject, &options);
	address = subject_address(&subject, by);
	raw_connect(&raw, by, address);
	CHECK_EQ(raw_greet(&raw, subject_key_file('x'), 0), KV_OP_REFUSE);
	CHECK_EQ(raw.refuse.status, KV_DENIED);
	CHECK_EQ(raw.challenge.needs_proof, 1);
	CHECK_EQ(raw_receive_end(&raw), 1);
	check_no_descriptor(&raw);
	raw_close(&raw);
	raw_connect(&raw, by, address);
	CHECK_EQ(raw_greet(&raw, NULL, 0), KV_OP_REFUSE);
	CHECK_EQ(raw.refuse.status, KV_DENIED);
	raw_close(&raw);
	raw_enter(&raw, by, address, options.key_file);
	CHECK_EQ(raw.welcome.capabilities, all_capabilities(by));
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "n", 1), KV_OK);
	raw_close(&raw);
	subject_await(&subject, "clients_denied", 2);
	subject_stop(&subject);
}

static void read_only(const char *by)
{
	static const unsigned changing[] = {KV_OP_DELETE, KV_OP_EXPIRE, KV_OP_ADD, KV_OP_SWAP,
					    KV_OP_PUT_BEGIN};
	kv_server_options_t options = {.key_file = subject_key_file('w'),
				       .read_key_file = subject_key_file('r')};
	const struct rmr_descriptor none = {0};
	const char *address;
	struct raw writer, reader;

	subject_start(&subject, &options);
	address = subject_address(&subject, by);
	raw_enter(&writer, by, address, options.key_file);
	raw_enter(&reader, by, address, options.read_key_file);
	CHECK_EQ(reader.welcome.capabilities, KV_CAN_READ);
	CHECK_EQ(reader.welcome.landing_size, 0);
	CHECK_MEM(&reader.welcome.cells, &none, sizeof(none));
	CHECK_EQ(raw_put(&writer, "key", "value", 5), KV_OK);
	CHECK_EQ(raw_simple(&writer, KV_OP_ADD, "n", 1), KV_OK);
	CHECK_EQ(raw_put(&reader, "key", "other", 5), KV_DENIED);
	CHECK(reader.reply.value_length > 0);
	for (size_t i = 0; i < TEST_COUNT(changing); i++)
		CHECK_EQ(raw_simple(&reader, changing[i], "key", 1), KV_DENIED);
	CHECK_EQ(raw_simple(&reader, KV_OP_FLUSH, NULL, 0), KV_DENIED);
	CHECK_EQ(raw_simple(&reader, KV_OP_LANDING, NULL, 4096), KV_DENIED);
	CHECK_EQ(raw_get(&reader, "key", 100), KV_OK);
	CHECK_MEM(reader.reply.value, "value", 5);
	CHECK_EQ(raw_get(&reader, "n", 100), KV_OK);
	CHECK_EQ(reader.reply.header.cell, KV_NO_CELL);
	CHECK_EQ(raw_simple(&reader, KV_OP_PIN, "key", 0), KV_OK);
	CHECK_EQ(raw_simple(&reader, KV_OP_PING, NULL, 0), KV_OK);
	raw_close(&reader);
	raw_close(&writer);
	subject_stop(&subject);
}

/* What is turned down before it is connected. */
static void introductions(const char *by)
{
	static const struct kv_introduction wrong[] = {
		{.magic = KV_PROTOCOL_MAGIC, .version = KV_PROTOCOL_VERSION + 1},
		{.magic = KV_PROTOCOL_MAGIC, .version = 0},
		{.magic = 12345, .version = KV_PROTOCOL_VERSION},
	};
	struct raw raw;

	subject_start(&subject, NULL);
	for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
		CHECK_STATUS(raw_dial(&raw, by, subject_address(&subject, by), &wrong[i]),
			     RMR_REFUSED);
		CHECK_CONTAINS(rmr_error_message(), i < 2 ? "version" : "no client");
		raw_close(&raw);
	}
	CHECK_STATUS(raw_dial(&raw, by, subject_address(&subject, by), NULL), RMR_REFUSED);
	raw_close(&raw);
	check_served(by, NULL);
	CHECK_EQ(subject_figure(&subject, "clients_turned_down"), 4);
	subject_stop(&subject);
}

/* Sends this before it is welcome, and is refused. */
static void check_refused(const char *by, const void *first, size_t first_length,
			  const void *second, size_t second_length)
{
	struct raw raw;

	raw_connect(&raw, by, subject_address(&subject, by));
	raw_send(&raw, first, first_length);
	if (second) {
		CHECK(raw_receive(&raw));
		CHECK_EQ(raw.message[0], KV_OP_CHALLENGE);
		raw_send(&raw, second, second_length);
	}
	CHECK(raw_receive(&raw));
	CHECK_EQ(raw.message[0], KV_OP_REFUSE);
	CHECK_EQ(raw.length, sizeof(struct kv_refuse));
	CHECK(!raw_receive(&raw));
	raw_close(&raw);
	check_served(by, NULL);
}

static void nonsense(const char *by)
{
	struct kv_hello hello = {.op = KV_OP_HELLO};
	struct kv_proof proof = {.op = KV_OP_PROOF};
	struct kv_request ping = {.op = KV_OP_PING, .id = 1};
	struct kv_welcome welcome = {.op = KV_OP_WELCOME};
	uint8_t junk[5000];
	struct test_rng rng;

	test_rng_init(&rng, 1);
	test_rng_fill(&rng, junk, sizeof(junk));
	subject_start(&subject, NULL);
	check_refused(by, junk, sizeof(junk), NULL, 0);
	check_refused(by, "", 0, NULL, 0);
	check_refused(by, &hello, sizeof(hello) - 1, NULL, 0);
	check_refused(by, &proof, sizeof(proof), NULL, 0);
	check_refused(by, &ping, sizeof(ping), NULL, 0);
	check_refused(by, &welcome, sizeof(welcome), NULL, 0);
	check_refused(by, &hello, sizeof(hello), &hello, sizeof(hello));
	check_refused(by, &hello, sizeof(hello), &ping, sizeof(ping));
	check_refused(by, &hello, sizeof(hello), junk, sizeof(junk));
	CHECK_EQ(subject_figure(&subject, "violations"), 9);
	subject_await(&subject, "clients", 0);
	subject_stop(&subject);
}

/* Who says nothing is thrown out, and holds up nobody. */
static void silence(const char *by)
{
	struct raw silent, late;
	struct kv_hello hello = {.op = KV_OP_HELLO};

	subject_start(&subject, NULL);
	raw_connect(&silent, by, subject_address(&subject, by));
	raw_connect(&late, by, subject_address(&subject, by));
	raw_send(&late, &hello, sizeof(hello));
	CHECK(raw_receive(&late));
	check_served(by, NULL);
	CHECK(raw_receive(&silent));
	CHECK_EQ(silent.message[0], KV_OP_REFUSE);
	CHECK(!raw_receive(&silent));
	CHECK(raw_receive(&late));
	CHECK_EQ(late.message[0], KV_OP_REFUSE);
	check_served(by, NULL);
	raw_close(&silent);
	raw_close(&late);
	CHECK_EQ(subject_figure(&subject, "timeouts"), 2);
	subject_stop(&subject);
}

static void bad_key_files(const char *by)
{
	kv_server_options_t options = {.listen = by, .port = -1, .memory = 1 << 20};
	kv_server_t *server;

	options.key_file = "/nonexistent/key";
	CHECK_EQ(kv_server_create(&options, &server), KV_DENIED);
	CHECK_CONTAINS(kv_server_error(), "/nonexistent/key");
	options.key_file = NULL;
	options.read_key_file = subject_key_file('r');
	CHECK_EQ(kv_server_create(&options, &server), KV_INVALID);
	options.key_file = options.read_key_file;
	CHECK_EQ(kv_server_create(&options, &server), KV_INVALID);
}

static void test_without_keys(void)
{
	subject_for_each(without_keys);
}

static void test_keys(void)
{
	subject_for_each(keys);
}

static void test_read_only(void)
{
	subject_for_each(read_only);
}

static void test_introductions(void)
{
	subject_for_each(introductions);
}

static void test_nonsense(void)
{
	subject_for_each(nonsense);
}

static void test_silence(void)
{
	subject_for_each(silence);
}

static void test_bad_key_files(void)
{
	bad_key_files("tcp");
}

static const struct test tests[] = {
	{"without_keys", test_without_keys},   {"keys", test_keys},
	{"read_only", test_read_only},	       {"introductions", test_introductions},
	{"nonsense", test_nonsense},	       {"silence", test_silence, TEST_SLOW},
	{"bad_key_files", test_bad_key_files},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_greeting", tests, TEST_COUNT(tests));
}
