/*
 * One parser for both: a decimal number with an optional fraction, and a unit from a table. The
 * arithmetic is done in 128-bit integers, so that nothing is rounded or overflows unseen.
 */
#include "base/size.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

struct unit {
	const char *name;
	uint64_t factor;
};

#define KIB UINT64_C(1024)
#define SEC UINT64_C(1000000000)

/* In both tables the first entry is the unit of a number alone. */
static const struct unit size_units[] = {
	{"", 1},
	{"B", 1},
	{"K", KIB},
	{"KB", KIB},
	{"KiB", KIB},
	{"M", KIB *KIB},
	{"MB", KIB *KIB},
	{"MiB", KIB *KIB},
	{"G", KIB *KIB *KIB},
	{"GB", KIB *KIB *KIB},
	{"GiB", KIB *KIB *KIB},
	{"T", KIB *KIB *KIB *KIB},
	{"TB", KIB *KIB *KIB *KIB},
	{"TiB", KIB *KIB *KIB *KIB},
	{NULL, 0},
};

static const struct unit duration_units[] = {
	{"", SEC},	 {"ns", 1},	    {"us", 1000},      {"ms", 1000000}, {"s", SEC},
	{"m", 60 * SEC}, {"min", 60 * SEC}, {"h", 3600 * SEC}, {NULL, 0},
};

/* A decimal number as it is written: value / scale. */
struct decimal {
	uint64_t value;
	uint64_t scale;
};

/* Reads the number; returns what follows it, or NULL when there is none or it is too long. */
static const char *read_decimal(const char *at, struct decimal *number)
{
	const char *start = at;
	bool fraction = false;

	*number = (struct decimal){0, 1};
	for (;; at++) {
		if (*at == '.' && !fraction && at != start) {
			fraction = true;
			continue;
		}
		if (*at < '0' || *at > '9')
			break;
		if (__builtin_mul_overflow(number->value, 10, &number->value) ||
		    __builtin_add_overflow(number->value, *at - '0', &number->value))
			return NULL;
		if (fraction && __builtin_mul_overflow(number->scale, 10, &number->scale))
			return NULL;
	}
	if (at == start || at[-1] == '.')
		return NULL;
	return at;
}

/* Any exact multiple of the base unit that fits; RMR_INVALID without a message otherwise. */
static enum rmr_status parse(const char *text, const struct unit *units, uint64_t *result)
{
	const struct unit *unit = units;
	struct decimal number;
	unsigned __int128 product;
	const char *rest = read_decimal(text, &number);

	if (rest == NULL)
		return RMR_INVALID;
	while (*rest == ' ')
		rest++;
	while (unit->name != NULL && strcasecmp(unit->name, rest) != 0)
		unit++;
	if (unit->name == NULL)
		return RMR_INVALID;
	product = (unsigned __int128)number.value * unit->factor;
	if (product % number.scale != 0 || product / number.scale > UINT64_MAX)
		return RMR_INVALID;
	*result = (uint64_t)(product / number.scale);
	return RMR_OK;
}

enum rmr_status size_parse(const char *text, uint64_t *bytes)
{
	if (parse(text, size_units, bytes) != RMR_OK)
		return error_set(RMR_INVALID, "'%s' is not a size; use e.g. 64KiB or 1GiB", text);
	return RMR_OK;
}

enum rmr_status duration_parse(const char *text, uint64_t *duration_ns)
{
	if (parse(text, duration_units, duration_ns) != RMR_OK)
		return error_set(RMR_INVALID, "'%s' is not a duration; use e.g. 10s or 250ms",
				 text);
	return RMR_OK;
}

const char *size_format(uint64_t bytes, char text[SIZE_TEXT_LENGTH])
{
	static const char *const suffixes[] = {"", "KiB", "MiB", "GiB", "TiB"};
	unsigned i = 0;

	while (i < 4 && bytes != 0 && bytes % 1024 == 0) {
		bytes /= 1024;
		i++;
	}
	snprintf(text, SIZE_TEXT_LENGTH, "%" PRIu64 "%s", bytes, suffixes[i]);
	return text;
}

const char *duration_format(uint64_t duration_ns, char text[SIZE_TEXT_LENGTH])
{
	static const char *const suffixes[] = {"ns", "us", "ms", "s"};
	unsigned i = 0;

	while (i < 3 && duration_ns % 1000 == 0) {
		duration_ns /= 1000;
		i++;
	}
	snprintf(text, SIZE_TEXT_LENGTH, "%" PRIu64 "%s", duration_ns, suffixes[i]);
	return text;
}
