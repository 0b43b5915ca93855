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

static enum rmr_status take_line(struct kv_secret *secret, const char *path, ssize_t length)
{
	const uint8_t *end = memchr(secret->bytes, '\n', (size_t)length);

	secret->length = end ? (size_t)(end - secret->bytes) : (size_t)length;
	if (secret->length && secret->bytes[secret->length - 1] == '\r')
		secret->length--;
	if (secret->length < KV_MIN_SECRET)
		return error_set(
			RMR_INVALID,
			"key file %s: its first line has %zu bytes, at least %u are needed; "
			"make one: openssl rand -hex 32 > %s",
			path, secret->length, KV_MIN_SECRET, path);
	if (!end && length == KV_MAX_SECRET)
		return error_set(RMR_INVALID, "key file %s: its first line has more than %u bytes",
				 path, KV_MAX_SECRET - 1);
	return RMR_OK;
}

enum rmr_status kv_secret_read(struct kv_secret *secret, const char *path)
{
	enum rmr_status status;
	struct stat info;
	ssize_t length;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	*secret = (struct kv_secret){0};
	if (fd < 0)
		return error_errno(RMR_DENIED, errno, "key file %s", path);
	if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_mode & 077)
		log_warn("key file %s can be read by others: chmod 600 %s", path, path);
	do {
		length = read(fd, secret->bytes, KV_MAX_SECRET);
	} while (length < 0 && errno == EINTR);
	status = length < 0 ? error_errno(RMR_DENIED, errno, "key file %s", path)
			    : take_line(secret, path, length);
	close(fd);
	if (status != RMR_OK)
		kv_secret_wipe(secret);
	return status;
}

void kv_secret_wipe(struct kv_secret *secret)
{
	OPENSSL_cleanse(secret, sizeof(*secret));
}

enum rmr_status kv_make_nonce(uint8_t nonce[KV_NONCE_SIZE])
{
	if (getrandom(nonce, KV_NONCE_SIZE, 0) != KV_NONCE_SIZE)
		return error_errno(RMR_SYSTEM, errno, "random bytes");
	return RMR_OK;
}

void kv_prove(const struct kv_secret *secret, enum kv_prover prover,
	      const uint8_t client_nonce[KV_NONCE_SIZE], const uint8_t server_nonce[KV_NONCE_SIZE],
	      uint8_t proof[KV_PROOF_SIZE])
{
	uint8_t text[16 + 2 * KV_NONCE_SIZE] = {0};
	unsigned length = KV_PROOF_SIZE;

	memcpy(text, prover == KV_CLIENT_PROVES ? "remora client" : "remora server", 13);
	memcpy(text + 16, client_nonce, KV_NONCE_SIZE);
	memcpy(text + 16 + KV_NONCE_SIZE, server_nonce, KV_NONCE_SIZE);
	HMAC(EVP_sha256(), secret->bytes, (int)secret->length, text, sizeof(text), proof, &length);
}

bool kv_proof_is_right(const struct kv_secret *secret, enum kv_prover prover,
		       const uint8_t client_nonce[KV_NONCE_SIZE],
		       const uint8_t server_nonce[KV_NONCE_SIZE],
		       const uint8_t proof[KV_PROOF_SIZE])
{
	uint8_t right[KV_PROOF_SIZE];

	if (!secret->length)
		return false;
	kv_prove(secret, prover, client_nonce, server_nonce, right);
	return CRYPTO_memcmp(right, proof, KV_PROOF_SIZE) == 0;
}
