/*
 * Answers: see client.h.
 *
 * At the prompt everything goes to stdout, one answer after the other. From the command line only
 * what was asked for goes there, so that a value can be piped on: "(nil)" and errors go to stderr,
 * and the exit code says the same to scripts. As JSON all goes to stdout.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client.h"
#include "client/internal.h"

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
		text = ask_error(session);
		return show_error(session, CLIENT_FAILED, "%s",
				  text && *text ? text : kv_strerror(status));
	}
}

void show_wrapped(FILE *file, const char *text, int column, int begin, int width)
{
	while (*text) {
		int length = (int)strcspn(text, " ");

		if (column > begin && column + 1 + length > width)
			column = fprintf(file, "\n%*s", begin, "") - 1;
		else if (column > begin)
			column += fprintf(file, " ");
		column += fprintf(file, "%.*s", length, text);
		text += length + (text[length] == ' ');
	}
	fputc('\n', file);
}

/* ------------------------------------------------------------------------------------------
 * No server
 */

bool show_server(const struct client_config *config, char *name, size_t size)
{
	const char *server = config->server, *scheme = server ? strstr(server, "://") : NULL;
	struct target_list targets;

	snprintf(name, size, "%s", server ? server : "this host");
	/* By every path, because shm is a target of this host alone. */
	if (config->is_grpc || (server && strncmp(server, "shm:", 4) == 0) ||
	    targets_find(CONN_MODE_AUTO, scheme ? scheme + 3 : server, config->port, NULL,
			 &targets) != KV_OK ||
	    !targets.count)
		return false;
	snprintf(name, size, "%s", targets.targets[targets.count - 1].address);
	return !targets.targets[0].reason[0];
}

/* Whether the reason of a path begins here: "tcp: ...", "verbs:mlx5_0: ...". */
static bool is_reason(const char *text)
{
	size_t length = strcspn(text, " ");

	return length && text[length] && text[length - 1] == ':' &&
	       (strncmp(text, "shm", 3) == 0 || strncmp(text, "tcp", 3) == 0 ||
		strncmp(text, "verbs", 5) == 0 || strncmp(text, "ofi", 3) == 0 ||
		strncmp(text, "fault:", 6) == 0);
}

/* Each path's in a line of its own; on a terminal in lines as wide as that is. */
static void print_reasons(FILE *file, const char *reasons)
{
	struct winsize window;
	int width = ioctl(fileno(file), TIOCGWINSZ, &window) == 0 && window.ws_col ? window.ws_col
										   : INT_MAX;
	char reason[1024];

	while (*reasons) {
		const char *end = strstr(reasons, "; ");

		while (end && !is_reason(end + 2))
			end = strstr(end + 2, "; ");
		snprintf(reason, sizeof(reason), "%.*s",
			 end ? (int)(end - reasons) : (int)strlen(reasons), reasons);
		fputs("  ", file);
		show_wrapped(file, reason, 2, 4, width);
		reasons = end ? end + 2 : "";
	}
}

enum client_exit show_unconnected(const struct session *session, int status)
{
	const char *reasons = ask_error(session);
	char name[300];
	bool is_here;

	/* A server that refuses us is there. */
	if (session->json || (status != KV_DISCONNECTED && status != KV_TIMEOUT) || !reasons ||
	    session->config->is_grpc)
		return show_status(session, status);
	is_here = show_server(session->config, name, sizeof(name));
	if (is_here && strstr(reasons, "nobody listens"))
		show_error(session, CLIENT_FAILED,
			   "no server reached at %s; start one here: kv-server -p %s", name,
			   strrchr(name, ':') + 1);
	else
		show_error(session, CLIENT_FAILED, "no server reached at %s", name);
	print_reasons(session->prompt ? stdout : stderr, reasons);
	return CLIENT_FAILED;
}

/* ------------------------------------------------------------------------------------------
 * Values
 */

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
		if (bytes[i] > ' ' && bytes[i] < 0x7f && !strchr("\\\"'", bytes[i]) &&
		    (i || !strchr("-@", bytes[i])))
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
