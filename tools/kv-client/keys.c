/*
 * Commands on a key: see client.h. Each reads its words, calls the library once, and shows what
 * came of it: to people in a word or two, to programs as one object.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "client.h"

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
 * Values
 */

/* {"status":"ok","version":7} */
static void json_version(const char *status, uint64_t version)
{
	json_begin();
	json_text("status", status);
	json_number("version", version);
	json_end();
}

static int put_value(struct session *session, const struct word *key, const struct value *value,
		     const kv_put_options_t *options, kv_info_t *info)
{
	struct transfer transfer;
	int status;

	transfer_begin(&transfer, session->client, "putting", key);
	status = ask_put(session, key->text, key->length, value->bytes, value->length, options,
			 info);
	transfer_end(&transfer);
	return status;
}

enum client_exit run_put(struct session *session, const struct command_words *words)
{
	const char *ttl = command_option(words, "--ttl");
	kv_put_options_t options = {0};
	kv_info_t info = {0};
	struct value value;
	int status;

	if (command_option(words, "--if-absent"))
		options.condition = KV_IF_ABSENT;
	options.may_lose_old = command_option(words, "--replace") != NULL;
	if (options.may_lose_old && options.condition != KV_ALWAYS)
		return show_error(session, CLIENT_USAGE,
				  "put: --if-absent and --replace: a key that is not there has no "
				  "value to replace: give one of them");
	if (ttl && !take_ttl(session, ttl, &options.ttl_ms))
		return CLIENT_USAGE;
	if (!value_take(session, &words->words[1], &value))
		return CLIENT_FAILED;
	status = put_value(session, &words->words[0], &value, &options, &info);
	value_free(&value);
	if (session->json && (status == KV_OK || status == KV_EXISTS)) {
		json_version(status == KV_OK ? "ok" : "exists", info.version);
		return status == KV_OK ? CLIENT_OK : CLIENT_NOT_FOUND;
	}
	if (status == KV_EXISTS)
		return show_error(session, CLIENT_NOT_FOUND, "%s", kv_strerror(status));
	if (status != KV_OK)
		return show_status(session, status);
	printf("OK (version: %" PRIu64 ")\n", info.version);
	return CLIENT_OK;
}

enum client_exit run_cas(struct session *session, const struct command_words *words)
{
	kv_put_options_t options = {.condition = KV_IF_VERSION};
	kv_info_t info = {0};
	struct value value;
	int status;

	if (!take_version(session, words->words[1].text, &options.version))
		return CLIENT_USAGE;
	if (!value_take(session, &words->words[2], &value))
		return CLIENT_FAILED;
	status = put_value(session, &words->words[0], &value, &options, &info);
	value_free(&value);
	if (status != KV_OK && status != KV_CAS_FAILED)
		return show_status(session, status);
	if (session->json)
		json_version(status == KV_OK ? "ok" : "cas_failed", info.version);
	else if (status == KV_OK)
		printf("OK (new version: %" PRIu64 ")\n", info.version);
	else
		printf("CAS FAILED (current version: %" PRIu64 ")\n", info.version);
	return status == KV_OK ? CLIENT_OK : CLIENT_NOT_FOUND;
}

/* Without the value if it went into a file. */
static void json_value(const struct word *key, const void *value, size_t length,
		       const kv_info_t *info, const char *file)
{
	json_begin();
	json_text("status", "ok");
	json_bytes("key", key->text, key->length);
	json_number("version", info->version);
	json_number("length", length);
	json_ttl(info->ttl_ms);
	if (file)
		json_text("output", file);
	else
		json_bytes("value", value, length);
	json_end();
}

enum client_exit run_get(struct session *session, const struct command_words *words)
{
	const struct word *key = &words->words[0];
	const char *file = command_option(words, "--output");
	enum client_exit code = CLIENT_OK;
	struct transfer transfer;
	kv_info_t info = {0};
	size_t length;
	void *value;
	int status;

	transfer_begin(&transfer, session->client, "getting", key);
	status = ask_get(session, key->text, key->length, &value, &length, &info);
	transfer_end(&transfer);
	if (status != KV_OK)
		return show_status(session, status);
	if (file)
		code = output_write(session, file, value, length);
	if (session->json && code == CLIENT_OK)
		json_value(key, value, length, &info, file);
	else if (file && code == CLIENT_OK)
		code = session->prompt ? show_status(session, KV_OK) : CLIENT_OK;
	else if (!file)
		code = show_value(session, value, length);
	kv_free(value);
	return code;
}

/* ------------------------------------------------------------------------------------------
 * The others
 */

enum client_exit run_del(struct session *session, const struct command_words *words)
{
	const struct word *key = &words->words[0];

	return show_status(session, ask_delete(session, key->text, key->length));
}

enum client_exit run_incr(struct session *session, const struct command_words *words)
{
	const struct word *key = &words->words[0];
	int64_t delta = 1, sum;
	int status;

	if (words->count > 1 && !take_number(session, words->words[1].text, &delta))
		return CLIENT_USAGE;
	status = ask_incr(session, key->text, key->length, delta, &sum);
	if (status != KV_OK)
		return show_status(session, status);
	if (session->json) {
		json_begin();
		json_text("status", "ok");
		json_signed("number", sum);
		json_end();
	} else {
		printf("%" PRId64 "\n", sum);
	}
	return CLIENT_OK;
}

enum client_exit run_ttl(struct session *session, const struct command_words *words)
{
	const struct word *key = &words->words[0];
	kv_info_t info;
	int status;

	status = ask_stat(session, key->text, key->length, &info);
	if (status != KV_OK)
		return show_status(session, status);
	if (session->json) {
		json_begin();
		json_text("status", "ok");
		json_ttl(info.ttl_ms);
		json_end();
	} else {
		show_ttl(info.ttl_ms);
	}
	return CLIENT_OK;
}

enum client_exit run_expire(struct session *session, const struct command_words *words)
{
	const struct word *key = &words->words[0];
	uint64_t ttl_ms;

	if (!take_ttl(session, words->words[1].text, &ttl_ms))
		return CLIENT_USAGE;
	return show_status(session, ask_touch(session, key->text, key->length, ttl_ms));
}

enum client_exit run_exists(struct session *session, const struct command_words *words)
{
	const struct word *key = &words->words[0];
	kv_info_t info;
	int status = ask_stat(session, key->text, key->length, &info);

	if (status != KV_OK && status != KV_NOT_FOUND)
		return show_status(session, status);
	if (session->json) {
		json_begin();
		json_text("status", "ok");
		json_bool("exists", status == KV_OK);
		json_end();
	} else {
		puts(status == KV_OK ? "1" : "0");
	}
	return status == KV_OK ? CLIENT_OK : CLIENT_NOT_FOUND;
}

enum client_exit run_stat(struct session *session, const struct command_words *words)
{
	const struct word *key = &words->words[0];
	kv_info_t info;
	int status;

	status = ask_stat(session, key->text, key->length, &info);
	if (status != KV_OK)
		return show_status(session, status);
	if (session->json) {
		json_begin();
		json_text("status", "ok");
		json_number("version", info.version);
		json_number("length", info.length);
		json_ttl(info.ttl_ms);
		json_end();
	} else {
		printf("version %" PRIu64 "\nlength %" PRIu64 "\nttl ", info.version, info.length);
		show_ttl(info.ttl_ms);
	}
	return CLIENT_OK;
}
