/*
 * Answers: see client.h.
 *
 * At the prompt everything goes to stdout, one answer after the other. From the command line only
 * what was asked for goes there, so that a value can be piped on: "(nil)" and errors go to stderr,
 * and the exit code says the same to scripts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

enum client_exit show_error(const struct session *session, enum client_exit code,
			    const char *format, ...)
{
	FILE *file = session->prompt ? stdout : stderr;
	va_list args;

	fputs("ERROR: ", file);
	va_start(args, format);
	vfprintf(file, format, args);
	va_end(args);
	fputc('\n', file);
	return code;
}

enum client_exit show_status(const struct session *session, int status)
{
	const char *text;

	switch (status) {
	case KV_OK:
		puts("OK");
		return CLIENT_OK;
	case KV_NOT_FOUND:
		fputs("(nil)\n", session->prompt ? stdout : stderr);
		return CLIENT_NOT_FOUND;
	default:
		text = kv_client_error(session->client);
		return show_error(session, CLIENT_FAILED, "%s",
				  text && *text ? text : kv_strerror(status));
	}
}

enum client_exit show_value(const struct session *session, const void *value, size_t length)
{
	bool line = session->prompt || isatty(STDOUT_FILENO);

	if (length && fwrite(value, 1, length, stdout) != length)
		return show_error(session, CLIENT_FAILED, "stdout: %s", strerror(errno));
	if (line)
		putchar('\n');
	return CLIENT_OK;
}

void show_key(const void *key, size_t length)
{
	const unsigned char *bytes = key;

	for (size_t i = 0; i < length; i++) {
		if (bytes[i] > ' ' && bytes[i] < 0x7f && bytes[i] != '\\')
			putchar(bytes[i]);
		else
			printf("\\x%02x", bytes[i]);
	}
}

void show_ttl(uint64_t ttl_ms)
{
	if (ttl_ms)
		printf("%" PRIu64 ".%03u s\n", ttl_ms / 1000, (unsigned)(ttl_ms % 1000));
	else
		puts("never expires");
}
