/*
 * What could follow what was typed: commands first, then keys of the server where a command takes
 * one, options of the command, and files behind an @. Nothing is written twice: commands and their
 * options come out of the table.
 *
 * Keys are asked for from the server, no more than a few thousand, and for no longer than a person
 * waits gladly; those that a prompt cannot show as they are, are left out.
 */
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client.h"

#define SCAN_STEP  256u
#define SCAN_MOST  4096u
#define SCAN_MS	   100
#define WORDS_MOST 200u

struct key_search {
	struct completions *completions;
	const char *begin;
	size_t length;
};

static void add_word(struct completions *completions, const char *word, size_t length)
{
	if (completions->count == completions->room) {
		size_t room = completions->room ? completions->room * 2 : 16;
		char **words = realloc(completions->words, room * sizeof(*words));

		if (!words || room > WORDS_MOST * 2)
			return;
		completions->words = words;
		completions->room = room;
	}
	completions->words[completions->count] = strndup(word, length);
	if (completions->words[completions->count])
		completions->count++;
}

static void add_commands(struct completions *completions, const char *begin, size_t length)
{
	const char *name;

	for (size_t i = 0; (name = command_name(i)); i++)
		if (strncmp(name, begin, length) == 0)
			add_word(completions, name, strlen(name));
}

/* Those that stand in what the help shows of the command's words. */
static void add_options(struct completions *completions, const char *arguments, const char *begin,
			size_t length)
{
	const char *option = arguments;

	while (option && (option = strstr(option, "--"))) {
		size_t end = strcspn(option, " ]");

		if (end >= length && strncmp(option, begin, length) == 0)
			add_word(completions, option, end);
		option += end;
	}
}

static void add_files(struct completions *completions, const char *begin, size_t length)
{
	char *pattern = malloc(length + 2);
	glob_t found;

	if (!pattern)
		return;
	/* The @ stays with the words, as it was typed. */
	memcpy(pattern, begin + 1, length - 1);
	memcpy(pattern + length - 1, "*", 2);
	if (glob(pattern, GLOB_MARK, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc && i < WORDS_MOST; i++) {
			char *word = malloc(strlen(found.gl_pathv[i]) + 2);

			if (!word)
				break;
			word[0] = '@';
			strcpy(word + 1, found.gl_pathv[i]);
			add_word(completions, word, strlen(word));
			free(word);
		}
		globfree(&found);
	}
	free(pattern);
}

static void look_at_key(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	struct key_search *search = context;
	const unsigned char *bytes = key;

	(void)info;
	if (key_length < search->length || memcmp(key, search->begin, search->length) != 0 ||
	    search->completions->count >= WORDS_MOST)
		return;
	for (size_t i = 0; i < key_length; i++)
		if (bytes[i] <= ' ' || bytes[i] >= 0x7f || strchr("\"'\\", bytes[i]))
			return;
	for (size_t i = 0; i < search->completions->count; i++)
		if (strlen(search->completions->words[i]) == key_length &&
		    memcmp(search->completions->words[i], key, key_length) == 0)
			return;
	add_word(search->completions, key, key_length);
}

static void add_keys(struct session *session, struct completions *completions, const char *begin,
		     size_t length)
{
	struct key_search search = {completions, begin, length};
	struct word prefix = {(char *)(uintptr_t)begin, length, false}; /* only read */
	uint64_t cursor = 0, deadline_ns = clock_deadline_ns(SCAN_MS);
	size_t asked = 0;

	do {
		if (ask_scan(session, &prefix, &cursor, SCAN_STEP, look_at_key, &search) != KV_OK)
			return;
		asked += SCAN_STEP;
	} while (cursor && asked < SCAN_MOST && !clock_passed(deadline_ns));
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void complete(struct session *session, const char *line, size_t length,
	      struct completions *completions)
{
	size_t name_length, begin = length;
	size_t start = 0;
	unsigned word = 0;
	char name[32];

	while (start < length && line[start] == ' ')
		start++;
	while (begin > start && line[begin - 1] != ' ')
		begin--;
	for (size_t i = start; i < begin; i++)
		word += line[i] != ' ' && (i + 1 == length || line[i + 1] == ' ');
	name_length = strcspn(line + start, " ");
	snprintf(name, sizeof(name), "%.*s", (int)(name_length < 31 ? name_length : 31),
		 line + start);
	completions->typed = length - begin;
	if (word == 0 || (word == 1 && strcmp(name, "help") == 0))
		add_commands(completions, line + begin, length - begin);
	else if (length > begin && line[begin] == '@')
		add_files(completions, line + begin, length - begin);
	else if (length > begin && line[begin] == '-')
		add_options(completions, command_arguments(name), line + begin, length - begin);
	else if (word == 1 && command_takes_key(name))
		add_keys(session, completions, line + begin, length - begin);
	if (completions->count)
		qsort(completions->words, completions->count, sizeof(char *), compare);
}

void completions_free(struct completions *completions)
{
	for (size_t i = 0; i < completions->count; i++)
		free(completions->words[i]);
	free(completions->words);
	*completions = (struct completions){0};
}

const char *complete_hint(const char *line, size_t length)
{
	char name[32];
	size_t end = 0;

	while (end < length && line[end] != ' ')
		end++;
	if (end == length || end >= sizeof(name))
		return NULL;
	memcpy(name, line, end);
	name[end] = '\0';
	return command_arguments(name);
}
