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

struct kv_secret {
	size_t length; /* 0: none */
	uint8_t bytes[KV_MAX_SECRET];
};

enum kv_prover { KV_CLIENT_PROVES, KV_SERVER_PROVES };

/* Reads the first line of a file. Warns if others than its owner can read it. RMR_DENIED or
 * RMR_INVALID, with a message. */
RMR_MUST_CHECK enum rmr_status kv_secret_read(struct kv_secret *secret, const char *path);

/* Overwrites it. */
void kv_secret_wipe(struct kv_secret *secret);

/* Fills with random bytes. RMR_SYSTEM. */
RMR_MUST_CHECK enum rmr_status kv_make_nonce(uint8_t nonce[KV_NONCE_SIZE]);

void kv_prove(const struct kv_secret *secret, enum kv_prover prover,
	      const uint8_t client_nonce[KV_NONCE_SIZE], const uint8_t server_nonce[KV_NONCE_SIZE],
	      uint8_t proof[KV_PROOF_SIZE]);

/* Takes as long whatever is wrong with it. */
bool kv_proof_is_right(const struct kv_secret *secret, enum kv_prover prover,
		       const uint8_t client_nonce[KV_NONCE_SIZE],
		       const uint8_t server_nonce[KV_NONCE_SIZE],
		       const uint8_t proof[KV_PROOF_SIZE]);

#endif
