/*
 * Authentication: proofs that both ends know the same secret, without telling it.
 *
 * Each end contributes a nonce; a proof is HMAC-SHA-256 of who proves and both nonces, by the
 * secret. So a proof is good for one connection and one direction only.
 */
#ifndef KV_AUTH_H
#define KV_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/protocol.h"

#define KV_MIN_SECRET 16u
#define KV_MAX_SECRET 1024u

#define KV_MAX_KEYS 8u /* of one file */

struct kv_secret {
	uint64_t id;   /* a server's: tells its keys apart, also when the file is read anew */
	size_t length; /* 0: none */
	uint8_t bytes[KV_MAX_SECRET]; /* zero behind the secret */
};

struct kv_keyring {
	unsigned count;
	struct kv_secret secrets[KV_MAX_KEYS];
};

enum kv_prover { KV_CLIENT_PROVES, KV_SERVER_PROVES };

/* Reads a file of keys, one a line; empty lines and those that begin with '#' are left out. Warns
 * if others than its owner and group can use it. RMR_DENIED or RMR_INVALID, with a message. */
RMR_MUST_CHECK enum rmr_status kv_keyring_read(struct kv_keyring *ring, const char *path);
/* The first key of such a file. */
RMR_MUST_CHECK enum rmr_status kv_secret_read(struct kv_secret *secret, const char *path);

/* Overwrite it. */
void kv_keyring_wipe(struct kv_keyring *ring);
void kv_secret_wipe(struct kv_secret *secret);

/* Takes as long whatever the difference. False if they are empty. */
bool kv_secret_is_equal(const struct kv_secret *one, const struct kv_secret *other);

/* Fills with random bytes. RMR_SYSTEM. */
RMR_MUST_CHECK enum rmr_status kv_make_nonce(uint8_t nonce[KV_NONCE_SIZE]);

/* False, with a message, if OpenSSL cannot: then the proof is zero, and right for no secret. */
RMR_MUST_CHECK bool kv_prove(const struct kv_secret *secret, enum kv_prover prover,
			     const uint8_t client_nonce[KV_NONCE_SIZE],
			     const uint8_t server_nonce[KV_NONCE_SIZE],
			     uint8_t proof[KV_PROOF_SIZE]);

/* Takes as long whatever is wrong with it. */
bool kv_proof_is_right(const struct kv_secret *secret, enum kv_prover prover,
		       const uint8_t client_nonce[KV_NONCE_SIZE],
		       const uint8_t server_nonce[KV_NONCE_SIZE],
		       const uint8_t proof[KV_PROOF_SIZE]);

#endif
