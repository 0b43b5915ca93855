/*
 * The data plane of the control server: links of the fabric to clients that have registered, and
 * transfers between their memory and the store.
 *
 *	RegisterClient	-> a registration: an id, a token, a time when it expires
 *	link connects	   with that token as private data: it is the registration's link
 *	PLANE_BUFFER	-> memory of the client: descriptor, ptr, length; its key goes back
 *	Get, location	-> the value is pinned, WRITTEN into that memory, then the call is answered
 *	Put, Cas, location -> a draft is begun, the value READ into it, committed, and answered
 *	Heartbeat	-> the registration lives on; so does it by every call that names it
 *
 * Thread. All of it runs in the loop of the control server (loop.c), which calls data_plane_poll()
 * in every turn, and data_plane_arm() before it sleeps. Descriptors (of listeners, of domains) are
 * put into the loop by control_watch_add(); their `ready` functions may do nothing at all, as the
 * turn that follows polls.
 *
 * Domains. One struct rmr_domains for each kind of transport that the server has opened devices of
 * (server_device_name(): "shm", "tcp", "verbs:..."), with all its devices of this kind, and the
 * store's arena (server_arena()) registered on it; a listener on each, at the host that gRPC
 * listens at and the ports of the options, or a random name for shm. Callers may grant memory only
 * once their link has come with the token of a registration.
 *
 * What always holds:
 *  1. A value's memory is not given back while it may still be written out: a pin is released when
 *     its WRITE has completed, or its link is closed. A draft is neither committed nor given up
 *     while a READ into it is under way. A call that is cancelled meanwhile changes nothing in
 *     that: the transfer goes on without it.
 *  2. Nothing is touched before all is checked: that the location's node_id is registered and has a
 *     link, that ptr and rkey are those of a buffer of that link (rkeys compared in constant time,
 *     they are what proves that the caller is that client), and that offset and length lie within.
 *     What does not: GRPC_INVALID_ARGUMENT, and no word about which it was of rkey and id.
 *  3. A registration ends, with its link and all transfers, when nothing was heard of it for
 *     client_expiry_ms, when it registers anew with its token, and when its link is lost.
 *     Before its link has come it ends with the connection that has registered it, too.
 *  4. What clients can hold is bounded: registrations, those of one connection whose links did not
 *     come yet (PLANE_CONN_WAITING), buffers of one client (PLANE_MAX_BUFFERS), transfers of one
 *     client and of all, bytes pinned by them. More is GRPC_RESOURCE_EXHAUSTED.
 *
 * A method below gets a call and its request (which is gone when it returns) and answers with
 * rpc_reply(), at once or after rpc_defer().
 */
#ifndef CONTROL_SERVER_DATA_PLANE_H
#define CONTROL_SERVER_DATA_PLANE_H

#include <remora/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/proto/kv_cache.pb-c.h"

struct data_plane;
struct rpc;
struct h2_conn;
struct kv_control_server;
struct store_put;
struct server_keys;

/* Called in the thread that starts the control server, before its loop runs; control->worker is
 * open, control_watch_add() works. A transport that does not work is left out with a line in the
 * log; only if there is none at all it fails. */
enum rmr_status data_plane_open(struct kv_control_server *control, struct data_plane **plane);
/* After the loop has ended, in the thread that stops; control->worker is open still. Ends all
 * transfers (by closing links), then gives pins and drafts back. All calls are gone. */
void data_plane_close(struct data_plane *plane);

/* Takes new links and completions; answers calls. Returns how much there was; the loop goes on
 * while it is not 0. Never blocks. */
int data_plane_poll(struct data_plane *plane);
/* Arms everything before the loop sleeps. False: poll again first. */
bool data_plane_arm(struct data_plane *plane);
/* Whether transfers are under way: the loop spins a little then, instead of sleeping at once. */
bool data_plane_is_busy(const struct data_plane *plane);
/* A connection is over: registrations of it whose link has not come end. Not while events of the
 * data plane are being looked at. */
void data_plane_forget(struct data_plane *plane, struct h2_conn *conn);
/* Whether data_plane_tick() has anything to look at. */
bool data_plane_needs_ticks(const struct data_plane *plane);
/* A few times a second: expiry. */
void data_plane_tick(struct data_plane *plane, uint64_t now_ns);

/* The methods. RegisterClient and Heartbeat, complete. */
void data_plane_register(struct data_plane *plane, struct rpc *call,
			 const KvCache__RegisterClientRequest *request);
void data_plane_heartbeat(struct data_plane *plane, struct rpc *call,
			  const KvCache__HeartbeatRequest *request);
/* Get with a response_location: store_pin(), checks, WRITE, answer (GetResponse.pushed). Counters
 * have no value in place: their text, from store_get(), is answered inside the response, and so is
 * what is not longer than request->inline_limit. A value longer than the location:
 * GRPC_OUT_OF_RANGE, value_length in the response, rpc_tell_length(). */
void data_plane_get(struct data_plane *plane, struct rpc *call, const KvCache__GetRequest *request);
/* Put, or Cas if `put` has a condition, with an rdma_location: checks, store_draft_begin(), READ,
 * commit, answer. `put` has all but the value. */
void data_plane_put(struct data_plane *plane, struct rpc *call,
		    const KvCache__ValueLocation *location, const struct store_put *put,
		    uint64_t request_id);

/* Ends clients whose key was removed. */
void data_plane_revoke(struct data_plane *plane, const struct server_keys *keys);

/* Lines "name value" for the figures: registrations, links, pushes, pulls, bytes. As snprintf. */
size_t data_plane_figures(const struct data_plane *plane, char *text, size_t room);

#endif
