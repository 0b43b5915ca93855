/* The server that is tested: see subject.h. */
#include "server/subject.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/test.h"
#include "remora/kv.h"

void subject_start(struct subject *subject, const kv_server_options_t *given)
{
	kv_server_options_t options = given ? *given : (kv_server_options_t){0};

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	if (!options.listen)
		options.listen = "shm:subject,tcp";
	if (!options.port)
		options.port = -1;
	if (!options.memory)
		options.memory = (size_t)16 << 20;
	if (!options.address)
		options.address = "127.0.0.1";
	if (!options.workers)
		options.workers = 2;
	if (kv_server_create(&options, &subject->server) != KV_OK ||
	    kv_server_start(subject->server) != KV_OK)
		TEST_FAIL("%s", kv_server_error());
	snprintf(subject->tcp, sizeof(subject->tcp), "127.0.0.1:%d",
		 kv_server_port(subject->server));
}

void subject_stop(struct subject *subject)
{
	kv_server_destroy(subject->server);
	subject->server = NULL;
}

const char *subject_address(const struct subject *subject, const char *by)
{
	return strcmp(by, "shm") == 0 ? "subject" : subject->tcp;
}

uint64_t subject_figure(const struct subject *subject, const char *name)
{
	char *text, *at;
	uint64_t value;

	CHECK_EQ(kv_server_stats(subject->server, &text), KV_OK);
	at = strncmp(text, name, strlen(name)) == 0 && text[strlen(name)] == ' ' ? text : NULL;
	for (char *line = text; !at && (line = strchr(line, '\n')) != NULL; line++) {
		if (strncmp(line + 1, name, strlen(name)) == 0 && line[1 + strlen(name)] == ' ')
			at = line + 1;
	}
	if (!at)
		TEST_FAIL("no figure '%s' in:\n%s", name, text);
	value = strtoull(at + strlen(name), NULL, 10);
	kv_free(text);
	return value;
}

void subject_await(const struct subject *subject, const char *name, uint64_t value)
{
	while (subject_figure(subject, name) != value) {
		if (test_remaining_ms() < 5000)
			TEST_FAIL("%s is %" PRIu64 ", not %" PRIu64, name,
				  subject_figure(subject, name), value);
		test_sleep_ms(5);
	}
}

const char *subject_key_file(char letter)
{
	static char paths[26][256];
	char *path = paths[letter - 'a'];
	FILE *file;

	snprintf(path, sizeof(paths[0]), "%s/key-%c", test_tmpdir(), letter);
	file = fopen(path, "w");
	CHECK(file);
	for (int i = 0; i < 32; i++)
		fputc(letter, file);
	fputc('\n', file);
	fclose(file);
	CHECK_EQ(chmod(path, 0600), 0);
	return path;
}

void subject_for_each(void (*function)(const char *by))
{
	function("shm");
	function("tcp");
}
