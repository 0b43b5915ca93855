/*
 * Encoding and decoding of the exchange. See exchange.h for the bytes and who sends them when.
 *
 * Everything that arrives here comes from whoever can reach the port, and goes to the adapter: a
 * decoded exchange has no number that a queue pair cannot have.
 */
#include "fabric/verbs/exchange.h"

#include <endian.h>
#include <string.h>

#define NUMBER_24_MAX  0xffffffu
#define QPN_MIN	       2u /* 0 and 1 are the adapter's own */
#define MTU_MIN	       1
#define MTU_MAX	       5
#define LID_MAX	       0xbfffu /* above are groups */
#define KIND_READY     4
#define VERSION_OFFSET offsetof(struct greeting, version)
#define KIND_OFFSET    offsetof(struct greeting, kind)
#define TEXT_OFFSET    offsetof(struct greeting, secret)

struct exchange_wire {
	uint8_t greeting[GREETING_SIZE];
	uint32_t qpn;
	uint32_t psn;
	uint16_t lid;
	uint8_t mtu;
	uint8_t reads_out;
	uint8_t reads_in;
	uint8_t link;
	uint8_t gid_type;
	uint8_t zero;
	uint8_t gid[16];
	uint64_t zeros;
};
static_assert(sizeof(struct exchange_wire) == EXCHANGE_SIZE, "an exchange is its bytes");

static bool is_zero(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != 0)
			return false;
	}
	return true;
}

static const char *find_path_fault(const struct exchange *exchange)
{
	if (exchange->link == EXCHANGE_INFINIBAND) {
		if (exchange->lid == 0 || exchange->lid > LID_MAX)
			return "an impossible LID";
		if (exchange->gid_type != EXCHANGE_GID_IB)
			return "an impossible type of GID";
		return NULL;
	}
	if (exchange->link != EXCHANGE_ETHERNET)
		return "an unknown link layer";
	if (exchange->lid != 0)
		return "a LID on Ethernet";
	if (exchange->gid_type != EXCHANGE_GID_ROCE_V1 &&
	    exchange->gid_type != EXCHANGE_GID_ROCE_V2)
		return "an impossible type of GID";
	if (is_zero(exchange->gid, sizeof(exchange->gid)) || exchange->gid[0] == 0xff)
		return "a GID that is nobody's";
	return NULL;
}

static const char *find_fault(const struct exchange *exchange)
{
	if (exchange->qpn < QPN_MIN || exchange->qpn > NUMBER_24_MAX)
		return "an impossible queue pair";
	if (exchange->psn > NUMBER_24_MAX)
		return "an impossible sequence number";
	if (exchange->mtu < MTU_MIN || exchange->mtu > MTU_MAX)
		return "an unknown MTU";
	if (exchange->reads_out == 0 || exchange->reads_in == 0)
		return "no READs in flight";
	return find_path_fault(exchange);
}

/* A refusal is as long as its text, and of any version: greeting.c. */
static enum exchange_result decode_refusal(const uint8_t *bytes, size_t available,
					   const char **reason)
{
	char text[GREETING_TEXT_MAX + 1];
	size_t length;

	if (available < TEXT_OFFSET)
		return EXCHANGE_MORE;
	length = TEXT_OFFSET + bytes[offsetof(struct greeting, private_length)];
	if (length <= REFUSAL_SIZE && available < length)
		return EXCHANGE_MORE;
	if (refusal_decode(bytes, available, text))
		return EXCHANGE_REFUSED;
	*reason = "an endless reason";
	return EXCHANGE_BAD;
}

enum exchange_result exchange_decode(const uint8_t *bytes, size_t available,
				     struct exchange *exchange, const char **reason)
{
	uint32_t magic = htole32(GREETING_MAGIC);
	struct exchange_wire wire;
	bool other_version;

	*reason = NULL;
	if (memcmp(bytes, &magic, available < sizeof(magic) ? available : sizeof(magic)) != 0) {
		*reason = "not a Remora greeting";
		return EXCHANGE_BAD;
	}
	if (available <= KIND_OFFSET)
		return EXCHANGE_MORE;
	if (bytes[KIND_OFFSET] == GREETING_REJECT)
		return decode_refusal(bytes, available, reason);
	if (bytes[VERSION_OFFSET] != GREETING_VERSION)
		return EXCHANGE_OTHER_VERSION;
	if (available < EXCHANGE_SIZE)
		return EXCHANGE_MORE;
	memcpy(&wire, bytes, sizeof(wire));
	*exchange = (struct exchange){
		.qpn = le32toh(wire.qpn),
		.psn = le32toh(wire.psn),
		.lid = le16toh(wire.lid),
		.mtu = wire.mtu,
		.reads_out = wire.reads_out,
		.reads_in = wire.reads_in,
		.link = wire.link,
		.gid_type = wire.gid_type,
	};
	memcpy(exchange->gid, wire.gid, sizeof(exchange->gid));
	*reason =
		greeting_decode(wire.greeting, GREETING_SIZE, &exchange->greeting, &other_version);
	if (!*reason && (wire.zero != 0 || wire.zeros != 0))
		*reason = "a greeting with a field that must be zero";
	if (!*reason && available > EXCHANGE_SIZE)
		*reason = "a greeting with something behind it";
	if (!*reason)
		*reason = find_fault(exchange);
	return *reason ? EXCHANGE_BAD : EXCHANGE_DONE;
}

void exchange_encode(uint8_t *to, const struct exchange *exchange)
{
	struct exchange_wire wire = {
		.qpn = htole32(exchange->qpn),
		.psn = htole32(exchange->psn),
		.lid = htole16(exchange->lid),
		.mtu = exchange->mtu,
		.reads_out = exchange->reads_out,
		.reads_in = exchange->reads_in,
		.link = exchange->link,
		.gid_type = exchange->gid_type,
	};

	assert(!find_fault(exchange));
	greeting_encode(wire.greeting, &exchange->greeting);
	memcpy(wire.gid, exchange->gid, sizeof(wire.gid));
	memcpy(to, &wire, sizeof(wire));
}

void exchange_encode_ready(uint8_t *to)
{
	uint32_t magic = htole32(GREETING_MAGIC);

	memset(to, 0, EXCHANGE_READY_SIZE);
	memcpy(to, &magic, sizeof(magic));
	to[VERSION_OFFSET] = GREETING_VERSION;
	to[KIND_OFFSET] = KIND_READY;
}

enum exchange_result exchange_decode_ready(const uint8_t *bytes, size_t available)
{
	uint8_t ready[EXCHANGE_READY_SIZE];

	exchange_encode_ready(ready);
	if (available > sizeof(ready) || memcmp(bytes, ready, available) != 0)
		return EXCHANGE_BAD;
	return available < sizeof(ready) ? EXCHANGE_MORE : EXCHANGE_DONE;
}
