/*
 * The key-value protocol: the bytes of every message. docs/protocol.md tells the same in prose.
 *
 * Pure: encodes into and decodes from memory, knows no connection. All numbers are little-endian.
 * What is decoded points into the message; everything is checked against the message's length, and
 * a message that is not exactly as long as its parts say is refused.
 *
 * A conversation, over one connection of the fabric:
 *
 *	client					server
 *	connect, with struct kv_introduction	accept
 *	HELLO		------------->
 *			<-------------		CHALLENGE	a nonce, and whether a key is needed
 *	PROOF		------------->				HMAC of both nonces
 *			<-------------		WELCOME		limits, what the client may reach
 *	requests	------------->
 *			<-------------		replies, in any order, by id
 *			<-------------		GOODBYE		before the server closes
 *
 * A request is a SEND, or a WRITE_IMM into the client's landing buffer, whose immediate is the
 * request's place there in units of KV_PLACE; that is for requests too long for a SEND. How long
 * such a request is, its header says. A reply is a SEND. Ids go up by one from 1, and at most
 * `window` requests wait for their reply: anything else ends the connection. So does whatever
 * makes no sense; GOODBYE tells why.
 *
 *	request:   struct kv_request | key | value | touches
 *	reply:     struct kv_reply | value, text or entries
 *
 * Touches are places that the client read by itself lately, so that the server knows what is used.
 *
 * Whoever sent a message may still change it while it is read (it may lie in memory that both have
 * mapped): headers are copied before they are looked at, and so must keys be.
 */
#ifndef KV_PROTOCOL_H
#define KV_PROTOCOL_H

#include <assert.h>
#include <remora/fabric.h>
#include <remora/kv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KV_PROTOCOL_MAGIC   0x766b5261u /* "aRkv" */
#define KV_PROTOCOL_VERSION 2u

#define KV_NONCE_SIZE	  16
#define KV_CLIENT_ID_SIZE 16
#define KV_PROOF_SIZE	  32
#define KV_MAX_TOUCHES	  32u
#define KV_MAX_GREETING	  512u /* bytes of any message before WELCOME, and WELCOME's */
#define KV_PLACE	  64u  /* a request in the landing buffer begins at a multiple of this */
#define KV_MAX_WINDOW	  1024u
#define KV_MIN_WINDOW	  8u /* a client needs some requests to make others possible */

/* Private data of connect. */
struct kv_introduction {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
};

static_assert(sizeof(struct kv_introduction) <= RMR_PRIVATE_MAX, "fits into private data");

/*
 * A client that reads the mapped arena by itself answers from it only while it knows that the
 * server lived less than KV_SILENCE_MS ago, by its own clock. A server that owns its addresses
 * waits for KV_SUCCESSION_MS before it takes its first client: by then no client answers from a
 * predecessor's memory. What lies between covers clocks that do not run at the same speed.
 * client/life.c has the argument.
 */
#define KV_SILENCE_MS	 100u
#define KV_SUCCESSION_MS 120u
static_assert(KV_SUCCESSION_MS >= KV_SILENCE_MS + 20, "a successor outwaits all readers");

/* How the reason begins when a caller is turned down because others are served: it can try again
 * later. */
#define KV_TOO_MANY_CLIENTS "too many clients"

enum kv_op {
	/* Before anything else. */
	KV_OP_HELLO = 1,
	KV_OP_CHALLENGE,
	KV_OP_PROOF,
	KV_OP_WELCOME,
	KV_OP_REFUSE, /* instead of CHALLENGE or WELCOME; the server closes then */
	/* Requests. */
	KV_OP_GET = 16,
	KV_OP_PUT,
	KV_OP_DELETE,
	KV_OP_EXPIRE, /* a new time to live */
	KV_OP_STAT,
	KV_OP_ADD,
	KV_OP_SWAP,
	KV_OP_SCAN,
	KV_OP_FLUSH,
	KV_OP_STATS,
	KV_OP_PING,
	KV_OP_PIN, /* the item keeps its place and bytes until UNPIN: for views and long READs */
	KV_OP_UNPIN,
	KV_OP_PUT_BEGIN,  /* rendezvous: the value follows in pieces */
	KV_OP_PUT_PIECE,  /* the last one, with KV_FINAL, makes the put happen */
	KV_OP_PUT_CANCEL, /* no more pieces follow */
	KV_OP_LANDING,	  /* asks for a landing buffer */
	KV_OP_BUFFER,	  /* tells of the client's own, into which the server may push */
	KV_OP_CELLS,	  /* the client has forgotten all cells of epochs before this one */
	KV_OP_PUT_PULL,	  /* rendezvous: the server READs the value from the client's memory */
	KV_OP_COUNTS,	  /* gets that the client made by itself since the last of these */
	KV_OP_END_OF_REQUESTS,
	/* From the server without a request. KV_OK: it stops. Else the client is thrown out, and a
	 * text says why. Either way what was answered was carried out, and nothing else was or will
	 * be, but for atomics. */
	KV_OP_GOODBYE = 64,
};

/* ------------------------------------------------------------------------------------------
 * Greeting
 */

enum kv_capability {
	KV_CAN_READ = 1 << 0,  /* the arena may be read: its descriptor is there */
	KV_CAN_WRITE = 1 << 1, /* requests that change something are permitted */
	KV_CAN_COUNT = 1 << 2, /* cells may be added to by atomics: their descriptor is there */
	KV_CAN_PULL = 1 << 3,  /* PUT_PULL is understood */
};

struct kv_hello {
	uint8_t op;
	uint8_t reserved[3];
	uint32_t window; /* wanted */
	uint8_t nonce[KV_NONCE_SIZE];
	/* Random, the same for all connections of a client; all 0: the client does not say. The
	 * server ends its connections of lower session numbers before it sends WELCOME. */
	uint8_t client_id[KV_CLIENT_ID_SIZE];
	uint64_t session;
};

struct kv_challenge {
	uint8_t op;
	uint8_t needs_proof; /* 0 or 1; without, the client's proof may be anything */
	uint8_t reserved[6];
	uint8_t nonce[KV_NONCE_SIZE];
};

struct kv_proof {
	uint8_t op;
	uint8_t reserved[7];
	uint8_t proof[KV_PROOF_SIZE]; /* auth.h */
};

struct kv_welcome {
	uint8_t op;
	uint8_t reserved[3];
	uint32_t capabilities;
	uint32_t window;
	uint32_t map_epoch; /* 0 on a single node */
	uint32_t cells_epoch;
	uint32_t eager_limit; /* key and value of a request in a SEND, in bytes */
	uint64_t instance;    /* of the store */
	uint64_t server_time_ms;
	uint64_t max_value;
	uint64_t landing_size; /* that can be asked for; 0: none */
	uint32_t max_pins;     /* of this client */
	uint32_t reserved2;
	uint8_t proof[KV_PROOF_SIZE]; /* that the server knows the key, too; else 0 */
	struct rmr_descriptor arena;
	struct rmr_descriptor cells;
};

struct kv_refuse {
	uint8_t op;
	uint8_t reserved[3];
	int32_t status;
	char reason[120]; /* ends with 0 */
};

static_assert(sizeof(struct kv_hello) == 48, "wire");
static_assert(sizeof(struct kv_challenge) == 24, "wire");
static_assert(sizeof(struct kv_proof) == 40, "wire");
static_assert(offsetof(struct kv_welcome, instance) == 24, "wire");
static_assert(offsetof(struct kv_welcome, arena) == 96, "wire");
static_assert(sizeof(struct kv_welcome) == 224, "wire");
static_assert(sizeof(struct kv_refuse) == 128, "wire");
static_assert(sizeof(struct kv_welcome) <= KV_MAX_GREETING, "wire");

/* ------------------------------------------------------------------------------------------
 * Requests and replies
 */

enum kv_request_flag {
	KV_PUSH = 1 << 0,	  /* GET: into our buffer if it is too long for the reply */
	KV_FINAL = 1 << 1,	  /* PUT_PIECE: the last one */
	KV_CONDITION_SHIFT = 2,	  /* PUT, PUT_BEGIN, PUT_PULL: two bits, enum kv_condition */
	KV_GO_BEHIND = 1 << 4,	  /* SCAN: the client knows what KV_AMONG means */
	KV_TELL = 1 << 5,	  /* PUT_PULL: the client knows what KV_PROGRESS means */
	KV_MAY_LOSE_OLD = 1 << 6, /* PUT, PUT_BEGIN, PUT_PULL: the old value may go first */
};

struct kv_request {
	uint8_t op;
	uint8_t flags;
	uint16_t key_length;
	uint32_t id;
	uint32_t map_epoch; /* 0 */
	uint16_t touch_count;
	uint16_t reserved;
	uint64_t value_length; /* PUT, PUT_PIECE: of the value that follows. BUFFER, PUT_PULL: of
				* the descriptor that follows. PUT_BEGIN: of all pieces together.
				* GET: the longest that the client can take */
	uint64_t version;      /* PUT, PUT_BEGIN, PUT_PULL, DELETE: the condition's, DELETE: 0 is
				* any. SWAP: the number that is expected */
	uint64_t argument;     /* PUT, PUT_BEGIN, PUT_PULL, EXPIRE: ttl in ms. ADD: delta. SWAP: the
				* number to set. SCAN: cursor. STATS: which part. UNPIN: handle.
				* PUT_PIECE, PUT_CANCEL: the id of PUT_BEGIN, or, to cancel it, of
				* PUT_PULL. LANDING: size. CELLS: epoch. COUNTS: gets that found a
				* value */
	uint64_t place;	       /* GET with KV_PUSH: where in our buffer. PUT_PIECE: where in the
				* value. PUT_PULL: bytes of the value, with which the client's
				* memory begins. SCAN: how many keys. COUNTS: gets that found
				* none */
};

enum kv_reply_flag {
	KV_HAS_VALUE = 1 << 0, /* it follows: of KV_OK a value, else a text that says why */
	KV_PUSHED = 1 << 1,    /* GET: it is in our buffer */
	KV_AMONG = 1 << 2,     /* SCAN: more keys lie at the cursor's place. Ask with that cursor
				* and, as the request's key, the key of the last entry */
	KV_PROGRESS = 1 << 3,  /* PUT_PULL: this is no answer yet; `number` bytes have come so far,
				* more than the last time */
};

struct kv_reply {
	uint8_t op; /* that of the request */
	uint8_t flags;
	int16_t status; /* enum kv_status */
	uint32_t id;	/* that of the request */
	uint32_t map_epoch;
	uint32_t cells_epoch;	 /* grown: forget all cells, then say so by CELLS */
	uint64_t server_time_ms; /* store time */
	uint64_t version;
	uint64_t value_length; /* the item's; also with KV_BUFFER_TOO_SMALL */
	uint64_t expires_ms;   /* store time; 0: never */
	uint64_t offset;       /* of the item in the arena; 0: not told */
	uint64_t number;       /* ADD: sum. SWAP: what was found. SCAN, STATS: where to go on, 0:
				* the end. PIN: handle. LANDING: size. KV_PROGRESS: bytes */
	uint64_t cell;	       /* of a counter; KV_NO_CELL: none */
};

#define KV_NO_CELL UINT64_MAX
/* A version that no value ever has. In a request: one that is not the current one. */
#define KV_NO_VERSION UINT64_MAX

/* A place that was read. */
struct kv_touch {
	uint64_t offset;
	uint64_t version;
};

/* One key of a scan: followed by the key, rounded up to 8 with zeroes. */
struct kv_scan_entry {
	uint64_t version;
	uint64_t value_length;
	uint64_t expires_ms;
	uint32_t key_length;
	uint32_t reserved;
};

static_assert(sizeof(struct kv_request) == 48, "wire");
static_assert(offsetof(struct kv_request, value_length) == 16, "wire");
static_assert(sizeof(struct kv_reply) == 72, "wire");
static_assert(offsetof(struct kv_reply, server_time_ms) == 16, "wire");
static_assert(sizeof(struct kv_touch) == 16, "wire");
static_assert(sizeof(struct kv_scan_entry) == 32, "wire");

/* What a request has beside key and value, at most. */
#define KV_REQUEST_EXTRA (sizeof(struct kv_request) + KV_MAX_TOUCHES * sizeof(struct kv_touch))
/* Every key must fit into a SEND, and two keys of a scan into a reply: so many may have to be told
 * together to a client that does not know KV_GO_BEHIND. */
#define KV_MIN_EAGER KV_MAX_KEY
#define KV_MIN_REPLY                                                                               \
	(sizeof(struct kv_reply) + 2 * (sizeof(struct kv_scan_entry) + (size_t)KV_MAX_KEY))

/* ------------------------------------------------------------------------------------------
 * Decoding
 */

static inline bool kv_op_is_request(unsigned op)
{
	return op >= KV_OP_GET && op < KV_OP_END_OF_REQUESTS;
}

/* A request whose parts lie in the message. */
struct kv_request_view {
	struct kv_request header;
	const uint8_t *key;
	const uint8_t *value;	/* NULL: none follows */
	const uint8_t *touches; /* kv_get_touch */
};

/* NULL: it is right. Else what is wrong with it, for the log. */
const char *kv_decode_request(const void *message, size_t length, struct kv_request_view *view);

struct kv_reply_view {
	struct kv_reply header;
	const uint8_t *value; /* NULL: none follows */
	size_t value_length;  /* of what follows */
};

/* Here, as kv_encode_request() is, so that whoever knows the op is spared the rest. */
static inline const char *kv_decode_reply(const void *message, size_t length,
					  struct kv_reply_view *view)
{
	struct kv_reply *header = &view->header;

	if (length < sizeof(*header))
		return "a reply shorter than its header";
	memcpy(header, message, sizeof(*header));
	if (header->op != KV_OP_GOODBYE && !kv_op_is_request(header->op))
		return "a reply to no request";
	if (!(header->flags & KV_HAS_VALUE) && length != sizeof(*header))
		return "a reply of another length than it says";
	view->value_length = length - sizeof(*header);
	view->value =
		header->flags & KV_HAS_VALUE ? (const uint8_t *)message + sizeof(*header) : NULL;
	return NULL;
}

struct kv_touch kv_get_touch(const struct kv_request_view *view, unsigned number);

/* Greetings: copies it, and returns its op; 0 when it is none, or its length or content is wrong.
 */
int kv_decode_greeting(const void *message, size_t length, void *greeting, size_t room);

/* The next entry of a scan's reply, at *at. False: no more, or nonsense. */
bool kv_next_scan_entry(const struct kv_reply_view *view, size_t *at, struct kv_scan_entry *entry,
			const uint8_t **key);

/* ------------------------------------------------------------------------------------------
 * Encoding
 */

/* Whether a value follows a request's key. */
static inline bool kv_op_has_value(unsigned op)
{
	return op == KV_OP_PUT || op == KV_OP_PUT_PIECE || op == KV_OP_BUFFER ||
	       op == KV_OP_PUT_PULL;
}

/* Whether it always has one. A SCAN may have one, too: the key to go on behind. */
bool kv_op_has_key(unsigned op);
/* Whether it needs KV_CAN_WRITE. */
bool kv_op_changes(unsigned op);
/* "GET" ... Never NULL. */
const char *kv_op_name(unsigned op);

/* Bytes of a request with these parts. */
static inline size_t kv_request_size(const struct kv_request *header)
{
	return sizeof(*header) + header->key_length +
	       (kv_op_has_value(header->op) ? (size_t)header->value_length : 0) +
	       header->touch_count * sizeof(struct kv_touch);
}

/* Writes header, key, value and touches, as far as there are any; returns the end. touches: NULL if
 * touch_count is 0. */
static inline uint8_t *kv_encode_request(uint8_t *message, const struct kv_request *header,
					 const void *key, const void *value,
					 const struct kv_touch *touches)
{
	uint8_t *at = message + sizeof(*header);

	memcpy(message, header, sizeof(*header));
	if (header->key_length)
		memcpy(at, key, header->key_length);
	at += header->key_length;
	if (kv_op_has_value(header->op) && header->value_length) {
		memcpy(at, value, header->value_length);
		at += header->value_length;
	}
	if (header->touch_count && touches)
		memcpy(at, touches, header->touch_count * sizeof(*touches));
	return at + header->touch_count * sizeof(*touches);
}

/* Appends an entry and its key at `to`, if it fits into `room`. Returns its bytes, 0: no room. */
size_t kv_add_scan_entry(uint8_t *to, size_t room, const struct kv_scan_entry *entry,
			 const void *key);

#endif
