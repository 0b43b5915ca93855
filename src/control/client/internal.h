/*
 * The gRPC client of <remora/control.h>. The map:
 *
 *	control.c	connect, close, options, reconnecting, errors in words
 *	url.c		"https://host:port", taken apart
 *	channel.c	the connection: a socket, nghttp2's session, waiting
 *	channel_tls.c	TLS
 *	ask.c		one call: its request sent, its answers and its status received
 *	status.c	what a status of gRPC means as one of kv.h
 *	values.c	get and stat: values inside messages, by the data plane, or in chunks
 *	get_stream.c	... in chunks
 *	puts.c		put and cas, the same ways
 *	operations.c	all other operations
 *	plane_link.c	the data plane: registration, link, heartbeats
 *	plane_memory.c	its buffers, and memory in them
 *	absent.c	in place of all that, where nghttp2 or protobuf-c are missing
 *
 * One thread, one call at a time, one HTTP/2 connection. Whoever waits for an answer turns the
 * wheel (channel_turn): sends, receives, lets the data plane move, and sleeps if there is nothing.
 *
 * Memory of the data plane. While a call with a location is under way the server may write to the
 * place, or read from it. When the call has ended with an answer that tells how it went (OK,
 * NOT_FOUND, OUT_OF_RANGE ...) it does not any more. When it has ended otherwise (its time was
 * over, by our clock or by the server's; the connection was lost; the answer makes no sense) nobody
 * can know: the link is closed then, before the place is used for anything else or handed back to
 * the caller, and with it all access. The next call that needs it registers anew.
 */
#ifndef CONTROL_CLIENT_INTERNAL_H
#define CONTROL_CLIENT_INTERNAL_H

#include <nghttp2/nghttp2.h>
#include <openssl/types.h>
#include <remora/control.h>
#include <remora/domains.h>

#include "base/list.h"
#include "control/grpc.h"
#include "control/plane.h"
#include "control/proto/kv_cache.pb-c.h"
#include "kv/auth.h"

#define CONTROL_ERROR  1024u
#define CONTROL_REASON 512u

/* ------------------------------------------------------------------------------------------
 * url.c
 */

struct control_url {
	bool is_tls;
	char host[256];
	char port[8];
	char authority[272]; /* "host:port" */
};

/* False: it is none. */
bool control_url_parse(const char *text, struct control_url *url);

/* ------------------------------------------------------------------------------------------
 * The connection: channel.c, channel_tls.c
 */

#define CHANNEL_BUFFER 65536u

struct control_ask;

struct control_channel {
	int fd; /* -1: not connected */
	SSL *tls;
	nghttp2_session *session;
	bool is_lost;	 /* nothing more comes or goes */
	bool was_heard;	 /* the other end has said something that makes sense */
	bool is_leaving; /* the server takes no new calls */
	bool wants_write;
	char why[CONTROL_REASON]; /* it was lost */
	uint8_t *input;		  /* CHANNEL_BUFFER bytes */
	const uint8_t *output;	  /* of nghttp2, not sent yet */
	size_t output_left;
	bool is_ponged;
	uint64_t expected_ns; /* about how long answers take */
	double ticks_of_ns;
};

/* Connects, within the deadline. KV status; control->error tells. */
int channel_connect(kv_control_t *control, uint64_t deadline_ns);
/* Legal when it is closed. */
void channel_close(kv_control_t *control);
/* Sends what there is, and takes in what has come; waits for something up to the deadline. False:
 * the connection is lost, or the deadline has passed. */
bool channel_turn(kv_control_t *control, uint64_t begun_ns, uint64_t deadline_ns);
/* Takes in what has come while nobody waited: that the server is gone, for one. */
void channel_look(struct control_channel *channel);
/* An answer came after so long. */
void channel_learn(kv_control_t *control, uint64_t begun_ns);
void channel_lose(struct control_channel *channel, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* channel_tls.c. A handshake on a connected socket that does not block. KV status. */
int channel_tls_begin(kv_control_t *control, uint64_t deadline_ns);
void channel_tls_end(kv_control_t *control);
/* As recv and send: -1 and EAGAIN, 0 at the end. */
ssize_t channel_tls_read(struct control_channel *channel, void *bytes, size_t room);
ssize_t channel_tls_write(struct control_channel *channel, const void *bytes, size_t length);

/* ------------------------------------------------------------------------------------------
 * Calls: ask.c, status.c
 */

#define CONTROL_FRAME 16u

struct control_ask {
	const char *path; /* "/kv_cache.KvCacheService/Get" */
	const ProtobufCMessage *request;
	bool changes_something;
	bool is_once; /* not to be made again on another connection, by control_ask() */
	/* Each message of the answer; false: it makes no sense. */
	bool (*take)(void *context, const uint8_t *bytes, size_t length);
	void *context;
	uint64_t deadline_ns; /* 0: as the options say */
	/* The call moves a long value: its time limit is how long it may stand still. */
	bool is_stream;
	const uint8_t *stream; /* PutStream: the value, sent in chunks behind the request */
	size_t stream_length;
	bool is_enough; /* set by `take`: the rest of the answer is not wanted */

	/* What came of it. */
	bool is_answered; /* the server has said how it ended */
	bool is_nonsense; /* it was us who ended it, because of what came */
	enum grpc_status status;
	uint64_t value_length; /* kv-value-length; UINT64_MAX: none */
	char text[CONTROL_REASON];

	/* While it is under way. */
	int32_t stream_id;
	bool is_over, is_sent, is_refused;
	unsigned http_status;
	uint64_t begun_ns;
	uint8_t *body;
	size_t body_length, body_sent;
	uint8_t frame[CONTROL_FRAME]; /* what stands before a chunk */
	size_t frame_length, frame_sent;
	size_t chunk_left, stream_sent; /* bytes of the chunk, of the value */
	unsigned messages;
	struct grpc_reader reader;
};

/* Makes the call, on a new connection if need be; again if it was not carried out. KV status;
 * control->error tells. Retries are for those that change nothing, or were not sent. */
int control_ask(kv_control_t *control, struct control_ask *ask);
/* nghttp2's callbacks. */
int ask_callbacks(nghttp2_session_callbacks *callbacks);

/* The status of kv.h, when the server has answered. */
int control_status_of(const struct control_ask *ask);

/* ------------------------------------------------------------------------------------------
 * Values: values.c, puts.c, get_stream.c
 */

struct control_stream {
	uint8_t *to; /* NULL: to be allocated, with a 0 byte behind it */
	size_t room;
	bool is_stat; /* only the numbers are wanted */
	uint64_t value_length, version, ttl_ms;
};

/* A value in chunks. On KV_BUFFER_TOO_SMALL value_length is known; UINT64_MAX: it is not. */
int control_get_stream(kv_control_t *control, const void *key, size_t key_length,
		       struct control_stream *stream);

/* Values that are shorter travel inside messages. */
uint64_t control_limit(const kv_control_t *control);

struct memory_place;
struct control_location {
	KvCache__ValueLocation location;
	KvCache__MemoryRegionDescriptor mr;
	KvCache__DomainAddressKey key, *keys[1];
};

/* The location of a place, in memory of `location`. */
KvCache__ValueLocation *control_location(kv_control_t *control, struct control_location *location,
					 const struct memory_place *place, uint64_t length);
/* After a call with a location: whether it should be made again. Closes the link if the server may
 * still use the place. */
bool control_again(kv_control_t *control, const struct control_ask *ask, int status,
		   uint64_t deadline_ns);

/* ------------------------------------------------------------------------------------------
 * The data plane: plane_link.c, plane_memory.c
 */

/* A piece of a buffer, free or not; they follow each other without holes. */
struct memory_block {
	struct list link; /* buffer->blocks, by place */
	size_t offset, size;
	bool is_used;
};

struct memory_buffer {
	struct rmr_arena *arena; /* NULL: there is none */
	uint8_t *base;
	size_t size;
	struct list blocks;
	struct rmr_domains_region *region; /* NULL: not linked */
	uint64_t rkey;			   /* 0: the server does not know it */
};

struct control_plane {
	uint32_t id;
	uint8_t token[PLANE_TOKEN_SIZE];
	bool has_token;
	struct rmr_domains *domains;
	struct rmr_link *link; /* NULL: none */
	bool is_lost;
	char transport[CONTROL_REASON];
	uint64_t named_ns;   /* when the server last heard of us */
	uint64_t expires_ns; /* how long it waits for that */
	uint64_t retry_ns;   /* not before */
	uint64_t inline_limit, max_message;
	struct memory_buffer buffers[PLANE_MAX_BUFFERS];
	struct rmr_arena *letters; /* messages to the server; a place for each buffer */
	struct rmr_domains_region *letters_region;
};

/* Registers and connects, as far as that can be done; transport tells. */
void plane_open(kv_control_t *control, uint64_t deadline_ns);
/* Ends link and registration; memory stays. */
void plane_close(kv_control_t *control);
/* Whether values can travel by it. Makes it anew if it was lost. */
bool plane_is_ready(kv_control_t *control, uint64_t deadline_ns);
/* Takes events, without waiting. */
void plane_poll(kv_control_t *control);
/* A heartbeat, if it is time for one. Its time is part of the call's that comes next. */
void plane_keep_up(kv_control_t *control, uint64_t deadline_ns);
/* Waits for the key of a buffer (or that it is gone). False: the link is closed. */
bool plane_await(kv_control_t *control, const uint64_t *key, bool is_there, uint64_t deadline_ns);

/* plane_memory.c */

/* A place for a value, and the memory there. */
struct memory_place {
	struct memory_buffer *buffer;
	size_t offset;
	uint8_t *bytes;
};

bool plane_memory_open(kv_control_t *control, size_t size);
void plane_memory_close(kv_control_t *control);
/* Tells the server of a buffer, and waits for its key. False: the link is closed. */
bool plane_memory_announce(kv_control_t *control, struct memory_buffer *buffer,
			   uint64_t deadline_ns);
/* What the peer has said. */
void plane_memory_take_message(kv_control_t *control, const void *bytes, size_t length);
/* Closes regions, and so ends access to them; the link is to be closed next. */
void plane_memory_forget_regions(kv_control_t *control);
/* Whether all of these bytes lie in memory of ours that is linked. */
bool plane_memory_find(kv_control_t *control, const void *bytes, size_t length,
		       struct memory_place *place);
/* Memory of a buffer; a new one if need be. False: there is none. */
bool plane_memory_take(kv_control_t *control, size_t size, bool may_grow, uint64_t deadline_ns,
		       struct memory_place *place);
/* A buffer that nothing of is in use goes back. If the server does not say in time that it is
 * through with it, the link is closed. */
void plane_memory_give(kv_control_t *control, struct memory_place *place, uint64_t deadline_ns);
/* The longest piece that can be had without growing. */
size_t plane_memory_longest(const kv_control_t *control);

/* ------------------------------------------------------------------------------------------
 * The whole
 */

struct kv_control {
	kv_control_options_t options; /* strings are ours */
	struct control_url url;
	struct kv_secret secret;
	struct control_channel channel;
	struct control_plane plane;
	nghttp2_session_callbacks *callbacks;
	kv_path_t path;
	char error[CONTROL_ERROR];
};

/* Notes what went wrong. Returns the status. */
int control_error(kv_control_t *control, int status, const char *format, ...)
	__attribute__((cold, format(printf, 3, 4)));
/* When a call that begins now has to end. Taken once for a call of the caller's, at its beginning,
 * and handed on to all that is done for it. */
uint64_t control_deadline(const kv_control_t *control);
/* The caller's number, or a random one. */
int control_make_id(kv_control_t *control);
int control_ping(kv_control_t *control, uint64_t deadline_ns, uint64_t *round_trip_ns);
/* Connects if that is needed. */
int control_revive(kv_control_t *control, uint64_t deadline_ns);
/* KV_OK, or KV_KEY_TOO_LONG. */
int control_check_key(kv_control_t *control, size_t key_length);

#endif
