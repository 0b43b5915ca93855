/* Greetings and refusals as bytes: see greeting.h. */
#include <stdio.h>
#include <string.h>

#include "fabric/verbs/greeting.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "greetings are sent as they lie");

#define HEADER_SIZE offsetof(struct greeting, secret)

void greeting_encode(uint8_t *to, const struct greeting *greeting)
{
	struct greeting bytes = *greeting;

	bytes.magic = GREETING_MAGIC;
	bytes.version = GREETING_VERSION;
	bytes.zero1 = 0;
	bytes.zero2 = 0;
	memcpy(to, &bytes, sizeof(bytes));
}

const char *greeting_decode(const uint8_t *bytes, size_t length, struct greeting *greeting,
			    bool *other_version)
{
	*other_version = false;
	/* RDMA CM hands over all the room there is, zeros behind what was sent. */
	if (length < GREETING_SIZE)
		return "too short to be a greeting of ours";
	memcpy(greeting, bytes, sizeof(*greeting));
	if (greeting->magic != GREETING_MAGIC)
		return "no greeting of ours";
	if (greeting->version != GREETING_VERSION) {
		*other_version = true;
		return "another version of the protocol";
	}
	if (greeting->kind != GREETING_HELLO && greeting->kind != GREETING_ACCEPT)
		return "a greeting of an unknown kind";
	if (greeting->private_length > RMR_PRIVATE_MAX)
		return "more private data than fits";
	if (greeting->zero1 || greeting->zero2)
		return "bits that mean nothing in this version";
	if (greeting->recv_size == 0)
		return "takes no messages";
	return NULL;
}

size_t refusal_encode(uint8_t *to, const char *reason)
{
	size_t length = strnlen(reason, GREETING_TEXT_MAX);
	struct greeting header = {
		.magic = GREETING_MAGIC,
		.version = GREETING_VERSION,
		.kind = GREETING_REJECT,
		.private_length = (uint8_t)length,
	};

	memcpy(to, &header, HEADER_SIZE);
	memcpy(to + HEADER_SIZE, reason, length);
	return HEADER_SIZE + length;
}

bool refusal_decode(const uint8_t *bytes, size_t length, char text[GREETING_TEXT_MAX + 1])
{
	struct greeting header = {0};

	if (length < HEADER_SIZE)
		return false;
	memcpy(&header, bytes, HEADER_SIZE);
	/* Of any version: so that whoever refuses us for ours can say so. */
	if (header.magic != GREETING_MAGIC || header.kind != GREETING_REJECT ||
	    header.private_length > GREETING_TEXT_MAX ||
	    header.private_length > length - HEADER_SIZE)
		return false;
	for (size_t i = 0; i < header.private_length; i++) {
		uint8_t c = bytes[HEADER_SIZE + i];

		text[i] = c >= ' ' && c <= '~' ? (char)c : '?'; /* it goes to a terminal */
	}
	text[header.private_length] = '\0';
	return true;
}
