/*
 * Histories written by hand. In each line: the process, from when to when, what was asked, what was
 * told. Values are 0xa, 0xb, 0xc; versions 1, 2, 3. NEVER as the end: it never returned.
 */
#include "handwritten.h"

#include <string.h>

/* clang-format off */
#define NEVER HISTORY_NEVER
#define OP(who, from, to, what, answer, ...)                                                       \
	{.process = (who), .invoke_ns = (from), .return_ns = (to), .kind = HISTORY_##what,         \
	 .status = (answer), __VA_ARGS__}
#define GET(who, from, to, id, told)                                                               \
	OP(who, from, to, GET, KV_OK, .found_kind = HISTORY_FOUND_VALUE, .found = (id),            \
	   .version = (told))
#define GET_NUMBER(who, from, to, number, told)                                                    \
	OP(who, from, to, GET, KV_OK, .found_kind = HISTORY_FOUND_NUMBER,                          \
	   .found = (uint64_t)(number), .version = (told))
#define EXISTS(who, from, to, told) OP(who, from, to, GET, KV_OK, .version = (told))
#define MISS(who, from, to) OP(who, from, to, GET, KV_NOT_FOUND)
#define PUT(who, from, to, id, told)                                                               \
	OP(who, from, to, PUT, KV_OK, .argument = (id), .version = (told))
#define ADD(who, from, to, id, answer, told)                                                       \
	OP(who, from, to, PUT_IF_ABSENT, answer, .argument = (id), .version = (told))
#define CAS(who, from, to, old, id, answer, told)                                                  \
	OP(who, from, to, CAS, answer, .expected = (old), .argument = (id), .version = (told))
#define DELETE(who, from, to, answer) OP(who, from, to, DELETE, answer)
#define DELETE_VERSION(who, from, to, old, answer, told)                                           \
	OP(who, from, to, DELETE_IF_VERSION, answer, .expected = (old), .version = (told))
#define INCR(who, from, to, delta, answer, sum)                                                    \
	OP(who, from, to, INCR, answer, .argument = (uint64_t)(delta), .found = (uint64_t)(sum))
#define SWAP(who, from, to, old, new, answer, was)                                                 \
	OP(who, from, to, COUNTER_CAS, answer, .expected = (uint64_t)(old),                        \
	   .argument = (uint64_t)(new), .found = (uint64_t)(was))
#define LOST_PUT(who, from, to, id) OP(who, from, to, PUT, KV_UNKNOWN, .argument = (id))

const struct handwritten handwritten[] = {
	/* Reads and writes. */
	{"nothing at all", true},
	{"a read of what was put", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), GET(1, 3, 4, 0xa, 1)}},
	{"a read beside a put sees it or not", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), PUT(0, 10, 20, 0xb, 2), GET(1, 11, 12, 0xa, 1),
		GET(2, 11, 13, 0xb, 2)}},
	{"a miss before, beside and after", true, .ops = {
		MISS(0, 1, 2), PUT(0, 10, 20, 0xa, 1), MISS(1, 11, 12), DELETE(0, 30, 40, KV_OK),
		MISS(1, 31, 32), GET(2, 31, 33, 0xa, 1), DELETE(0, 50, 51, KV_NOT_FOUND)}},
	{"a stale read", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), PUT(0, 3, 4, 0xb, 2), GET(1, 5, 6, 0xa, 1)}},
	{"a stale read, no versions", false, .ops = {
		PUT(0, 1, 2, 0xa, 0), PUT(0, 3, 4, 0xb, 0), GET(1, 5, 6, 0xa, 0)}},
	{"two readers see it go backwards", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), PUT(0, 10, 20, 0xb, 2), GET(1, 11, 12, 0xb, 2),
		GET(2, 13, 14, 0xa, 1)}},
	{"two readers see it go backwards, no versions", false, .ops = {
		PUT(0, 1, 2, 0xa, 0), PUT(0, 10, 20, 0xb, 0), GET(1, 11, 12, 0xb, 0),
		GET(2, 13, 14, 0xa, 0)}},
	{"two readers disagree about the order of two puts", false, .ops = {
		PUT(0, 1, 20, 0xa, 0), PUT(1, 1, 20, 0xb, 0), GET(2, 2, 3, 0xa, 0),
		GET(2, 4, 5, 0xb, 0), GET(3, 2, 3, 0xb, 0), GET(3, 4, 5, 0xa, 0)}},
	{"a value that was never put", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), GET(1, 3, 4, 0xb, 2)}},
	{"a value before it was put", false, .ops = {
		GET(1, 1, 2, 0xa, 1), PUT(0, 3, 4, 0xa, 1)}},
	{"a miss of what is there", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), MISS(1, 3, 4)}},
	{"a value of another key", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), OP(1, 3, 4, GET, KV_OK, .key = 1,
					 .found_kind = HISTORY_FOUND_VALUE, .found = 0xa)}},
	{"a value after its deletion", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), DELETE(0, 3, 4, KV_OK), GET(1, 5, 6, 0xa, 1)}},
	{"a value comes back after it was deleted", false, .ops = {
		PUT(0, 1, 2, 0xa, 0), DELETE(0, 10, 20, KV_OK), MISS(1, 11, 12),
		GET(2, 13, 14, 0xa, 0)}},
	{"deleted twice", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), DELETE(0, 3, 10, KV_OK), DELETE(1, 3, 10, KV_OK)}},
	{"something is there, nobody says what", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), EXISTS(1, 3, 4, 0), EXISTS(1, 5, 6, 1)}},
	{"something is there after its deletion", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), DELETE(0, 3, 4, KV_OK), EXISTS(1, 5, 6, 0)}},
	{"put if absent", true, .ops = {
		ADD(0, 1, 2, 0xa, KV_OK, 1), ADD(1, 3, 4, 0xb, KV_EXISTS, 1),
		GET(1, 5, 6, 0xa, 1)}},
	{"put if absent twice", false, .ops = {
		ADD(0, 1, 10, 0xa, KV_OK, 1), ADD(1, 1, 10, 0xb, KV_OK, 2)}},
	{"put if absent is refused though absent", false, .ops = {
		ADD(0, 1, 10, 0xa, KV_EXISTS, 0)}},
	{"a value was refused, and read", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), ADD(1, 3, 4, 0xb, KV_EXISTS, 1), GET(1, 5, 6, 0xb, 0)}},

	/* Versions. */
	{"versions begin anew after a delete", true, .ops = {
		PUT(0, 1, 2, 0xa, 9), DELETE(0, 3, 4, KV_OK), PUT(0, 5, 6, 0xb, 4),
		GET(1, 7, 8, 0xb, 4)}},
	{"a version that does not grow", false, .ops = {
		PUT(0, 1, 2, 0xa, 9), PUT(0, 3, 4, 0xb, 8)}},
	{"the order of versions is the order of puts", false, .ops = {
		PUT(0, 1, 10, 0xa, 2), PUT(1, 1, 10, 0xb, 1), GET(2, 2, 3, 0xa, 0),
		GET(2, 4, 5, 0xb, 0)}},
	{"a version of two puts", false, .ops = {
		PUT(0, 1, 10, 0xa, 1), PUT(1, 1, 10, 0xb, 1)}},
	{"a version of two keys", false, .needs_first_pass = true, .ops = {
		PUT(0, 1, 10, 0xa, 1),
		OP(1, 1, 10, PUT, KV_OK, .key = 1, .argument = 0xb, .version = 1)}},
	{"a value read with the version of another", false, .ops = {
		PUT(0, 1, 10, 0xa, 1), PUT(1, 1, 10, 0xb, 2), GET(2, 1, 10, 0xa, 2)}},
	{"a value with two versions", false, .ops = {
		PUT(0, 1, 10, 0xa, 0), GET(2, 1, 10, 0xa, 2), GET(2, 11, 12, 0xa, 3)}},

	/* Compare and swap. */
	{"cas succeeds, then fails", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), CAS(0, 3, 20, 1, 0xb, KV_OK, 2),
		CAS(1, 3, 20, 1, 0xc, KV_CAS_FAILED, 2), GET(2, 21, 22, 0xb, 2)}},
	{"two cas succeed on a version", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), CAS(0, 3, 20, 1, 0xb, KV_OK, 2),
		CAS(1, 3, 20, 1, 0xc, KV_OK, 3)}},
	{"two cas succeed on a version, others not told", false, .ops = {
		PUT(0, 1, 2, 0xa, 0), GET(3, 2, 3, 0xa, 1), CAS(0, 4, 20, 1, 0xb, KV_OK, 0),
		CAS(1, 4, 20, 1, 0xc, KV_OK, 0)}},
	{"a lost update", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), GET(0, 3, 4, 0xa, 1), GET(1, 3, 4, 0xa, 1),
		CAS(0, 5, 6, 1, 0xb, KV_OK, 2), CAS(1, 7, 8, 1, 0xc, KV_OK, 3)}},
	{"cas fails on the right version", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), CAS(0, 3, 4, 1, 0xb, KV_CAS_FAILED, 1)}},
	{"cas fails on the right version, it says not why", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), CAS(0, 3, 4, 1, 0xb, KV_CAS_FAILED, 0)}},
	{"cas of what is not there", true, .ops = {
		CAS(0, 1, 2, 1, 0xb, KV_NOT_FOUND, 0)}},
	{"cas does not find what is there", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), CAS(0, 3, 4, 1, 0xb, KV_NOT_FOUND, 0)}},
	{"cas after a deletion", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), DELETE(0, 3, 4, KV_OK), CAS(0, 5, 6, 1, 0xb, KV_OK, 2)}},
	{"delete by version", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), DELETE_VERSION(0, 3, 4, 9, KV_CAS_FAILED, 1),
		DELETE_VERSION(0, 5, 6, 1, KV_OK, 0), MISS(0, 7, 8)}},
	{"delete by a version that was replaced", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), PUT(0, 3, 4, 0xb, 2),
		DELETE_VERSION(0, 5, 6, 1, KV_OK, 0)}},

	/* Counters. */
	{"counting", true, .ops = {
		INCR(0, 1, 10, 1, KV_OK, 1), INCR(1, 1, 10, 5, KV_OK, 6),
		GET_NUMBER(2, 1, 10, 6, 7), INCR(2, 11, 12, -7, KV_OK, -1),
		GET_NUMBER(2, 13, 14, -1, 7)}},
	{"a lost increment", false, .ops = {
		INCR(0, 1, 10, 1, KV_OK, 1), INCR(1, 1, 10, 1, KV_OK, 1)}},
	{"an increment done twice", false, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), GET_NUMBER(1, 3, 4, 2, 0)}},
	{"a counter gets a new version", true, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), GET_NUMBER(1, 3, 4, 1, 5), INCR(0, 5, 6, 1, KV_OK, 2),
		GET_NUMBER(1, 7, 8, 2, 6)}},
	{"a counter keeps its version", true, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), GET_NUMBER(1, 3, 4, 1, 5), INCR(0, 5, 6, 1, KV_OK, 2),
		GET_NUMBER(1, 7, 8, 2, 5)}},
	{"a counter gets an older version", false, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), GET_NUMBER(1, 3, 4, 1, 5), INCR(0, 5, 6, 1, KV_OK, 2),
		GET_NUMBER(1, 7, 8, 2, 4)}},
	{"a counter's version changes by itself", false, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), GET_NUMBER(1, 3, 4, 1, 5), GET_NUMBER(1, 7, 8, 1, 6)}},
	{"a counter anew has another version", true, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), GET_NUMBER(1, 3, 4, 1, 5), DELETE(0, 5, 6, KV_OK),
		INCR(0, 7, 8, 1, KV_OK, 1), GET_NUMBER(1, 9, 10, 1, 3)}},
	{"a counter goes on after its deletion", false, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), DELETE(0, 5, 6, KV_OK), INCR(0, 7, 8, 1, KV_OK, 2)}},
	{"a value is no number", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), INCR(0, 3, 4, 1, KV_NOT_A_NUMBER, 0),
		SWAP(0, 5, 6, 1, 2, KV_NOT_A_NUMBER, 0), GET(0, 7, 8, 0xa, 1)}},
	{"a value is counted with", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), INCR(0, 3, 4, 1, KV_OK, 1)}},
	{"a put over a counter", true, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), PUT(0, 3, 4, 0xa, 2), GET(1, 5, 6, 0xa, 2)}},
	{"cas of a counter", true, .ops = {
		INCR(0, 1, 2, 3, KV_OK, 3), SWAP(0, 3, 4, 3, 9, KV_OK, 3),
		SWAP(1, 5, 6, 3, 7, KV_CAS_FAILED, 9), GET_NUMBER(1, 7, 8, 9, 0)}},
	{"two cas of a counter succeed", false, .ops = {
		INCR(0, 1, 2, 3, KV_OK, 3), SWAP(0, 3, 9, 3, 4, KV_OK, 3),
		SWAP(1, 3, 9, 3, 5, KV_OK, 3)}},
	{"out of range", true, .ops = {
		INCR(0, 1, 2, INT64_MAX, KV_OK, INT64_MAX),
		INCR(0, 3, 4, 1, KV_OUT_OF_RANGE, 0)}},
	{"out of range for no reason", false, .ops = {
		INCR(0, 1, 2, 1, KV_OUT_OF_RANGE, 0)}},

	/* Answers that were lost. */
	{"a lost put takes effect later", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), LOST_PUT(0, 3, NEVER, 0xb), GET(1, 4, 5, 0xa, 1),
		GET(1, 6, 7, 0xb, 2), GET(1, 8, 9, 0xb, 2)}},
	{"a lost put, told to be lost, takes effect later", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), LOST_PUT(0, 3, 4, 0xb), GET(1, 5, 6, 0xa, 1),
		GET(1, 7, 8, 0xb, 2)}},
	{"a lost put never takes effect", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), LOST_PUT(0, 3, 4, 0xb), GET(1, 5, 6, 0xa, 1)}},
	{"a lost put is seen, then not", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), LOST_PUT(0, 3, NEVER, 0xb), GET(1, 6, 7, 0xb, 2),
		GET(1, 8, 9, 0xa, 1)}},
	{"a lost put is seen before it began", false, .ops = {
		GET(1, 1, 2, 0xb, 2), LOST_PUT(0, 3, NEVER, 0xb)}},
	{"a lost put, which nobody read, was in the way of a cas", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), LOST_PUT(0, 3, NEVER, 0xb),
		CAS(1, 4, 5, 1, 0xc, KV_CAS_FAILED, 2), GET(1, 6, 7, 0xb, 2)}},
	{"... and nobody put anything", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), CAS(1, 4, 5, 1, 0xc, KV_CAS_FAILED, 2)}},
	{"a lost put comes between two deletes", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), LOST_PUT(0, 3, NEVER, 0xb), DELETE(1, 4, 5, KV_OK),
		DELETE(1, 6, 7, KV_OK), DELETE(1, 8, 9, KV_NOT_FOUND)}},
	{"a lost put does not explain three deletes", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), LOST_PUT(0, 3, NEVER, 0xb), DELETE(1, 4, 5, KV_OK),
		DELETE(1, 6, 7, KV_OK), DELETE(1, 8, 9, KV_OK)}},
	{"a lost cas happened", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), CAS(0, 3, NEVER, 1, 0xb, KV_UNKNOWN, 0),
		GET(1, 4, 5, 0xb, 2)}},
	{"a lost cas on another version cannot have happened", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), PUT(0, 3, 4, 0xc, 2),
		CAS(0, 5, NEVER, 1, 0xb, KV_UNKNOWN, 0), GET(1, 6, 7, 0xb, 3)}},
	{"a lost cas, on a version that nobody was told, is read late", true, .ops = {
		PUT(0, 1, 2, 0xa, 0), CAS(1, 3, NEVER, 7, 0xb, KV_UNKNOWN, 0),
		CAS(1, 3, NEVER, 5, 0xd, KV_UNKNOWN, 0), DELETE(1, 3, NEVER, KV_UNKNOWN),
		PUT(0, 4, 5, 0xc, 0), EXISTS(2, 6, 7, 0), GET(2, 8, 9, 0xb, 0)}},
	{"... and what it replaced is read after it", false, .ops = {
		PUT(0, 1, 2, 0xa, 0), CAS(1, 3, NEVER, 7, 0xb, KV_UNKNOWN, 0),
		CAS(1, 3, NEVER, 5, 0xd, KV_UNKNOWN, 0), DELETE(1, 3, NEVER, KV_UNKNOWN),
		PUT(0, 4, 5, 0xc, 0), GET(2, 6, 7, 0xb, 0), GET(2, 8, 9, 0xc, 0)}},
	{"a lost delete happened", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), DELETE(0, 3, NEVER, KV_UNKNOWN), GET(1, 4, 5, 0xa, 1),
		MISS(1, 6, 7)}},
	{"a lost delete happened once", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), DELETE(0, 3, NEVER, KV_UNKNOWN), MISS(1, 4, 5),
		PUT(1, 6, 7, 0xb, 2), MISS(1, 8, 9)}},
	{"a lost increment happened", true, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), INCR(0, 3, NEVER, 5, KV_UNKNOWN, 0),
		INCR(1, 4, 5, 1, KV_OK, 2), INCR(1, 6, 7, 1, KV_OK, 8)}},
	{"a lost increment happened twice", false, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), INCR(0, 3, NEVER, 5, KV_UNKNOWN, 0),
		GET_NUMBER(1, 4, 5, 11, 0)}},
	{"a counter begins anew by two lost operations", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), INCR(0, 3, NEVER, 5, KV_UNKNOWN, 0),
		DELETE(1, 3, NEVER, KV_UNKNOWN), GET_NUMBER(2, 4, 5, 5, 3)}},
	{"a lost operation does not happen after what it was before", false, .ops = {
		INCR(0, 1, 2, 1, KV_OK, 1), GET_NUMBER(1, 3, 4, 6, 0),
		INCR(0, 5, NEVER, 5, KV_UNKNOWN, 0)}},
	{"a put that timed out did nothing", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), OP(0, 3, 4, PUT, KV_TIMEOUT, .argument = 0xb),
		GET(1, 5, 6, 0xb, 2)}},
	{"a get that timed out says nothing", true, .ops = {
		PUT(0, 1, 2, 0xa, 1), OP(0, 3, 4, GET, KV_TIMEOUT), OP(0, 5, 6, GET, KV_UNKNOWN),
		GET(1, 7, 8, 0xa, 1)}},
	{"an answer that is none", false, .ops = {
		PUT(0, 1, 2, 0xa, 1), OP(0, 3, 4, GET, KV_INTERNAL)}},
};
/* clang-format on */

const size_t handwritten_count = sizeof(handwritten) / sizeof(handwritten[0]);

const struct handwritten *handwritten_find(const char *name)
{
	for (size_t i = 0; i < handwritten_count; i++)
		if (strcmp(handwritten[i].name, name) == 0)
			return &handwritten[i];
	return NULL;
}
