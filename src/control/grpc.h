/*
 * gRPC: what both ends of the control plane know of its wire, without sockets and without HTTP/2.
 * The map of this folder:
 *
 *	grpc.h		this
 *	framing.c	messages in a stream of bytes: five bytes of prefix, then the message
 *	gzip.h, gzip.c	messages that are compressed
 *	metadata.c	status codes, percent-encoding of messages, time limits, content types
 *	plane.h, plane.c	what client and server say to each other over the data plane
 *	tls_files.h, tls_files.c	what is wrong with certificates and keys
 *	server/		the server: internal.h has its map
 *	client/		the client library of <remora/control.h>
 *
 * The messages themselves are in proto/; protoc-c makes control/proto/kv_cache.pb-c.h and so on of
 * them. Everything here is pure: bytes in, answers out. What comes from a peer is checked.
 */
#ifndef CONTROL_GRPC_H
#define CONTROL_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------------------------------
 * Status (metadata.c)
 */

/* The numbers of gRPC. */
enum grpc_status {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_ALREADY_EXISTS = 6,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_ABORTED = 10,
	GRPC_OUT_OF_RANGE = 11,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
	GRPC_DATA_LOSS = 15,
	GRPC_UNAUTHENTICATED = 16,
	GRPC_STATUS_COUNT,
};

/* "NOT_FOUND" and so on; "UNKNOWN" for numbers that are none. */
const char *grpc_status_name(unsigned status);
/* Reads a grpc-status trailer. What is none is GRPC_UNKNOWN. */
enum grpc_status grpc_status_parse(const uint8_t *text, size_t length);

/* ------------------------------------------------------------------------------------------
 * Headers (metadata.c)
 */

/* grpc-message: bytes outside of ' '..'~', and '%', become %XX. Writes at most `room` bytes and no
 * zero, cuts between letters; returns how many. */
size_t grpc_percent_encode(const char *text, char *to, size_t room);
/* The other way round. Wrong escapes are kept as they are. Writes a terminating zero. */
size_t grpc_percent_decode(const uint8_t *text, size_t length, char *to, size_t room);

/* grpc-timeout: 1 to 8 digits and a unit of H M S m u n. False: it is none. */
bool grpc_timeout_parse(const uint8_t *text, size_t length, uint64_t *timeout_ns);
#define GRPC_TIMEOUT_TEXT 12
/* Rounds up where the digits are not enough. Returns the length; the text ends with a zero. */
size_t grpc_timeout_format(uint64_t timeout_ns, char to[GRPC_TIMEOUT_TEXT]);

/* A list with commas, such as "identity,gzip", has this name in it. */
bool grpc_list_has(const uint8_t *text, size_t length, const char *name);

/* "application/grpc", also with "+proto" or parameters behind it. */
bool grpc_content_type_is_right(const uint8_t *text, size_t length);

/* ------------------------------------------------------------------------------------------
 * Framing (framing.c)
 *
 *	byte 0		1 if the message is compressed, else 0
 *	byte 1 .. 4	its length, most significant byte first
 *	byte 5 ..	the message
 */

#define GRPC_PREFIX 5u

static inline void grpc_prefix_write(uint8_t to[GRPC_PREFIX], uint32_t length)
{
	to[0] = 0; /* not compressed */
	to[1] = (uint8_t)(length >> 24);
	to[2] = (uint8_t)(length >> 16);
	to[3] = (uint8_t)(length >> 8);
	to[4] = (uint8_t)length;
}

/* Memory for messages that several readers share. Who takes from one takes from the one above it,
 * too, and may have at most one part in `share` of what is left there: so however many take as much
 * as they can, something is left for those who want little. */
struct grpc_budget {
	size_t used, most;
	struct grpc_budget *above; /* NULL: none */
	unsigned share;
};

/* False: that much is not left, and nothing was taken. */
bool grpc_budget_take(struct grpc_budget *budget, size_t bytes);
void grpc_budget_give(struct grpc_budget *budget, size_t bytes);

/* What came of feeding bytes. */
enum grpc_feed {
	GRPC_FEED_MORE,	      /* all were taken, and the message is not complete */
	GRPC_FEED_MESSAGE,    /* one is; take it, then feed the rest */
	GRPC_FEED_TOO_LONG,   /* longer than the limit; reader->length tells how long */
	GRPC_FEED_COMPRESSED, /* it is, and the call has named no encoding */
	GRPC_FEED_WRONG,      /* the first byte is neither 0 nor 1 */
	GRPC_FEED_NO_MEMORY,  /* the budget is used up, or the machine's memory */
};

/* Short messages need no memory of their own. */
#define GRPC_READER_INLINE 512u

/* Puts messages together. Memory grows with what has arrived, not with what was announced. */
struct grpc_reader {
	struct grpc_budget *budget; /* NULL: none */
	uint32_t max_length;
	bool takes_compressed; /* the caller can unpack messages; false after init */
	bool is_compressed;    /* this one is */
	uint32_t length;       /* of this message */
	uint32_t used;
	uint8_t prefix[GRPC_PREFIX];
	uint8_t prefix_used;
	uint8_t *bytes; /* the message; in `small`, or allocated */
	size_t room;
	uint8_t small[GRPC_READER_INLINE];
};

void grpc_reader_init(struct grpc_reader *reader, uint32_t max_length, struct grpc_budget *budget);
/* Legal on a zeroed one. */
void grpc_reader_fini(struct grpc_reader *reader);
/* Takes bytes until a message is complete; *taken tells how many. After a message, or anything
 * wrong: grpc_reader_next(), or grpc_reader_fini(). */
enum grpc_feed grpc_reader_feed(struct grpc_reader *reader, const uint8_t *bytes, size_t length,
				size_t *taken);
/* Begins with the next message. */
void grpc_reader_next(struct grpc_reader *reader);
/* Whether bytes of a message have come that is not complete. */
static inline bool grpc_reader_is_inside(const struct grpc_reader *reader)
{
	return reader->prefix_used > 0;
}

#endif
