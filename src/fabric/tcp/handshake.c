/*
 * Encoding and decoding of the handshake. See handshake.h for the bytes and who sends them
 * when.
 *
 * Everything that arrives here comes from whoever can reach the port. A decoded handshake is
 * within limits in all fields: the windows are not zero, so that a connection cannot be stuck
 * from birth, and no number is so large that it could overflow in later sums.
 */
#include "fabric/tcp/handshake.h"

#include <endian.h>
#include <string.h>

#include "fabric/tcp/limits.h"

static void swap_fields(struct handshake *handshake)
{
	handshake->magic = le32toh(handshake->magic);
	handshake->version = le16toh(handshake->version);
	handshake->recv_size = le64toh(handshake->recv_size);
	handshake->depth = le32toh(handshake->depth);
	handshake->window_messages = le32toh(handshake->window_messages);
	handshake->window_bytes = le32toh(handshake->window_bytes);
	handshake->zero = le32toh(handshake->zero);
}

static const char *find_fault(const struct handshake *handshake)
{
	if (handshake->kind < HANDSHAKE_HELLO || handshake->kind > HANDSHAKE_REJECT)
		return "a greeting of unknown kind";
	if (handshake->zero != 0)
		return "a greeting with a field that must be zero";
	if (handshake->kind == HANDSHAKE_REJECT)
		return handshake->body_length > HANDSHAKE_BODY_MAX ? "an endless reason" : NULL;
	if (handshake->body_length > RMR_PRIVATE_MAX)
		return "too much private data";
	if (handshake->recv_size > TCP_MESSAGE_MAX)
		return "messages longer than the limit";
	if (handshake->depth == 0 || handshake->depth > TCP_DEPTH_MAX)
		return "a depth outside the limits";
	if (handshake->window_messages == 0 || handshake->window_messages > TCP_WINDOW_MESSAGES_MAX)
		return "a message window outside the limits";
	if (handshake->window_bytes < TCP_EAGER_MAX ||
	    handshake->window_bytes > TCP_WINDOW_BYTES_MAX)
		return "a byte window outside the limits";
	return NULL;
}

enum handshake_result handshake_decode(const uint8_t *bytes, size_t available,
				       struct handshake *handshake, const char **reason)
{
	uint32_t magic = htole32(HANDSHAKE_MAGIC);

	*reason = NULL;
	if (memcmp(bytes, &magic, available < sizeof(magic) ? available : sizeof(magic)) != 0) {
		*reason = "not a Remora greeting";
		return HANDSHAKE_BAD;
	}
	if (available < HANDSHAKE_SIZE)
		return HANDSHAKE_MORE;
	memcpy(handshake, bytes, sizeof(*handshake));
	swap_fields(handshake);
	if (handshake->version != HANDSHAKE_VERSION)
		return HANDSHAKE_VERSION_DIFFERS;
	*reason = find_fault(handshake);
	return *reason ? HANDSHAKE_BAD : HANDSHAKE_DONE;
}

void handshake_encode(uint8_t *to, const struct handshake *handshake)
{
	struct handshake wire = *handshake;

	wire.magic = HANDSHAKE_MAGIC;
	wire.version = HANDSHAKE_VERSION;
	assert(!find_fault(&wire));
	swap_fields(&wire);
	memcpy(to, &wire, sizeof(wire));
}

void handshake_encode_reject(uint8_t *to, const char *reason)
{
	struct handshake reject = {.kind = HANDSHAKE_REJECT};
	size_t length = strnlen(reason, HANDSHAKE_BODY_MAX);

	reject.body_length = (uint8_t)length;
	memcpy(reject.body, reason, length);
	handshake_encode(to, &reject);
}
