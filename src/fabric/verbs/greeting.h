/*
 * What two ends tell each other when they meet, on either way: 56 bytes, which is what RDMA CM
 * leaves to a caller. Little-endian.
 *
 *	 0               4         5      6         7      8            12          16
 *	+---------------+---------+------+---------+------+------------+-----------+
 *	|     magic     | version | kind | private | zero | recv_size  |   zero    |
 *	+---------------+---------+------+---------+------+------------+-----------+
 *	|           secret            |   private data, 32 bytes                   |
 *	+-----------------------------+--------------------------------------------+ 56
 *
 * recv_size is the longest message that this end takes. The secret goes into the descriptors that
 * this end will grant on the connection (region.c). A refusal has text instead of secret and
 * private data: at most GREETING_TEXT_MAX bytes, `private` long; by RDMA CM there is room for it.
 * Pure functions: the fuzzer drives them.
 */
#ifndef FABRIC_VERBS_GREETING_H
#define FABRIC_VERBS_GREETING_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <remora/fabric.h>

#define GREETING_MAGIC	  0x76726d52u /* "Rmrv" */
#define GREETING_VERSION  1
#define GREETING_SIZE	  56
#define GREETING_TEXT_MAX 120
#define REFUSAL_SIZE	  (16 + GREETING_TEXT_MAX)

enum greeting_kind {
	GREETING_HELLO = 1,
	GREETING_ACCEPT,
	GREETING_REJECT,
};

struct greeting {
	uint32_t magic;
	uint8_t version;
	uint8_t kind;
	uint8_t private_length;
	uint8_t zero1;
	uint32_t recv_size;
	uint32_t zero2;
	uint64_t secret;
	uint8_t private_data[RMR_PRIVATE_MAX];
};
static_assert(sizeof(struct greeting) == GREETING_SIZE, "a greeting is its bytes");

/* Writes GREETING_SIZE bytes; magic and version are filled in here. */
void greeting_encode(uint8_t *to, const struct greeting *greeting);
/* Takes a HELLO or an ACCEPT. NULL when it is good, else what is wrong with it; when it is one of
 * ours, but of another version, *other_version is set. */
const char *greeting_decode(const uint8_t *bytes, size_t length, struct greeting *greeting,
			    bool *other_version);

/* Writes a refusal; returns its length, at most REFUSAL_SIZE. */
size_t refusal_encode(uint8_t *to, const char *reason);
/* The text of a refusal, made printable; false when it is none of ours. */
bool refusal_decode(const uint8_t *bytes, size_t length, char text[GREETING_TEXT_MAX + 1]);

#endif
