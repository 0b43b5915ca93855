/*
 * The first bytes of an ofi connection, by a plain TCP connection that stays open as long as it.
 * The caller introduces itself, the listener answers, both in one shape, little-endian:
 *
 *	 0               4        6         7      8                          16
 *	+---------------+--------+---------+------+--------------------------+
 *	|     magic     | version| address | mode |          token           |
 *	|               |        |  length |      |                          |
 *	+---------------+--------+---------+------+--------------------------+
 *	| provider: libfabric's name of it, "tcp;ofi_rxm", zeros behind it   |
 *	+--------------------------------------------------------------------+ 40
 *	| address of the endpoint, as libfabric writes it, zeros behind it   |
 *	+--------------------------------------------------------------------+ 96
 *	| a handshake of the tcp provider (fabric/tcp/handshake.h)           |
 *	+--------------------------------------------------------------------+ 224
 *
 * The token is what packets to this side have to carry: 64 bits of which 48 are random. Both sides
 * must be on the same provider. Later on there are words of 8 bytes by the same socket. The caller
 * may ask for a door, once, and is told the port where it is (door.c). Whoever wants to be heard
 * rings, and is told when he has to ring again (sleep.c). Each side, when it hangs up, says how
 * many packets it has sent, so that the other one takes in all of them before it counts the
 * connection as ended.
 *
 *	+---------------+---------------+
 *	|     door      |     port      |	0: it asks for one
 *	+---------------+---------------+
 *	|     bell      |    packets    |	that will have been sent, with what it rings for
 *	+---------------+---------------+
 *	|    asleep     |    packets    |	that it has taken in
 *	+---------------+---------------+
 *	|      bye      |    packets    |	then the end of the stream
 *	+---------------+---------------+
 *
 * Pure functions, no sockets.
 */
#ifndef FABRIC_OFI_GREETING_H
#define FABRIC_OFI_GREETING_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/tcp/handshake.h"

#define GREETING_MAGIC	      0x6f726d52u /* "Rmro" */
#define GREETING_BYE	      0x62726d52u /* "Rmrb" */
#define GREETING_DOOR	      0x64726d52u /* "Rmrd" */
#define GREETING_BELL	      0x6c726d52u /* "Rmrl" */
#define GREETING_ASLEEP	      0x73726d52u /* "Rmrs" */
#define GREETING_VERSION      2
#define GREETING_SIZE	      224
#define GREETING_PROVIDER_MAX 24
#define GREETING_ADDRESS_MAX  56

/* What is said of the one who greets, one bit each: packets will do for all (always there); the
 * data of long READs can go straight to its memory (lend.c); it must be rung for (sleep.c). */
#define GREETING_PACKED 1
#define GREETING_PUSHED 2
#define GREETING_RUNG	4
#define GREETING_ALL	(GREETING_PACKED | GREETING_PUSHED | GREETING_RUNG)

struct greeting {
	uint32_t magic;
	uint16_t version;
	uint8_t address_length;
	uint8_t mode;
	uint64_t token;
	char provider[GREETING_PROVIDER_MAX];
	uint8_t address[GREETING_ADDRESS_MAX];
	struct handshake handshake;
};
static_assert(sizeof(struct greeting) == GREETING_SIZE, "a greeting is its bytes");

struct greeting_word {
	uint32_t magic;
	uint32_t value;
};

/* Decodes `available` bytes, 1..GREETING_SIZE. Tells a stranger by its first wrong byte. When it is
 * HANDSHAKE_DONE all fields are within limits and the provider's name ends with a zero. */
enum handshake_result ofi_greeting_decode(const uint8_t *bytes, size_t available,
					  struct greeting *greeting, const char **reason);

/* Writes GREETING_SIZE bytes; magic and version are filled in here. handshake is its bytes. */
void ofi_greeting_encode(uint8_t *to, const struct greeting *greeting, const uint8_t *handshake);

/* A refusal with this text, cut to what fits. */
void ofi_greeting_encode_reject(uint8_t *to, const char *reason);

#endif
