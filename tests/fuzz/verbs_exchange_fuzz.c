/*
 * Fuzzes what two ends of the verbs provider tell each other when they meet: the exchange by
 * sockets, and the greetings and refusals that RDMA CM carries as well.
 *
 * An input is what a peer sent. It is decoded at every length, as if it came byte by byte. What
 * must hold, beside what the sanitizers see: once something is judged it stays so with every
 * further byte, unless that is one too many; and what is taken for good is exactly what encoding it
 * again would have written.
 */
#include <assert.h>
#include <string.h>

#include "fabric/verbs/exchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_good(const uint8_t *data, const struct exchange *exchange)
{
	uint8_t again[EXCHANGE_SIZE];

	exchange_encode(again, exchange);
	assert(memcmp(again, data, sizeof(again)) == 0);
	assert(exchange->qpn >= 2 && exchange->qpn < 1u << 24 && exchange->psn < 1u << 24);
	assert(exchange->mtu >= 1 && exchange->mtu <= 5);
	assert(exchange->reads_in > 0 && exchange->reads_out > 0);
	assert(exchange->greeting.private_length <= RMR_PRIVATE_MAX);
}

static void fuzz_exchange(const uint8_t *data, size_t size)
{
	enum exchange_result before = EXCHANGE_MORE;

	for (size_t have = 0; have <= size && have <= EXCHANGE_ANSWER_MAX; have++) {
		struct exchange exchange;
		const char *reason = NULL;
		enum exchange_result result = exchange_decode(data, have, &exchange, &reason);

		assert((result == EXCHANGE_BAD) == (reason != NULL));
		if (result == EXCHANGE_DONE) {
			assert(have == EXCHANGE_SIZE);
			check_good(data, &exchange);
		}
		if (before == EXCHANGE_DONE)
			assert(result == EXCHANGE_BAD);
		else if (before != EXCHANGE_MORE)
			assert(result == before);
		before = result;
	}
	/* A judgement is reached with the longest answer at the latest. */
	assert(size < EXCHANGE_ANSWER_MAX || before != EXCHANGE_MORE);
}

static void fuzz_greeting(const uint8_t *data, size_t size)
{
	char text[GREETING_TEXT_MAX + 1];
	struct greeting greeting;
	bool other_version;

	if (!greeting_decode(data, size, &greeting, &other_version)) {
		uint8_t again[GREETING_SIZE];

		assert(!other_version);
		greeting_encode(again, &greeting);
		assert(memcmp(again, data, sizeof(again)) == 0);
	}
	if (refusal_decode(data, size, text)) {
		assert(strlen(text) <= GREETING_TEXT_MAX);
		for (const char *at = text; *at; at++)
			assert(*at >= ' ' && *at <= '~');
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_exchange(data, size);
	fuzz_greeting(data, size);
	for (size_t have = 0; have <= size && have <= EXCHANGE_READY_SIZE + 1; have++)
		(void)exchange_decode_ready(data, have);
	return 0;
}
