/* The key-value protocol: see protocol.h. */
#include "kv/protocol.h"

#include <string.h>

bool kv_op_has_key(unsigned op)
{
	switch (op) {
	case KV_OP_GET:
	case KV_OP_PUT:
	case KV_OP_DELETE:
	case KV_OP_EXPIRE:
	case KV_OP_STAT:
	case KV_OP_ADD:
	case KV_OP_SWAP:
	case KV_OP_PIN:
	case KV_OP_PUT_BEGIN:
	case KV_OP_PUT_PULL:
		return true;
	default:
		return false;
	}
}

bool kv_op_changes(unsigned op)
{
	switch (op) {
	case KV_OP_PUT:
	case KV_OP_DELETE:
	case KV_OP_EXPIRE:
	case KV_OP_ADD:
	case KV_OP_SWAP:
	case KV_OP_FLUSH:
	case KV_OP_PUT_BEGIN:
	case KV_OP_PUT_PIECE:
	case KV_OP_PUT_PULL:
	case KV_OP_LANDING:
		return true;
	default:
		return false;
	}
}

const char *kv_op_name(unsigned op)
{
	static const char *const names[] = {
		[KV_OP_HELLO] = "HELLO",
		[KV_OP_CHALLENGE] = "CHALLENGE",
		[KV_OP_PROOF] = "PROOF",
		[KV_OP_WELCOME] = "WELCOME",
		[KV_OP_REFUSE] = "REFUSE",
		[KV_OP_GET] = "GET",
		[KV_OP_PUT] = "PUT",
		[KV_OP_DELETE] = "DELETE",
		[KV_OP_EXPIRE] = "EXPIRE",
		[KV_OP_STAT] = "STAT",
		[KV_OP_ADD] = "ADD",
		[KV_OP_SWAP] = "SWAP",
		[KV_OP_SCAN] = "SCAN",
		[KV_OP_FLUSH] = "FLUSH",
		[KV_OP_STATS] = "STATS",
		[KV_OP_PING] = "PING",
		[KV_OP_PIN] = "PIN",
		[KV_OP_UNPIN] = "UNPIN",
		[KV_OP_PUT_BEGIN] = "PUT_BEGIN",
		[KV_OP_PUT_PIECE] = "PUT_PIECE",
		[KV_OP_PUT_CANCEL] = "PUT_CANCEL",
		[KV_OP_LANDING] = "LANDING",
		[KV_OP_BUFFER] = "BUFFER",
		[KV_OP_CELLS] = "CELLS",
		[KV_OP_PUT_PULL] = "PUT_PULL",
		[KV_OP_COUNTS] = "COUNTS",
		[KV_OP_GOODBYE] = "GOODBYE",
	};

	if (op >= sizeof(names) / sizeof(names[0]) || !names[op])
		return "something unknown";
	return names[op];
}

static bool key_is_possible(unsigned op, size_t length)
{
	if (kv_op_has_key(op))
		return length >= 1 && length <= KV_MAX_KEY;
	return op == KV_OP_SCAN ? length <= KV_MAX_KEY : length == 0;
}

const char *kv_decode_request(const void *message, size_t length, struct kv_request_view *view)
{
	struct kv_request *header = &view->header;
	const uint8_t *bytes = message;

	if (length < sizeof(*header))
		return "a request shorter than its header";
	memcpy(header, bytes, sizeof(*header));
	if (!kv_op_is_request(header->op))
		return "an unknown request";
	if (!key_is_possible(header->op, header->key_length))
		return "a key of impossible length";
	if (header->touch_count > KV_MAX_TOUCHES)
		return "too many touches";
	if (header->reserved || header->map_epoch)
		return "reserved fields that are not 0";
	/* Bounded before it is added to anything. */
	if (kv_op_has_value(header->op) && header->value_length > length)
		return "a value longer than its message";
	if (kv_request_size(header) != length)
		return "a request of another length than it says";
	view->key = bytes + sizeof(*header);
	view->value = kv_op_has_value(header->op) ? view->key + header->key_length : NULL;
	view->touches = bytes + length - header->touch_count * sizeof(struct kv_touch);
	return NULL;
}

struct kv_touch kv_get_touch(const struct kv_request_view *view, unsigned number)
{
	struct kv_touch touch;

	memcpy(&touch, view->touches + number * sizeof(touch), sizeof(touch));
	return touch;
}

int kv_decode_greeting(const void *message, size_t length, void *greeting, size_t room)
{
	static const size_t sizes[] = {
		[KV_OP_HELLO] = sizeof(struct kv_hello),
		[KV_OP_CHALLENGE] = sizeof(struct kv_challenge),
		[KV_OP_PROOF] = sizeof(struct kv_proof),
		[KV_OP_WELCOME] = sizeof(struct kv_welcome),
		[KV_OP_REFUSE] = sizeof(struct kv_refuse),
	};
	unsigned op = length ? *(const uint8_t *)message : 0;

	if (op < KV_OP_HELLO || op > KV_OP_REFUSE || length != sizes[op] || length > room)
		return 0;
	memcpy(greeting, message, length);
	/* It may have been changed meanwhile. */
	if (*(uint8_t *)greeting != op)
		return 0;
	if (op == KV_OP_REFUSE && ((struct kv_refuse *)greeting)->reason[119])
		return 0;
	return (int)op;
}

static size_t padded(size_t key_length)
{
	return (key_length + 7) & ~(size_t)7;
}

bool kv_next_scan_entry(const struct kv_reply_view *view, size_t *at, struct kv_scan_entry *entry,
			const uint8_t **key)
{
	size_t left = view->value && *at <= view->value_length ? view->value_length - *at : 0;

	if (left < sizeof(*entry))
		return false;
	memcpy(entry, view->value + *at, sizeof(*entry));
	left -= sizeof(*entry);
	if (entry->key_length < 1 || entry->key_length > KV_MAX_KEY ||
	    padded(entry->key_length) > left)
		return false;
	*key = view->value + *at + sizeof(*entry);
	*at += sizeof(*entry) + padded(entry->key_length);
	return true;
}

size_t kv_add_scan_entry(uint8_t *to, size_t room, const struct kv_scan_entry *entry,
			 const void *key)
{
	size_t size = sizeof(*entry) + padded(entry->key_length);

	if (size > room)
		return 0;
	memcpy(to, entry, sizeof(*entry));
	memset(to + size - 8, 0, 8);
	memcpy(to + sizeof(*entry), key, entry->key_length);
	return size;
}
