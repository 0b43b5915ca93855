/*
 * The first bytes of a tcp connection. The caller introduces itself, the listener answers; then
 * frames (frame.h) flow both ways. All three messages have one shape, little-endian:
 *
 *	 0               4        6      7         8                          16
 *	+---------------+--------+------+---------+--------------------------+
 *	|     magic     | version| kind | body    |        recv_size         |
 *	|               |        |      |  length |                          |
 *	+---------------+--------+------+---------+--------------------------+
 *	|     depth     | window_messages         | window_bytes |   zero    |
 *	+---------------+-------------------------+--------------+-----------+ 32
 *	| body: private data (HELLO, ACCEPT) or the reason as text (REJECT)  |
 *	+--------------------------------------------------------------------+ 128
 *
 *	caller				listener
 *	HELLO    ------------------->	within handshake_timeout_ms, else dropped
 *		 <-------------------	ACCEPT, followed by frames at once; or REJECT, then close
 *	frames   <------------------>	the caller sends none before it has the answer
 *
 * Each side says what it takes: recv_size is its longest message; the windows are how many
 * messages and bytes of messages may be under way to it, beyond those it has delivered; and
 * depth is how many requests it will have in flight itself. Pure functions, no sockets: the
 * fuzzer drives them.
 */
#ifndef FABRIC_TCP_HANDSHAKE_H
#define FABRIC_TCP_HANDSHAKE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <remora/fabric.h>

#define HANDSHAKE_MAGIC	   0x74726d52u /* "Rmrt" */
#define HANDSHAKE_VERSION  1
#define HANDSHAKE_SIZE	   128
#define HANDSHAKE_BODY_MAX 96

enum handshake_kind {
	HANDSHAKE_HELLO = 1,
	HANDSHAKE_ACCEPT,
	HANDSHAKE_REJECT,
};

struct handshake {
	uint32_t magic;
	uint16_t version;
	uint8_t kind;
	uint8_t body_length;
	uint64_t recv_size;
	uint32_t depth;
	uint32_t window_messages;
	uint32_t window_bytes;
	uint32_t zero;
	uint8_t body[HANDSHAKE_BODY_MAX];
};
static_assert(sizeof(struct handshake) == HANDSHAKE_SIZE, "a handshake is its bytes");
static_assert(RMR_PRIVATE_MAX <= HANDSHAKE_BODY_MAX, "private data fits");

enum handshake_result {
	HANDSHAKE_MORE,		   /* good so far; more bytes are needed */
	HANDSHAKE_DONE,		   /* a message; all its fields are within limits */
	HANDSHAKE_VERSION_DIFFERS, /* one of ours, but of another version: say so and part */
	HANDSHAKE_BAD,		   /* something else */
};

/* Decodes `available` bytes (more than HANDSHAKE_SIZE are not looked at). Tells a stranger by its
 * first wrong byte. On HANDSHAKE_BAD *reason says why. */
enum handshake_result handshake_decode(const uint8_t *bytes, size_t available,
				       struct handshake *handshake, const char **reason);

/* Writes HANDSHAKE_SIZE bytes; magic and version are filled in here. */
void handshake_encode(uint8_t *to, const struct handshake *handshake);

/* A REJECT with this text, cut to what fits. */
void handshake_encode_reject(uint8_t *to, const char *reason);

#endif
