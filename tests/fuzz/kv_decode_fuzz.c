/*
 * Fuzzes the decoder of the key-value protocol: requests, replies, greetings and scan entries. What
 * it accepts must lie within the message, and encode to the same bytes again.
 */
#include <stdlib.h>
#include <string.h>

#include "kv/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void try_request(const uint8_t *data, size_t size)
{
	struct kv_touch touches[KV_MAX_TOUCHES];
	struct kv_request_view view;
	uint8_t *again;

	if (kv_decode_request(data, size, &view))
		return;
	require(view.key >= data && view.key + view.header.key_length <= data + size);
	if (view.value)
		require(view.value + view.header.value_length <= data + size);
	for (unsigned i = 0; i < view.header.touch_count; i++)
		touches[i] = kv_get_touch(&view, i);
	require(kv_request_size(&view.header) == size);
	again = malloc(size);
	require(kv_encode_request(again, &view.header, view.key, view.value, touches) ==
		again + size);
	require(memcmp(again, data, size) == 0);
	free(again);
}

static void try_reply(const uint8_t *data, size_t size)
{
	struct kv_reply_view view;
	struct kv_scan_entry entry;
	const uint8_t *key;
	size_t at = 0;

	if (kv_decode_reply(data, size, &view))
		return;
	require(!view.value || view.value + view.value_length == data + size);
	while (kv_next_scan_entry(&view, &at, &entry, &key)) {
		require(key >= data && key + entry.key_length <= data + size);
		require(at <= view.value_length);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t greeting[KV_MAX_GREETING];
	/* A copy of exactly this size: whoever reads beyond it is seen. */
	uint8_t *copy = malloc(size ? size : 1);

	memcpy(copy, data, size);
	try_request(copy, size);
	try_reply(copy, size);
	require(kv_op_name(size ? data[0] : 0) != NULL);
	if (kv_decode_greeting(copy, size, greeting, sizeof(greeting)))
		require(size <= sizeof(greeting));
	free(copy);
	return 0;
}
