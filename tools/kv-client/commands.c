/*
 * The commands of kv-client, the same from the command line and at the prompt.
 *
 * A command is a row of the table at the end: its name, what its words are, how many there may be,
 * and a function. Options of a command (put has some) stand before its key or behind its value; the
 * words between are taken as they are, so that a value or a number may begin with a dash.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "client.h"

#define SCAN_STEP 256u

/* ------------------------------------------------------------------------------------------
 * Words that are numbers
 */

static bool take_version(const struct session *session, const char *word, uint64_t *version)
{
	char *end;

	errno = 0;
	*version = strtoull(word, &end, 10);
	if (*word >= '0' && *word <= '9' && !*end && !errno)
		return true;
	show_error(session, CLIENT_USAGE, "'%s' is no whole number of 0 or more", word);
	return false;
}

static bool take_number(const struct session *session, const char *word, int64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoll(word, &end, 10);
	if (end != word && !*end && !errno)
		return true;
	show_error(session, CLIENT_USAGE, "'%s' is no whole number", word);
	return false;
}

/* Milliseconds, rounded up: what is not 0 does not become for ever. */
static bool take_ttl(const struct session *session, const char *word, uint64_t *ttl_ms)
{
	uint64_t ttl_ns;

	if (duration_parse(word, &ttl_ns) != RMR_OK) {
		show_error(session, CLIENT_USAGE, "%s", error_chain());
		return false;
	}
	*ttl_ms = ttl_ns / 1000000 + (ttl_ns % 1000000 != 0);
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Commands. words[0] is the name.
 */

/* Takes an option of put at words[*at], if there is one. False: it makes no sense. */
static bool take_put_option(const struct session *session, char **words, int count, int *at,
			    kv_put_options_t *options)
{
	if (strcmp(words[*at], "--if-absent") == 0) {
		options->condition = KV_IF_ABSENT;
		(*at)++;
		return true;
	}
	if (strcmp(words[*at], "--ttl") == 0 && *at + 1 < count) {
		*at += 2;
		return take_ttl(session, words[*at - 1], &options->ttl_ms);
	}
	show_error(session, CLIENT_USAGE, "put: unexpected '%s'", words[*at]);
	return false;
}

static enum client_exit run_put(struct session *session, char **words, int count)
{
	kv_put_options_t options = {0};
	const char *key, *word;
	struct value value;
	int at = 1, status;

	while (at < count && strncmp(words[at], "--", 2) == 0)
		if (!take_put_option(session, words, count, &at, &options))
			return CLIENT_USAGE;
	if (at + 2 > count)
		return show_error(session, CLIENT_USAGE, "put: a key and a value must follow");
	key = words[at++];
	word = words[at++];
	while (at < count)
		if (!take_put_option(session, words, count, &at, &options))
			return CLIENT_USAGE;
	if (!value_take(session, word, &value))
		return CLIENT_FAILED;
	status = kv_client_put_with(session->client, key, strlen(key), value.bytes, value.length,
				    &options, NULL);
	value_free(&value);
	if (status == KV_EXISTS)
		return show_error(session, CLIENT_NOT_FOUND, "%s", kv_strerror(status));
	return show_status(session, status);
}

static enum client_exit run_get(struct session *session, char **words, int count)
{
	enum client_exit code;
	size_t length;
	void *value;
	int status;

	(void)count;
	status = kv_client_get_alloc(session->client, words[1], strlen(words[1]), &value, &length,
				     NULL);
	if (status != KV_OK)
		return show_status(session, status);
	code = show_value(session, value, length);
	kv_free(value);
	return code;
}

static enum client_exit run_del(struct session *session, char **words, int count)
{
	(void)count;
	return show_status(session, kv_client_delete(session->client, words[1], strlen(words[1])));
}

static enum client_exit run_cas(struct session *session, char **words, int count)
{
	uint64_t expected, version = 0;
	struct value value;
	int status;

	(void)count;
	if (!take_version(session, words[2], &expected))
		return CLIENT_USAGE;
	if (!value_take(session, words[3], &value))
		return CLIENT_FAILED;
	status = kv_client_cas(session->client, words[1], strlen(words[1]), expected, value.bytes,
			       value.length, &version);
	value_free(&value);
	if (status == KV_OK)
		printf("OK (new version: %" PRIu64 ")\n", version);
	else if (status == KV_CAS_FAILED)
		printf("CAS FAILED (current version: %" PRIu64 ")\n", version);
	else
		return show_status(session, status);
	return status == KV_OK ? CLIENT_OK : CLIENT_NOT_FOUND;
}

static enum client_exit run_incr(struct session *session, char **words, int count)
{
	int64_t delta = 1, sum;
	int status;

	if (count > 2 && !take_number(session, words[2], &delta))
		return CLIENT_USAGE;
	status = kv_client_incr(session->client, words[1], strlen(words[1]), delta, &sum);
	if (status != KV_OK)
		return show_status(session, status);
	printf("%" PRId64 "\n", sum);
	return CLIENT_OK;
}

static enum client_exit run_ttl(struct session *session, char **words, int count)
{
	uint64_t ttl_ms;
	int status;

	(void)count;
	status = kv_client_ttl(session->client, words[1], strlen(words[1]), &ttl_ms);
	if (status != KV_OK)
		return show_status(session, status);
	show_ttl(ttl_ms);
	return CLIENT_OK;
}

static enum client_exit run_expire(struct session *session, char **words, int count)
{
	uint64_t ttl_ms;

	(void)count;
	if (!take_ttl(session, words[2], &ttl_ms))
		return CLIENT_USAGE;
	return show_status(session,
			   kv_client_touch(session->client, words[1], strlen(words[1]), ttl_ms));
}

static enum client_exit run_exists(struct session *session, char **words, int count)
{
	int status = kv_client_exists(session->client, words[1], strlen(words[1]));

	(void)count;
	if (status != KV_OK && status != KV_NOT_FOUND)
		return show_status(session, status);
	puts(status == KV_OK ? "1" : "0");
	return status == KV_OK ? CLIENT_OK : CLIENT_NOT_FOUND;
}

static enum client_exit run_stat(struct session *session, char **words, int count)
{
	kv_info_t info;
	int status;

	(void)count;
	status = kv_client_stat(session->client, words[1], strlen(words[1]), &info);
	if (status != KV_OK)
		return show_status(session, status);
	printf("version %" PRIu64 "\nlength %" PRIu64 "\nttl ", info.version, info.length);
	show_ttl(info.ttl_ms);
	return CLIENT_OK;
}

static void print_scanned(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	uint64_t *left = context;

	(void)info;
	if (!*left)
		return;
	(*left)--;
	show_key(key, key_length);
	putchar('\n');
}

static enum client_exit run_scan(struct session *session, char **words, int count)
{
	uint64_t cursor = 0, left = UINT64_MAX;
	int status;

	if (count > 1 && !take_version(session, words[1], &left))
		return CLIENT_USAGE;
	while (left) {
		status = kv_client_scan(session->client, &cursor,
					left < SCAN_STEP ? (size_t)left : SCAN_STEP, print_scanned,
					&left);
		if (status != KV_OK)
			return show_status(session, status);
		if (!cursor)
			break;
	}
	return CLIENT_OK;
}

static enum client_exit run_stats(struct session *session, char **words, int count)
{
	char *text;
	int status = kv_client_stats(session->client, &text);

	(void)words;
	(void)count;
	if (status != KV_OK)
		return show_status(session, status);
	fputs(text, stdout);
	kv_free(text);
	return CLIENT_OK;
}

static enum client_exit run_ping(struct session *session, char **words, int count)
{
	uint64_t round_trip_ns;
	int status = kv_client_ping(session->client, &round_trip_ns);

	(void)words;
	(void)count;
	if (status != KV_OK)
		return show_status(session, status);
	printf("OK (%.1f us by %s)\n", (double)round_trip_ns / 1000,
	       kv_client_transport(session->client));
	return CLIENT_OK;
}

static enum client_exit run_flush(struct session *session, char **words, int count)
{
	(void)words;
	(void)count;
	return show_status(session, kv_client_flush(session->client));
}

/* ------------------------------------------------------------------------------------------
 * The table
 */

static const struct command {
	const char *name, *arguments, *help;
	int min, max; /* words behind the name */
	enum client_exit (*run)(struct session *session, char **words, int count);
} commands[] = {
	{"put", "KEY VALUE [--ttl TIME] [--if-absent]", "VALUE is text, @FILE, or - for stdin", 2,
	 5, run_put},
	{"get", "KEY", "the value, byte by byte", 1, 1, run_get},
	{"del", "KEY", "removes it", 1, 1, run_del},
	{"delete", "KEY", "the same", 1, 1, run_del},
	{"cas", "KEY VERSION VALUE", "puts it if the present one has this version", 3, 3, run_cas},
	{"incr", "KEY [NUMBER]", "adds 1, or NUMBER, and shows the sum", 1, 2, run_incr},
	{"ttl", "KEY", "how long it is kept from now on", 1, 1, run_ttl},
	{"expire", "KEY TIME", "keeps it for 10s, 500ms ...; 0: for ever", 2, 2, run_expire},
	{"exists", "KEY", "1 or 0", 1, 1, run_exists},
	{"stat", "KEY", "version, length, and how long it is kept", 1, 1, run_stat},
	{"scan", "[COUNT]", "keys, one a line; all, or the first so many", 0, 1, run_scan},
	{"stats", "", "figures of the server", 0, 0, run_stats},
	{"ping", "", "asks for nothing, and tells how long that took", 0, 0, run_ping},
	{"flush", "", "removes all keys", 0, 0, run_flush},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

bool command_check(const struct session *session, char **words, int count)
{
	const struct command *command = find_command(words[0]);

	if (!command)
		show_error(session, CLIENT_USAGE, "no command '%s'; %s lists all", words[0],
			   session->prompt ? "help" : "--help");
	else if (count - 1 < command->min || count - 1 > command->max)
		show_error(session, CLIENT_USAGE, "usage: %s %s", command->name,
			   command->arguments);
	else
		return true;
	return false;
}

enum client_exit command_run(struct session *session, char **words, int count)
{
	if (!command_check(session, words, count))
		return CLIENT_USAGE;
	return find_command(words[0])->run(session, words, count);
}

void command_help(FILE *file)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(file, "  %-6s %-37s %s\n", commands[i].name, commands[i].arguments,
			commands[i].help);
	fputs("  help, quit\n", file);
}
