/*
 * Commands on the server: see client.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

#define SCAN_STEP 256u

struct scan {
	struct word prefix;
	uint64_t left;
	bool json;
};

static void print_scanned(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	struct scan *scan = context;

	if (!scan->left || key_length < scan->prefix.length ||
	    memcmp(key, scan->prefix.text, scan->prefix.length) != 0)
		return;
	scan->left--;
	if (!scan->json) {
		show_key(key, key_length);
		putchar('\n');
		return;
	}
	json_begin();
	json_bytes("key", key, key_length);
	json_number("version", info->version);
	json_number("length", info->length);
	json_ttl(info->ttl_ms);
	json_end();
}

/* "user:*", or "user:". A * that belongs to the keys themselves is written \x2a, or in quotes. */
static struct word take_prefix(const struct command_words *words)
{
	static char all[] = "";
	struct word prefix = words->count ? words->words[0] : (struct word){all, 0, false};

	if (!prefix.is_quoted && prefix.length && prefix.text[prefix.length - 1] == '*')
		prefix.text[--prefix.length] = '\0';
	word_unescape(&prefix);
	return prefix;
}

enum client_exit run_scan(struct session *session, const struct command_words *words)
{
	struct scan scan = {.left = UINT64_MAX, .json = session->json};
	const char *limit = command_option(words, "--limit");
	uint64_t cursor = 0;
	char *end = NULL;

	if (limit) {
		errno = 0;
		scan.left = strtoull(limit, &end, 10);
		if (*limit < '0' || *limit > '9' || *end || errno)
			return show_error(session, CLIENT_USAGE,
					  "--limit: '%s' is no whole number of 0 or more", limit);
	}
	scan.prefix = take_prefix(words);
	while (scan.left && !interrupt_came()) {
		/* With a prefix most of the keys may be others. */
		bool is_short = scan.left < SCAN_STEP && !scan.prefix.length;
		int status =
			ask_scan(session, &scan.prefix, &cursor,
				 is_short ? (size_t)scan.left : SCAN_STEP, print_scanned, &scan);

		if (status != KV_OK)
			return show_status(session, status);
		if (!cursor)
			break;
	}
	return CLIENT_OK;
}

enum client_exit run_stats(struct session *session, const struct command_words *words)
{
	struct figures figures;
	char *text;
	int status;

	(void)words;
	if (!session->json) {
		status = ask_stats(session, &text);
		if (status != KV_OK)
			return show_status(session, status);
		fputs(text, stdout);
		kv_free(text);
		return CLIENT_OK;
	}
	status = figures_take(session, &figures);
	if (status != KV_OK)
		return show_status(session, status);
	json_begin();
	for (size_t i = 0; i < figures.count; i++) {
		if (figures.all[i].word)
			json_text(figures.all[i].name, figures.all[i].word);
		else
			json_number(figures.all[i].name, figures.all[i].value);
	}
	json_end();
	figures_free(&figures);
	return CLIENT_OK;
}

enum client_exit run_ping(struct session *session, const struct command_words *words)
{
	uint64_t round_trip_ns;
	int status = ask_ping(session, &round_trip_ns);
	const char *transport = ask_transport(session);

	(void)words;
	if (status != KV_OK)
		return show_status(session, status);
	if (session->json) {
		json_begin();
		json_text("status", "ok");
		json_number("round_trip_ns", round_trip_ns);
		json_bytes("transport", transport, strcspn(transport, " "));
		json_text("detail", transport);
		json_end();
	} else {
		printf("OK (%.1f us by %s)\n", (double)round_trip_ns / 1000, transport);
	}
	return CLIENT_OK;
}

enum client_exit run_flush(struct session *session, const struct command_words *words)
{
	(void)words;
	return show_status(session, ask_flush(session));
}
