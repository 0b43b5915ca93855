/* Authentication: see auth.h. */
#include "kv/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

#define FILE_MAX 32768u

static enum rmr_status take_key(struct kv_keyring *ring, const char *path, unsigned line,
				const uint8_t *bytes, size_t length)
{
	struct kv_secret *secret = &ring->secrets[ring->count];

	if (ring->count == KV_MAX_KEYS)
		return error_set(RMR_INVALID, "key file %s has more than %u keys: remove old ones",
				 path, KV_MAX_KEYS);
	if (length < KV_MIN_SECRET)
		return error_set(RMR_INVALID,
				 "key file %s: line %u has %zu bytes, at least %u are needed; "
				 "make one: openssl rand -hex 32 > %s",
				 path, line, length, KV_MIN_SECRET, path);
	if (length >= KV_MAX_SECRET)
		return error_set(RMR_INVALID, "key file %s: line %u has more than %u bytes", path,
				 line, KV_MAX_SECRET - 1);
	for (unsigned i = 0; i < ring->count; i++) {
		if (ring->secrets[i].length == length &&
		    memcmp(ring->secrets[i].bytes, bytes, length) == 0)
			return error_set(RMR_INVALID, "key file %s: line %u repeats a key", path,
					 line);
	}
	memcpy(secret->bytes, bytes, length);
	secret->length = length;
	ring->count++;
	return RMR_OK;
}

/* Each line is a key, unless it is empty or begins with '#'. */
static enum rmr_status take_lines(struct kv_keyring *ring, const char *path, const uint8_t *bytes,
				  size_t length)
{
	enum rmr_status status = RMR_OK;

	for (unsigned line = 1; length > 0 && status == RMR_OK; line++) {
		const uint8_t *end = memchr(bytes, '\n', length);
		size_t whole = end ? (size_t)(end - bytes) + 1 : length;
		size_t used = end ? whole - 1 : whole;

		if (used && bytes[used - 1] == '\r')
			used--;
		if (used && bytes[0] != '#')
			status = take_key(ring, path, line, bytes, used);
		bytes += whole;
		length -= whole;
	}
	if (status == RMR_OK && !ring->count)
		status = error_set(RMR_INVALID,
				   "key file %s has no key; make one: openssl rand -hex 32 > %s",
				   path, path);
	return status;
}

static enum rmr_status read_file(int fd, const char *path, uint8_t *bytes, size_t *length)
{
	struct stat info;
	ssize_t got;

	if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_mode & 037)
		log_warn("key file %s can be read by others: chmod 600 %s", path, path);
	*length = 0;
	do {
		got = read(fd, bytes + *length, FILE_MAX - *length);
		if (got > 0)
			*length += (size_t)got;
	} while (*length < FILE_MAX && (got > 0 || (got < 0 && errno == EINTR)));
	if (got < 0)
		return error_errno(RMR_DENIED, errno, "key file %s", path);
	if (*length == FILE_MAX)
		return error_set(RMR_INVALID, "key file %s has more than %u bytes", path,
				 FILE_MAX - 1);
	return RMR_OK;
}

enum rmr_status kv_keyring_read(struct kv_keyring *ring, const char *path)
{
	uint8_t bytes[FILE_MAX];
	enum rmr_status status;
	size_t length;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	*ring = (struct kv_keyring){0};
	if (fd < 0 && errno == ENOENT)
		return error_set(RMR_DENIED,
				 "key file %s: there is none; make one: openssl rand -hex 32 > %s",
				 path, path);
	if (fd < 0)
		return error_errno(RMR_DENIED, errno, "key file %s", path);
	status = read_file(fd, path, bytes, &length);
	close(fd);
	if (status == RMR_OK)
		status = take_lines(ring, path, bytes, length);
	OPENSSL_cleanse(bytes, sizeof(bytes));
	if (status != RMR_OK)
		kv_keyring_wipe(ring);
	return status;
}

void kv_keyring_wipe(struct kv_keyring *ring)
{
	OPENSSL_cleanse(ring, sizeof(*ring));
}

enum rmr_status kv_secret_read(struct kv_secret *secret, const char *path)
{
	struct kv_keyring ring;
	enum rmr_status status = kv_keyring_read(&ring, path);

	*secret = ring.secrets[0];
	kv_keyring_wipe(&ring);
	return status;
}

void kv_secret_wipe(struct kv_secret *secret)
{
	OPENSSL_cleanse(secret, sizeof(*secret));
}

bool kv_secret_is_equal(const struct kv_secret *one, const struct kv_secret *other)
{
	/* All of the buffers, so that it takes as long whatever is in them. */
	int differs = CRYPTO_memcmp(one->bytes, other->bytes, sizeof(one->bytes));

	return (one->length == other->length) & (one->length > 0) & (differs == 0);
}

enum rmr_status kv_make_nonce(uint8_t nonce[KV_NONCE_SIZE])
{
	if (getrandom(nonce, KV_NONCE_SIZE, 0) != KV_NONCE_SIZE)
		return error_errno(RMR_SYSTEM, errno, "random bytes");
	return RMR_OK;
}

bool kv_prove(const struct kv_secret *secret, enum kv_prover prover,
	      const uint8_t client_nonce[KV_NONCE_SIZE], const uint8_t server_nonce[KV_NONCE_SIZE],
	      uint8_t proof[KV_PROOF_SIZE])
{
	uint8_t text[16 + 2 * KV_NONCE_SIZE] = {0};
	unsigned length = KV_PROOF_SIZE;

	memcpy(text, prover == KV_CLIENT_PROVES ? "remora client" : "remora server", 13);
	memcpy(text + 16, client_nonce, KV_NONCE_SIZE);
	memcpy(text + 16 + KV_NONCE_SIZE, server_nonce, KV_NONCE_SIZE);
	if (HMAC(EVP_sha256(), secret->bytes, (int)secret->length, text, sizeof(text), proof,
		 &length) &&
	    length == KV_PROOF_SIZE)
		return true;
	memset(proof, 0, KV_PROOF_SIZE);
	error_set(RMR_SYSTEM, "OpenSSL has no HMAC-SHA-256: look at its configuration");
	return false;
}

bool kv_proof_is_right(const struct kv_secret *secret, enum kv_prover prover,
		       const uint8_t client_nonce[KV_NONCE_SIZE],
		       const uint8_t server_nonce[KV_NONCE_SIZE],
		       const uint8_t proof[KV_PROOF_SIZE])
{
	uint8_t right[KV_PROOF_SIZE];

	if (!secret->length || !kv_prove(secret, prover, client_nonce, server_nonce, right))
		return false;
	return CRYPTO_memcmp(right, proof, KV_PROOF_SIZE) == 0;
}
