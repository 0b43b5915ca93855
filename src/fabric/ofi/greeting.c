/*
 * Encoding and decoding of the greeting. See greeting.h for the bytes.
 *
 * What arrives here comes from whoever can reach the port. The address is checked for its length
 * only: it goes to libfabric, which knows the format. A wrong one reaches nobody, and costs the
 * peer its own connection.
 */
#include "fabric/ofi/greeting.h"

#include <endian.h>
#include <string.h>

static const char *find_fault(const struct greeting *greeting)
{
	/* A refusal says nothing of an endpoint. */
	if (greeting->handshake.kind == HANDSHAKE_REJECT)
		return NULL;
	if (!(greeting->mode & GREETING_PACKED) || (greeting->mode & ~GREETING_ALL))
		return "a greeting of an unknown mode";
	if (greeting->token == 0)
		return "a greeting without a token";
	if (greeting->address_length == 0 || greeting->address_length > GREETING_ADDRESS_MAX)
		return "an endpoint address of impossible length";
	if (greeting->provider[0] == 0 || greeting->provider[GREETING_PROVIDER_MAX - 1] != 0)
		return "a provider without a name";
	return NULL;
}

enum handshake_result ofi_greeting_decode(const uint8_t *bytes, size_t available,
					  struct greeting *greeting, const char **reason)
{
	uint32_t magic = htole32(GREETING_MAGIC);
	enum handshake_result result;

	*reason = NULL;
	if (memcmp(bytes, &magic, available < sizeof(magic) ? available : sizeof(magic)) != 0) {
		*reason = "not a Remora greeting";
		return HANDSHAKE_BAD;
	}
	if (available < GREETING_SIZE)
		return HANDSHAKE_MORE;
	memcpy(greeting, bytes, sizeof(*greeting));
	greeting->magic = le32toh(greeting->magic);
	greeting->version = le16toh(greeting->version);
	greeting->token = le64toh(greeting->token);
	if (greeting->version != GREETING_VERSION)
		return HANDSHAKE_VERSION_DIFFERS;
	result = handshake_decode(bytes + offsetof(struct greeting, handshake), HANDSHAKE_SIZE,
				  &greeting->handshake, reason);
	if (result != HANDSHAKE_DONE)
		return result;
	*reason = find_fault(greeting);
	return *reason ? HANDSHAKE_BAD : HANDSHAKE_DONE;
}

void ofi_greeting_encode(uint8_t *to, const struct greeting *greeting, const uint8_t *handshake)
{
	struct greeting wire = *greeting;

	wire.magic = htole32(GREETING_MAGIC);
	wire.version = htole16(GREETING_VERSION);
	wire.token = htole64(wire.token);
	memcpy(to, &wire, sizeof(wire));
	memcpy(to + offsetof(struct greeting, handshake), handshake, HANDSHAKE_SIZE);
}

void ofi_greeting_encode_reject(uint8_t *to, const char *reason)
{
	uint8_t handshake[HANDSHAKE_SIZE];

	handshake_encode_reject(handshake, reason);
	ofi_greeting_encode(to, &(struct greeting){.mode = GREETING_PACKED}, handshake);
}
