/*
 * Access: the same keys as in the native protocol, sent as bearer tokens. There the key never
 * travels; here it does, as gRPC's clients have it, so this wants TLS or a network that one trusts.
 *
 * Comparing takes as long whatever is wrong with a token: it is put into a buffer of a key's
 * greatest length, and all of that is compared, with both keys.
 */
#include <openssl/crypto.h>
#include <string.h>

#include "control/server/internal.h"

/* Behind a key its buffer has what followed in the file. */
static void clear_tail(struct kv_secret *key)
{
	memset(key->bytes + key->length, 0, sizeof(key->bytes) - key->length);
}

/* The keys as they are now. */
static const struct server_keys *find_keys(struct kv_control_server *control)
{
	struct access *access = &control->access;
	unsigned generation = server_keys_generation(control->server);

	/* Should they change between the two lines, the next call takes them again. */
	if (generation != access->generation) {
		keys_copy(control->server, &access->keys);
		clear_tail(&access->keys.write);
		clear_tail(&access->keys.read);
		access->generation = generation;
	}
	return &access->keys;
}

static bool is_equal(const struct kv_secret *key, const struct kv_secret *token)
{
	int differs = CRYPTO_memcmp(key->bytes, token->bytes, sizeof(key->bytes));

	return (key->length == token->length) & (key->length > 0) & (differs == 0);
}

enum grpc_status access_check(struct kv_control_server *control, const uint8_t *token,
			      size_t length, bool *may_write)
{
	const struct server_keys *keys = find_keys(control);
	struct kv_secret sent = {0};
	bool is_write, is_read;

	*may_write = false;
	if (!keys->write.length) {
		*may_write = true;
		return GRPC_OK;
	}
	if (!token || !length || length > sizeof(sent.bytes))
		return GRPC_UNAUTHENTICATED;
	memcpy(sent.bytes, token, length);
	sent.length = length;
	is_write = is_equal(&keys->write, &sent);
	is_read = is_equal(&keys->read, &sent);
	kv_secret_wipe(&sent);
	*may_write = is_write;
	return (is_write | is_read) ? GRPC_OK : GRPC_UNAUTHENTICATED;
}
