/*
 * The data plane from inside: data_plane.h says what it is for, and what always holds. The map:
 *
 *	data_plane.c		transports: devices, listeners, polling; figures
 *	data_plane_clients.c	registrations, their links and buffers; RegisterClient, Heartbeat
 *	data_plane_transfers.c	pushes and pulls; Get and Put with a location
 *
 * A client from its first call to its end:
 *
 *	WAITING		registered; its link has not come, and may never. It ends with the
 *			connection that has registered it, which may have PLANE_CONN_WAITING
 *	LINKED		the link is open: buffers come and go, transfers run
 *	ENDING		nobody finds it any more; its link is closed at the end of this turn
 *
 * Nothing is closed while events of its transport are being looked at, because some of them may be
 * of the same link: whoever wants a client to end calls plane_client_end(), and plane_reap() does
 * it when the batch is through.
 *
 * Clients and transfers live in two tables made at the start; nothing is allocated later.
 */
#ifndef CONTROL_SERVER_DATA_PLANE_INTERNAL_H
#define CONTROL_SERVER_DATA_PLANE_INTERNAL_H

#include "control/plane.h"
#include "control/server/internal.h"

#define PLANE_MAX_KINDS	       3u /* shm, verbs, tcp */
#define PLANE_MAX_CLIENTS      1024u
#define PLANE_CONN_WAITING     16u  /* registrations of one connection whose link has not come */
#define PLANE_MAX_TRANSFERS    256u /* of all clients */
#define PLANE_CLIENT_TRANSFERS 32u  /* of one */
#define PLANE_HELD_PART	       4u   /* of the store's memory they may hold together */
#define PLANE_BUCKETS	       1024u
#define PLANE_EVENTS	       32

/* A pull READs pieces of this length, so many at a time: short enough that a piece is still in the
 * cache when it is hashed. */
#define PLANE_PIECE  131072u
#define PLANE_WINDOW 4u
/* What clients may have us map of their memory (shm), one and all together. */
#define PLANE_CLIENT_BYTES (UINT64_C(2) << 30)
#define PLANE_ALL_BYTES	   (UINT64_C(16) << 30)
#define PLANE_LETTERS	   2u /* to one buffer of a client: its key, and that it is gone */

/* One kind of transport. */
struct plane_kind {
	struct data_plane *plane;
	const char *name; /* "shm", "verbs", "tcp" */
	struct rmr_domains *domains;
	struct rmr_domains_region *arena;
	struct rmr_domains_region *letters;
	struct rmr_domains_listener *listener;
	struct control_watch events, callers;
	bool has_events, has_callers; /* the descriptor said so */
	unsigned links;
	char address[CONTROL_ADDRESS]; /* what clients are told, with its kind before it */
};

enum plane_client_state { PLANE_FREE, PLANE_WAITING, PLANE_LINKED, PLANE_ENDING };

/* Memory that a client has told us of. */
struct plane_buffer {
	struct rmr_link_remote *remote; /* NULL: there is none */
	uint64_t ptr, length, rkey;
	unsigned transfers; /* that use it */
	bool is_leaving;    /* the client wants it back */
};

struct plane_client {
	struct list link;      /* plane->free_clients, ->clients or ->ending */
	struct list hash_link; /* plane->buckets[] */
	struct list transfers; /* under way */
	enum plane_client_state state;
	unsigned transfer_count;
	uint32_t id; /* of the client's choosing; of those LINKED no two have the same */
	uint8_t token[PLANE_TOKEN_SIZE];
	struct h2_conn *conn; /* WAITING: that has registered it */
	uint64_t key_id;      /* of the call that registered it */
	uint64_t heard_ns;
	uint64_t posted; /* bytes that had left for it, or were asked of it, at the last look */
	struct plane_kind *kind;
	struct rmr_link *rmr_link;
	struct plane_buffer buffers[PLANE_MAX_BUFFERS];
};

struct plane_transfer {
	struct list link; /* plane->free_transfers, or client->transfers */
	struct plane_client *client;
	struct plane_buffer *buffer;
	struct rpc *call; /* NULL: it has gone */
	uint64_t request_id;
	uint64_t moved_ns; /* when it last came on */
	uint64_t held;	   /* bytes of the store */
	bool is_push;
	enum rmr_status status; /* the first that went wrong */

	struct store_view view; /* push */

	/* Pull. Pieces complete in any order, and are hashed in theirs. */
	struct store_draft draft;
	struct store_put put;
	uint64_t offset;	  /* of the value in the buffer */
	uint64_t asked, received; /* bytes, of the value's beginning */
	unsigned flying;	  /* READs */
	unsigned early;		  /* bit i: the piece i pieces after `received` is there */
	struct hash_stream stream;
};

struct plane_figures {
	_Atomic uint64_t clients, registered, expired, refused;
	_Atomic uint64_t links, buffers;
	_Atomic uint64_t pushes, pulls, failed, transfers;
	_Atomic uint64_t bytes_out, bytes_in, held;
};

struct data_plane {
	struct kv_control_server *control;
	struct plane_kind kinds[PLANE_MAX_KINDS];
	unsigned kind_count;
	struct rmr_arena *letters; /* PLANE_LETTERS to each buffer of each client */
	struct plane_client *all_clients;
	struct plane_transfer *all_transfers;
	struct list free_clients, clients, ending, free_transfers;
	struct list buckets[PLANE_BUCKETS];
	unsigned transfer_count;
	unsigned next_port;	  /* to listen at; 0: any */
	uint64_t called_ns;	  /* when somebody last came to a listener */
	uint64_t moved_ns;	  /* when a transfer last began, or came on */
	uint64_t held, held_most; /* bytes of the store that transfers hold */
	struct plane_figures figures;
};

/* data_plane_clients.c */

bool plane_clients_open(struct data_plane *plane);
void plane_clients_close(struct data_plane *plane);
/* The client with this number that has a link, else one that waits for it; NULL: there is none. */
struct plane_client *plane_client_find(struct data_plane *plane, uint32_t id);
/* It ends with this turn; `why` is logged. Legal again and again. */
void plane_client_end(struct plane_client *client, const char *why);
/* Closes those that end. Not while events are being looked at. */
void plane_reap(struct data_plane *plane);
/* Ends those that were not heard of, or whose transfers stand still. */
void plane_clients_check(struct data_plane *plane, uint64_t now_ns);
/* A caller: it becomes a client's link, or is turned away. */
void plane_link_arrived(struct plane_kind *kind, struct rmr_link_request *request);
/* A message of a client. */
void plane_client_message(struct plane_client *client, const void *bytes, size_t length);
/* A transfer has left the buffer. */
void plane_buffer_release(struct plane_client *client, struct plane_buffer *buffer);

/* data_plane_transfers.c */

bool plane_transfers_open(struct data_plane *plane);
/* READ or WRITE has completed. */
void plane_transfer_done(struct data_plane *plane, const struct rmr_link_event *event);
/* The link is closed, and nothing is under way any more: gives back what it held, and answers. */
void plane_transfer_drop(struct data_plane *plane, struct plane_transfer *transfer);

#endif
