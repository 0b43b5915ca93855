/*
 * The message chain is one buffer per thread. New context goes in front, by building the new text
 * beside the old one: failures are rare, and a copy of at most a kilobyte is cheap against what a
 * failure costs anyway.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Room for the name of a status before the chain: the longest is "address-in-use: ". */
#define STATUS_NAME_SIZE 32

struct error_state {
	enum rmr_status status;
	char chain[ERROR_CHAIN_SIZE];
	char message[STATUS_NAME_SIZE + ERROR_CHAIN_SIZE]; /* what rmr_error_message() shows */
};

static _Thread_local struct error_state state;

struct status_name {
	const char *name;
	const char *text;
};

#define STATUS(code, name, meaning) [-(code)] = {name, name ": " meaning}

static const struct status_name names[] = {
	STATUS(RMR_OK, "ok", "it worked"),
	STATUS(RMR_AGAIN, "again", "nothing to do or no room right now"),
	STATUS(RMR_INVALID, "invalid", "an argument makes no sense"),
	STATUS(RMR_NO_MEMORY, "no-memory", "no memory left"),
	STATUS(RMR_NO_DEVICE, "no-device", "no such device or provider on this machine"),
	STATUS(RMR_UNSUPPORTED, "unsupported", "this device cannot do that"),
	STATUS(RMR_DENIED, "denied", "the operating system or the owner does not permit it"),
	STATUS(RMR_ACCESS, "access", "wrong key, out of bounds, or beyond the region's rights"),
	STATUS(RMR_TOO_LONG, "too-long", "longer than a limit"),
	STATUS(RMR_LIMIT, "limit", "a count is exhausted"),
	STATUS(RMR_TIMEOUT, "timeout", "the deadline passed first"),
	STATUS(RMR_REFUSED, "refused", "nobody listens there, or the listener turned us down"),
	STATUS(RMR_DISCONNECTED, "disconnected", "the connection is gone"),
	STATUS(RMR_CANCELED, "canceled", "never carried out, the connection ended before it"),
	STATUS(RMR_PROTOCOL, "protocol", "the other end speaks something else, or broke the rules"),
	STATUS(RMR_ADDRESS_IN_USE, "address-in-use", "another listener has this address"),
	STATUS(RMR_BAD_ADDRESS, "bad-address", "the address cannot be parsed or resolved"),
	STATUS(RMR_SYSTEM, "system", "an unexpected error of the operating system"),
};

static const struct status_name *find_name(enum rmr_status status)
{
	static const struct status_name unknown = {"unknown", "unknown: not a status code"};
	int index = -(int)status;

	if (index < 0 || (size_t)index >= sizeof(names) / sizeof(names[0]))
		return &unknown;
	return &names[index];
}

const char *rmr_status_text(enum rmr_status status)
{
	return find_name(status)->text;
}

/* Ends a text that was cut off with "...", in place of its last characters. */
static void mark_truncated(char *text, size_t size)
{
	memcpy(text + size - 4, "...", 4);
}

/* Appends to the text of `used` bytes in `text`; returns the new length, at most size - 1. */
__attribute__((format(printf, 4, 0))) static size_t append(char *text, size_t size, size_t used,
							   const char *format, va_list args)
{
	int length = vsnprintf(text + used, size - used, format, args);

	if (length < 0)
		return used;
	if ((size_t)length >= size - used) {
		mark_truncated(text, size);
		return size - 1;
	}
	return used + (size_t)length;
}

__attribute__((format(printf, 4, 5))) static size_t append_text(char *text, size_t size,
								size_t used, const char *format,
								...)
{
	va_list args;

	va_start(args, format);
	used = append(text, size, used, format, args);
	va_end(args);
	return used;
}

enum rmr_status error_set(enum rmr_status status, const char *format, ...)
{
	int saved_errno = errno;
	char text[ERROR_CHAIN_SIZE];
	va_list args;

	/* Built beside the old message, so that the arguments may point into it. */
	va_start(args, format);
	append(text, sizeof(text), 0, format, args);
	va_end(args);
	memcpy(state.chain, text, sizeof(text));
	state.status = status;
	errno = saved_errno;
	return status;
}

enum rmr_status error_errno(enum rmr_status status, int errnum, const char *format, ...)
{
	int saved_errno = errno;
	char text[ERROR_CHAIN_SIZE];
	char reason[128];
	size_t used;
	va_list args;

	va_start(args, format);
	used = append(text, sizeof(text), 0, format, args);
	va_end(args);
	append_text(text, sizeof(text), used, ": %s", strerror_r(errnum, reason, sizeof(reason)));
	memcpy(state.chain, text, sizeof(text));
	state.status = status;
	errno = saved_errno;
	return status;
}

enum rmr_status error_context(enum rmr_status status, const char *format, ...)
{
	int saved_errno = errno;
	char text[ERROR_CHAIN_SIZE];
	size_t used;
	va_list args;

	if (status == RMR_OK)
		return status;
	va_start(args, format);
	used = append(text, sizeof(text), 0, format, args);
	va_end(args);
	if (state.chain[0] != '\0')
		append_text(text, sizeof(text), used, ": %s", state.chain);
	memcpy(state.chain, text, sizeof(text));
	state.status = status;
	errno = saved_errno;
	return status;
}

void error_clear(void)
{
	state.status = RMR_OK;
	state.chain[0] = '\0';
}

const char *error_chain(void)
{
	return state.chain;
}

enum rmr_status error_status(void)
{
	return state.status;
}

const char *rmr_error_message(void)
{
	if (state.status == RMR_OK && state.chain[0] == '\0')
		return "";
	snprintf(state.message, sizeof(state.message), "%s: %s", find_name(state.status)->name,
		 state.chain);
	return state.message;
}
