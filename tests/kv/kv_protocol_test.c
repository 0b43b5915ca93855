/* The protocol's encoder and decoder, and the proofs: what fits, and what does not. */
#include <stdio.h>
#include <string.h>

#include "harness/test.h"
#include "kv/auth.h"
#include "kv/protocol.h"

static void test_requests(void)
{
	struct kv_touch touches[2] = {{1, 2}, {3, 4}};
	struct kv_request header = {.op = KV_OP_PUT,
				    .id = 7,
				    .key_length = 3,
				    .value_length = 5,
				    .touch_count = 2,
				    .argument = 1000};
	uint8_t message[200];
	struct kv_request_view view;
	size_t length;

	length = (size_t)(kv_encode_request(message, &header, "key", "value", touches) - message);
	CHECK_EQ(length, sizeof(header) + 3 + 5 + 32);
	CHECK(!kv_decode_request(message, length, &view));
	CHECK_MEM(view.key, "key", 3);
	CHECK_MEM(view.value, "value", 5);
	CHECK_EQ(kv_get_touch(&view, 1).offset, 3);
	CHECK_EQ(view.header.argument, 1000);
	/* Cut anywhere, or longer, it is none. */
	for (size_t cut = 0; cut < length; cut++)
		CHECK(kv_decode_request(message, cut, &view));
	CHECK(kv_decode_request(message, length + 1, &view));
	header.value_length = UINT64_MAX - 10;
	memcpy(message, &header, sizeof(header));
	CHECK(kv_decode_request(message, length, &view));
	header.value_length = 5;
	header.key_length = KV_MAX_KEY + 1;
	memcpy(message, &header, sizeof(header));
	CHECK(kv_decode_request(message, length, &view));
	header.key_length = 0;
	memcpy(message, &header, sizeof(header));
	CHECK(kv_decode_request(message, length, &view));
	header.op = KV_OP_GOODBYE;
	memcpy(message, &header, sizeof(header));
	CHECK(kv_decode_request(message, length, &view));
}

/* A key belongs to some operations, to others none; a scan may have one. */
static void test_keys_where_they_belong(void)
{
	static const uint16_t lengths[] = {0, 1, KV_MAX_KEY, KV_MAX_KEY + 1};
	static uint8_t message[sizeof(struct kv_request) + KV_MAX_KEY + 1], key[KV_MAX_KEY + 1];

	for (unsigned op = KV_OP_GET; op < KV_OP_END_OF_REQUESTS; op++) {
		bool may_have = kv_op_has_key(op) || op == KV_OP_SCAN;

		for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
			struct kv_request header = {
				.op = (uint8_t)op, .id = 1, .key_length = lengths[i]};
			bool is_right = lengths[i] ? may_have && lengths[i] <= KV_MAX_KEY
						   : !kv_op_has_key(op);
			struct kv_request_view view;
			size_t length;

			length = (size_t)(kv_encode_request(message, &header, key, key, NULL) -
					  message);
			CHECK_EQ(!kv_decode_request(message, length, &view), is_right);
		}
	}
}

static void test_replies(void)
{
	struct kv_scan_entry entry = {.version = 1, .value_length = 2, .key_length = 11};
	struct kv_reply header = {.op = KV_OP_SCAN, .flags = KV_HAS_VALUE, .id = 3};
	uint8_t message[300];
	struct kv_reply_view view;
	const uint8_t *key;
	size_t length = sizeof(header), at = 0, added;

	memcpy(message, &header, sizeof(header));
	added = kv_add_scan_entry(message + length, 100, &entry, "hello world");
	CHECK_EQ(added, sizeof(entry) + 16);
	length += added;
	CHECK_EQ(kv_add_scan_entry(message + length, 47, &entry, "hello world"), 0);
	length += kv_add_scan_entry(message + length, 48, &entry, "hello again");
	CHECK(!kv_decode_reply(message, length, &view));
	CHECK(kv_next_scan_entry(&view, &at, &entry, &key));
	CHECK_MEM(key, "hello world", 11);
	CHECK(kv_next_scan_entry(&view, &at, &entry, &key));
	CHECK_MEM(key, "hello again", 11);
	CHECK(!kv_next_scan_entry(&view, &at, &entry, &key));
	header.flags = 0;
	memcpy(message, &header, sizeof(header));
	CHECK(kv_decode_reply(message, length, &view));
	CHECK(kv_decode_reply(message, sizeof(header) - 1, &view));
	CHECK(!kv_decode_reply(message, sizeof(header), &view));
	CHECK(!view.value);
}

static void test_greetings(void)
{
	struct kv_hello hello = {.op = KV_OP_HELLO, .window = 3};
	struct kv_refuse refuse = {.op = KV_OP_REFUSE};
	uint8_t bytes[KV_MAX_GREETING];

	CHECK_EQ(kv_decode_greeting(&hello, sizeof(hello), bytes, sizeof(bytes)), KV_OP_HELLO);
	CHECK_EQ(kv_decode_greeting(&hello, sizeof(hello) - 1, bytes, sizeof(bytes)), 0);
	CHECK_EQ(kv_decode_greeting(&hello, 0, bytes, sizeof(bytes)), 0);
	CHECK_EQ(kv_decode_greeting(&hello, sizeof(hello), bytes, 10), 0);
	CHECK_EQ(kv_decode_greeting(&refuse, sizeof(refuse), bytes, sizeof(bytes)), KV_OP_REFUSE);
	memset(refuse.reason, 'x', sizeof(refuse.reason));
	CHECK_EQ(kv_decode_greeting(&refuse, sizeof(refuse), bytes, sizeof(bytes)), 0);
}

static void test_proofs(void)
{
	struct kv_secret secret = {.length = 20}, other = {.length = 20}, none = {0};
	uint8_t client[KV_NONCE_SIZE], server[KV_NONCE_SIZE], proof[KV_PROOF_SIZE];

	memset(secret.bytes, 1, 20);
	memset(other.bytes, 2, 20);
	CHECK_OK(kv_make_nonce(client));
	CHECK_OK(kv_make_nonce(server));
	CHECK(memcmp(client, server, sizeof(client)) != 0);
	CHECK(kv_prove(&secret, KV_CLIENT_PROVES, client, server, proof));
	CHECK(kv_proof_is_right(&secret, KV_CLIENT_PROVES, client, server, proof));
	/* Not the other way round, nor with other nonces, another secret, or none. */
	CHECK(!kv_proof_is_right(&secret, KV_SERVER_PROVES, client, server, proof));
	CHECK(!kv_proof_is_right(&secret, KV_CLIENT_PROVES, server, client, proof));
	CHECK(!kv_proof_is_right(&other, KV_CLIENT_PROVES, client, server, proof));
	CHECK(!kv_proof_is_right(&none, KV_CLIENT_PROVES, client, server, proof));
	proof[31] ^= 1;
	CHECK(!kv_proof_is_right(&secret, KV_CLIENT_PROVES, client, server, proof));
}

/* HMAC-SHA-256 is what others mean by it: the expected bytes were made by another program. */
static void test_known_proof(void)
{
	struct kv_secret secret = {.length = 16};
	uint8_t client[KV_NONCE_SIZE], server[KV_NONCE_SIZE], proof[KV_PROOF_SIZE];
	char text[2 * KV_PROOF_SIZE + 1];

	memcpy(secret.bytes, "0123456789abcdef", 16);
	memset(client, 'c', sizeof(client));
	memset(server, 's', sizeof(server));
	CHECK(kv_prove(&secret, KV_CLIENT_PROVES, client, server, proof));
	for (int i = 0; i < KV_PROOF_SIZE; i++)
		snprintf(text + 2 * i, 3, "%02x", proof[i]);
	CHECK_STR(text, "255688d7e116aab2e77caf66dbafdd1847a35fca95565c5155995a303c1235ba");
}

/* What a file of keys says, line by line. */
static void test_key_files(void)
{
	static const struct {
		const char *text, *problem;
		unsigned count;
	} files[] = {
		{"0123456789abcdef\n", NULL, 1},
		{"0123456789abcdef", NULL, 1},
		{"\n# a note\r\n0123456789abcdef\r\n0123456789abcdeF\n\n", NULL, 2},
		{"", "has no key", 0},
		{"# 0123456789abcdef\n\n", "has no key", 0},
		{"0123456789abcdef\nshort\n", "line 2 has 5 bytes", 0},
		{"0123456789abcdef\n0123456789abcdef\n", "line 2 repeats", 0},
		{"0123456789abcde1\n0123456789abcde2\n0123456789abcde3\n0123456789abcde4\n"
		 "0123456789abcde5\n0123456789abcde6\n0123456789abcde7\n0123456789abcde8\n"
		 "0123456789abcde9\n",
		 "more than 8 keys", 0},
	};
	struct kv_keyring ring;
	struct kv_secret first;
	char path[256];

	snprintf(path, sizeof(path), "%s/keys", test_tmpdir());
	for (size_t i = 0; i < TEST_COUNT(files); i++) {
		FILE *file = fopen(path, "w");

		CHECK(file && fputs(files[i].text, file) >= 0 && fclose(file) == 0);
		if (files[i].problem) {
			CHECK_STATUS(kv_keyring_read(&ring, path), RMR_INVALID);
			CHECK_CONTAINS(rmr_error_message(), files[i].problem);
			CHECK_STATUS(kv_secret_read(&first, path), RMR_INVALID);
			CHECK_EQ(first.length, 0);
			continue;
		}
		CHECK_OK(kv_keyring_read(&ring, path));
		CHECK_EQ(ring.count, files[i].count);
		CHECK_OK(kv_secret_read(&first, path));
		CHECK_EQ(first.length, 16);
		CHECK_MEM(first.bytes, "0123456789abcdef", 16);
		CHECK(kv_secret_is_equal(&first, &ring.secrets[0]));
		if (ring.count > 1)
			CHECK(!kv_secret_is_equal(&first, &ring.secrets[1]));
	}
}

static const struct test tests[] = {
	{"requests", test_requests},   {"keys_where_they_belong", test_keys_where_they_belong},
	{"replies", test_replies},     {"greetings", test_greetings},
	{"proofs", test_proofs},       {"known_proof", test_known_proof},
	{"key_files", test_key_files},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "kv_protocol", tests, TEST_COUNT(tests));
}
