/*
 * Metadata: the texts in gRPC's headers and trailers. Pure; no header is trusted to be as it
 * should.
 */
#include <stdio.h>
#include <string.h>

#include "control/grpc.h"

static const char *const status_names[GRPC_STATUS_COUNT] = {
	[GRPC_OK] = "OK",
	[GRPC_CANCELLED] = "CANCELLED",
	[GRPC_UNKNOWN] = "UNKNOWN",
	[GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
	[GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
	[GRPC_NOT_FOUND] = "NOT_FOUND",
	[GRPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
	[GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
	[GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
	[GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
	[GRPC_ABORTED] = "ABORTED",
	[GRPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
	[GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
	[GRPC_INTERNAL] = "INTERNAL",
	[GRPC_UNAVAILABLE] = "UNAVAILABLE",
	[GRPC_DATA_LOSS] = "DATA_LOSS",
	[GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

const char *grpc_status_name(unsigned status)
{
	return status_names[status < GRPC_STATUS_COUNT ? status : GRPC_UNKNOWN];
}

enum grpc_status grpc_status_parse(const uint8_t *text, size_t length)
{
	unsigned number = 0;

	if (length < 1 || length > 2)
		return GRPC_UNKNOWN;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return GRPC_UNKNOWN;
		number = 10 * number + (text[i] - '0');
	}
	return number < GRPC_STATUS_COUNT ? (enum grpc_status)number : GRPC_UNKNOWN;
}

/* ------------------------------------------------------------------------------------------
 * Percent-encoding
 */

static bool is_plain(unsigned char letter)
{
	return letter >= ' ' && letter <= '~' && letter != '%';
}

size_t grpc_percent_encode(const char *text, char *to, size_t room)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t used = 0;

	for (; *text; text++) {
		unsigned char letter = (unsigned char)*text;

		if (room - used < (is_plain(letter) ? 1u : 3u))
			break;
		if (is_plain(letter)) {
			to[used++] = (char)letter;
			continue;
		}
		to[used++] = '%';
		to[used++] = digits[letter >> 4];
		to[used++] = digits[letter & 15];
	}
	return used;
}

/* -1: it is no digit. */
static int digit_of(uint8_t letter)
{
	if (letter >= '0' && letter <= '9')
		return letter - '0';
	letter |= 0x20;
	return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

size_t grpc_percent_decode(const uint8_t *text, size_t length, char *to, size_t room)
{
	size_t used = 0;

	if (!room)
		return 0;
	for (size_t i = 0; i < length && used + 1 < room; i++) {
		int high = i + 2 < length ? digit_of(text[i + 1]) : -1;
		int low = i + 2 < length ? digit_of(text[i + 2]) : -1;

		if (text[i] == '%' && high >= 0 && low >= 0) {
			to[used++] = (char)(high << 4 | low);
			i += 2;
		} else {
			to[used++] = (char)text[i];
		}
	}
	to[used] = '\0';
	return used;
}

/* ------------------------------------------------------------------------------------------
 * Time limits
 */

static const struct {
	char letter;
	uint64_t ns;
} units[] = {
	{'n', UINT64_C(1)},	     {'u', UINT64_C(1000)},	   {'m', UINT64_C(1000000)},
	{'S', UINT64_C(1000000000)}, {'M', UINT64_C(60000000000)}, {'H', UINT64_C(3600000000000)},
};

#define UNITS	   (sizeof(units) / sizeof(units[0]))
#define MOST_COUNT UINT64_C(99999999)

bool grpc_timeout_parse(const uint8_t *text, size_t length, uint64_t *timeout_ns)
{
	uint64_t number = 0;

	if (length < 2 || length > 9)
		return false;
	for (size_t i = 0; i < length - 1; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		number = 10 * number + (text[i] - '0');
	}
	for (size_t i = 0; i < UNITS; i++) {
		if (units[i].letter != (char)text[length - 1])
			continue;
		/* 10^8 hours are more nanoseconds than can be counted. */
		*timeout_ns = number > UINT64_MAX / 2 / units[i].ns ? UINT64_MAX / 2
								    : number * units[i].ns;
		return true;
	}
	return false;
}

size_t grpc_timeout_format(uint64_t timeout_ns, char to[GRPC_TIMEOUT_TEXT])
{
	uint64_t count = timeout_ns;
	size_t unit = 0;

	while (count > MOST_COUNT && unit + 1 < UNITS) {
		unit++;
		count = timeout_ns / units[unit].ns + (timeout_ns % units[unit].ns != 0);
	}
	if (count > MOST_COUNT)
		count = MOST_COUNT;
	return (size_t)snprintf(to, GRPC_TIMEOUT_TEXT, "%llu%c", (unsigned long long)count,
				units[unit].letter);
}

bool grpc_list_has(const uint8_t *text, size_t length, const char *name)
{
	size_t wanted = strlen(name), at = 0;

	while (at < length) {
		size_t end = at;

		while (end < length && text[end] != ',')
			end++;
		while (at < end && text[at] == ' ')
			at++;
		if (end - at >= wanted && memcmp(text + at, name, wanted) == 0 &&
		    (end - at == wanted || text[at + wanted] == ' '))
			return true;
		at = end + 1;
	}
	return false;
}

bool grpc_content_type_is_right(const uint8_t *text, size_t length)
{
	static const char type[] = "application/grpc";
	size_t known = sizeof(type) - 1;

	if (length < known || memcmp(text, type, known) != 0)
		return false;
	if (length == known || text[known] == ';')
		return true;
	return length >= known + 6 && memcmp(text + known, "+proto", 6) == 0 &&
	       (length == known + 6 || text[known + 6] == ';');
}
