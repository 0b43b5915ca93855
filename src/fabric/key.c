/*
 * Keys of regions and secrets of connections: numbers that no peer can guess.
 *
 * A region has one key of its own, which never leaves the process. A peer gets another one, made of
 * it and of a secret of its connection by SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed hash:
 * from the keys of one connection nothing follows for those of another one. So the key in a
 * descriptor holds for one region and one connection, no list of grants is kept, and a grant ends
 * with either of the two.
 */
#include <errno.h>
#include <sys/random.h>

#include "base/error.h"
#include "fabric/provider.h"

enum rmr_status key_random(uint64_t *key)
{
	do {
		if (getrandom(key, sizeof(*key), 0) != sizeof(*key))
			return error_errno(RMR_SYSTEM, errno, "no random numbers from the kernel");
	} while (*key == 0);
	return RMR_OK;
}

static uint64_t rotate(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static void sip_rounds(uint64_t v[4], int rounds)
{
	for (int i = 0; i < rounds; i++) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32) + v[3];
		v[2] += v[1];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[2] = rotate(v[2], 32);
	}
}

uint64_t key_derive(const struct key_secret *secret, uint64_t key)
{
	uint64_t v[4] = {
		secret->word[0] ^ 0x736f6d6570736575u,
		secret->word[1] ^ 0x646f72616e646f6du,
		secret->word[0] ^ 0x6c7967656e657261u,
		secret->word[1] ^ 0x7465646279746573u,
	};
	const uint64_t blocks[2] = {key, (uint64_t)sizeof(key) << 56};

	for (int i = 0; i < 2; i++) {
		v[3] ^= blocks[i];
		sip_rounds(v, 2);
		v[0] ^= blocks[i];
	}
	v[2] ^= 0xff;
	sip_rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
