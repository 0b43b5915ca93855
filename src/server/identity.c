/*
 * Which sessions are of one client. A client that lost its connection comes back by another one,
 * while requests of its may still be on their way by the first: in the network, in the server's
 * queues, in a landing buffer. Carried out late, they would undo what the client does next. So a
 * client names itself (HELLO: an id, and a session number that grows), and a newer session ends the
 * older ones before its first request:
 *
 *	1. The new session has proved itself. It is entered here; every older session of the same
 *	   client is marked, and its worker woken. The new session waits, without its WELCOME.
 *	2. The old session's worker sees the mark and ends the session. When its connection is
 *	   closed nothing that it sent is carried out any more, and when it does not count as a
 *	   client any more there is a place for the new one. It leaves the table, and the new
 *	   session's worker is woken.
 *	3. The new session's worker sees that no older one is there, and sends WELCOME.
 *
 * No worker waits for another one: each goes on with its other sessions meanwhile. A session that
 * is marked while it waits is ended like any other. A session that is older than one in the table,
 * or as old, is refused: its client has left it.
 *
 * The lock is taken when a session is greeted and when it is closed, and never while another lock
 * is held. The table's entries are in the sessions, so there are no more than those.
 */
#include <string.h>

#include "base/log.h"
#include "server/internal.h"

static struct list *bucket_of(struct session *session)
{
	/* Clients draw their ids at random. */
	return &session->worker->server->identities
			.buckets[session->client_id[0] % IDENTITY_BUCKETS];
}

static bool is_same(const struct session *a, const struct session *b)
{
	return memcmp(a->client_id, b->client_id, sizeof(a->client_id)) == 0;
}

static bool is_anonymous(const struct session *session)
{
	static const uint8_t anonymous[KV_CLIENT_ID_SIZE];

	return memcmp(session->client_id, anonymous, sizeof(anonymous)) == 0;
}

void identities_init(struct identities *identities)
{
	pthread_mutex_init(&identities->lock, NULL);
	for (unsigned i = 0; i < IDENTITY_BUCKETS; i++)
		list_init(&identities->buckets[i]);
}

void identities_fini(struct identities *identities)
{
	pthread_mutex_destroy(&identities->lock);
}

/* Lets the session's worker look at it. The lock is held: the session stays. */
static void call_attention(struct session *session)
{
	/* Release: pairs with the exchange in identities_look(). The worker may be there for
	 * something else, and take this flag before it sees has_mail: then it sees the session's
	 * mark as well. */
	atomic_store_explicit(&session->worker->has_identities, true, memory_order_release);
	worker_wake(session->worker);
}

enum identity_answer identity_enter(struct session *session)
{
	struct identities *identities = &session->worker->server->identities;
	enum identity_answer answer = IDENTITY_ALONE;
	struct list *bucket = bucket_of(session);

	if (is_anonymous(session))
		return IDENTITY_ALONE;
	pthread_mutex_lock(&identities->lock);
	list_for_each (link, bucket) {
		struct session *other = list_entry(link, struct session, identity);

		if (is_same(session, other) && other->number >= session->number)
			answer = IDENTITY_OLD;
	}
	if (answer == IDENTITY_ALONE) {
		list_for_each (link, bucket) {
			struct session *other = list_entry(link, struct session, identity);

			if (!is_same(session, other))
				continue;
			answer = IDENTITY_WAITS;
			/* Relaxed: see call_attention(). */
			atomic_store_explicit(&other->is_superseded, true, memory_order_relaxed);
			call_attention(other);
		}
		list_add_tail(bucket, &session->identity);
		session->is_entered = true;
	}
	pthread_mutex_unlock(&identities->lock);
	return answer;
}

/* Whether no older session of its client is left. */
static bool is_first(struct session *session)
{
	struct identities *identities = &session->worker->server->identities;
	bool first = true;

	pthread_mutex_lock(&identities->lock);
	list_for_each (link, bucket_of(session)) {
		struct session *other = list_entry(link, struct session, identity);

		if (is_same(session, other) && other->number < session->number)
			first = false;
	}
	pthread_mutex_unlock(&identities->lock);
	return first;
}

void identity_leave(struct session *session)
{
	struct identities *identities = &session->worker->server->identities;

	if (!session->is_entered)
		return;
	pthread_mutex_lock(&identities->lock);
	list_remove(&session->identity);
	list_for_each (link, bucket_of(session)) {
		struct session *other = list_entry(link, struct session, identity);

		if (is_same(session, other))
			call_attention(other);
	}
	pthread_mutex_unlock(&identities->lock);
	session->is_entered = false;
}

void identities_look(struct worker *worker)
{
	/* Relaxed: read_mail() has acquired what was released with it. */
	if (!atomic_load_explicit(&worker->has_identities, memory_order_relaxed))
		return;
	/* Acquire: pairs with call_attention(). What is marked from now on sets it again. */
	atomic_exchange_explicit(&worker->has_identities, false, memory_order_acq_rel);
	list_for_each (link, &worker->sessions) {
		struct session *session = list_entry(link, struct session, link);

		if (session->state == SESSION_OVER)
			continue;
		if (atomic_load_explicit(&session->is_superseded, memory_order_relaxed)) {
			log_debug("%s: ends, as its client came back", session->peer);
			session_end(session);
		} else if (session->state == SESSION_WAITING && is_first(session)) {
			greeting_welcome(session);
		}
	}
	sessions_flush(worker);
	sessions_close_over(worker, false);
}
