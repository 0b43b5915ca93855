/*
 * The keys that clients prove to know, and what becomes of clients when the keys change.
 *
 * A file may hold several keys, so that one is replaced without an interruption: the new one is
 * added, clients take it over, the old one is removed. Each key has an id, which it keeps as long
 * as it stays in its file. A session remembers the id of the key that it was welcomed with; when
 * the files are read anew, every worker ends the sessions whose id is gone.
 *
 * The keys are guarded by a lock; each change has a number (the generation), so that copies need
 * not be made for nothing.
 */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

static int read_files(struct server_keys *keys, const char *key_file, const char *read_key_file)
{
	*keys = (struct server_keys){0};
	if (read_key_file && !key_file)
		return server_fail(KV_INVALID, "a key to read and none to write: nobody could put "
					       "anything there; give a key file, too");
	if (key_file && kv_keyring_read(&keys->write, key_file) != RMR_OK)
		return server_fail_rmr(error_status());
	if (read_key_file && kv_keyring_read(&keys->read, read_key_file) != RMR_OK)
		return server_fail_rmr(error_status());
	for (unsigned i = 0; i < keys->read.count; i++) {
		for (unsigned k = 0; k < keys->write.count; k++) {
			if (kv_secret_is_equal(&keys->read.secrets[i], &keys->write.secrets[k]))
				return server_fail(KV_INVALID, "%s and %s hold the same key",
						   key_file, read_key_file);
		}
	}
	return KV_OK;
}

/* Keys that were there keep their ids, new ones get new ones. The lock is held. */
static void number(struct kv_server *server, struct kv_keyring *ring, const struct kv_keyring *old)
{
	for (unsigned i = 0; i < ring->count; i++) {
		struct kv_secret *secret = &ring->secrets[i];

		for (unsigned k = 0; k < old->count && !secret->id; k++) {
			if (kv_secret_is_equal(secret, &old->secrets[k]))
				secret->id = old->secrets[k].id;
		}
		if (!secret->id)
			secret->id = ++server->last_key_id;
	}
}

int kv_server_read_keys(kv_server_t *server, const char *key_file, const char *read_key_file)
{
	struct server_keys keys;
	int status = read_files(&keys, key_file, read_key_file);

	if (status == KV_OK) {
		pthread_mutex_lock(&server->keys_lock);
		number(server, &keys.write, &server->keys.write);
		number(server, &keys.read, &server->keys.read);
		server->keys = keys;
		/* Release: code that sees the number finds these keys, or newer ones. */
		atomic_fetch_add_explicit(&server->keys_generation, 1, memory_order_release);
		pthread_mutex_unlock(&server->keys_lock);
		for (unsigned i = 0; i < server->worker_count; i++)
			worker_wake(&server->workers[i]);
	}
	keys_wipe(&keys);
	return status;
}

void keys_copy(struct kv_server *server, struct server_keys *keys)
{
	pthread_mutex_lock(&server->keys_lock);
	*keys = server->keys;
	pthread_mutex_unlock(&server->keys_lock);
}

void keys_wipe(struct server_keys *keys)
{
	kv_keyring_wipe(&keys->write);
	kv_keyring_wipe(&keys->read);
}

unsigned server_keys_generation(const struct kv_server *server)
{
	/* Acquire: pairs with the release in kv_server_read_keys. */
	return atomic_load_explicit(&server->keys_generation, memory_order_acquire);
}

/* The id of the key in the ring, 0: it is not there. All are compared: the time tells nothing. */
static uint64_t find_key(const struct kv_keyring *ring, const struct kv_secret *sent)
{
	uint64_t id = 0;

	for (unsigned i = 0; i < ring->count; i++)
		id |= kv_secret_is_equal(&ring->secrets[i], sent) ? ring->secrets[i].id : 0;
	return id;
}

bool keys_permit(const struct server_keys *keys, const uint8_t *token, size_t length,
		 bool *may_write, uint64_t *key_id)
{
	struct kv_secret sent = {0};
	uint64_t write_id, read_id;

	*key_id = 0;
	*may_write = keys->write.count == 0;
	if (*may_write)
		return true;
	if (!token || !length || length > sizeof(sent.bytes))
		return false;
	memcpy(sent.bytes, token, length);
	sent.length = length;
	write_id = find_key(&keys->write, &sent);
	read_id = find_key(&keys->read, &sent);
	kv_secret_wipe(&sent);
	*may_write = write_id != 0;
	*key_id = write_id | read_id;
	return *key_id != 0;
}

static bool has_id(const struct kv_keyring *ring, uint64_t id)
{
	for (unsigned i = 0; i < ring->count; i++) {
		if (ring->secrets[i].id == id)
			return true;
	}
	return false;
}

bool keys_have(const struct server_keys *keys, uint64_t key_id)
{
	return !keys->write.count || has_id(&keys->write, key_id) || has_id(&keys->read, key_id);
}

void keys_check_sessions(struct worker *worker)
{
	unsigned generation = server_keys_generation(worker->server), ended = 0;
	struct server_keys keys;

	if (generation == worker->keys_seen)
		return;
	worker->keys_seen = generation;
	keys_copy(worker->server, &keys);
	list_for_each (link, &worker->sessions) {
		struct session *session = list_entry(link, struct session, link);

		/* The others have proved nothing yet, or are going. */
		if ((session->state != SESSION_READY && session->state != SESSION_WAITING) ||
		    keys_have(&keys, session->key_id))
			continue;
		session_leave(session, KV_DENIED,
			      session->key_id ? "the key of this session was removed"
					      : "the server needs a key now");
		ended++;
	}
	keys_wipe(&keys);
	if (ended)
		log_info("%u client%s sent away: the key was removed", ended,
			 ended == 1 ? "" : "s");
	sessions_flush(worker);
	sessions_close_over(worker, false);
}
