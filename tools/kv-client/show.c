/*
 * Answers: see client.h.
 *
 * At the prompt everything goes to stdout, one answer after the other. From the command line only
 * what was asked for goes there, so that a value can be piped on: "(nil)" and errors go to stderr,
 * and the exit code says the same to scripts. As JSON all goes to stdout.
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
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (session->json) {
		json_begin();
		json_text("status", "error");
		json_text("error", text);
		json_end();
	} else {
		fprintf(file, "ERROR: %s\n", text);
	}
	return code;
}

enum client_exit show_status(const struct session *session, int status)
{
	const char *text;

	switch (status) {
	case KV_OK:
	case KV_NOT_FOUND:
		if (session->json) {
			json_begin();
			json_text("status", status == KV_OK ? "ok" : "not_found");
			json_end();
		} else if (status == KV_OK) {
			puts("OK");
		} else {
			fputs("(nil)\n", session->prompt ? stdout : stderr);
		}
		return status == KV_OK ? CLIENT_OK : CLIENT_NOT_FOUND;
	default:
		text = kv_client_error(session->client);
		return show_error(session, CLIENT_FAILED, "%s",
				  text && *text ? text : kv_strerror(status));
	}
}

/* A value's own lines and tabs stay what they are. */
static void put_escaped(const uint8_t *bytes, size_t length)
{
	uint32_t code;

	for (size_t i = 0; i < length && !interrupt_came();) {
		size_t count = utf8_decode(bytes + i, length - i, &code);

		if (count && (utf8_is_visible(code) || code == '\n' || code == '\t')) {
			fwrite(bytes + i, 1, count, stdout);
			i += count;
		} else {
			printf("\\x%02x", bytes[i++]);
		}
	}
}

enum client_exit show_value(const struct session *session, const void *value, size_t length)
{
	bool terminal = isatty(STDOUT_FILENO);

	if (terminal)
		put_escaped(value, length);
	else if (length && fwrite(value, 1, length, stdout) != length)
		return show_error(session, CLIENT_FAILED, "stdout: %s", strerror(errno));
	if (session->prompt || terminal)
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
