/* Fields become flags: see flag_words.h. */
#include "common/flag_words.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define TEXT_MAX 2048

/* The same flags in all programs that have them. What contains another comes before it. */
static const struct word {
	const char *field, *flag;
} words[] = {
	{"socket_mode and any_user", "--any-user"}, /* kv-server's */
	{"any_user", "--any-user"},
	{"buffer_size", "--buffer-mb"},
	{"ca_file", "--ca-file"},
	{"key_file", "--key-file"},
	{"may_lose_old", "--replace"}, /* kv-client put */
};

/* The field at this place, as a word of its own: not a part of a path, nor of another name. */
static const struct word *find_word(const char *text, const char *at)
{
	if (at > text && !strchr(" (", at[-1]))
		return NULL;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t length = strlen(words[i].field);

		/* The 0 at the end is found, too. */
		if (strncmp(at, words[i].field, length) == 0 && strchr(" ,;:)", at[length]))
			return &words[i];
	}
	return NULL;
}

const char *flag_words(const char *text)
{
	static _Thread_local char result[TEXT_MAX];
	bool is_changed = false;
	size_t used = 0;

	if (!text)
		return NULL;
	for (const char *at = text; *at;) {
		const struct word *word = find_word(text, at);
		const char *from = word ? word->flag : at;
		size_t length = word ? strlen(word->flag) : 1;

		if (length >= sizeof(result) - used)
			break;
		memcpy(result + used, from, length);
		used += length;
		at += word ? strlen(word->field) : 1;
		is_changed |= word != NULL;
	}
	result[used] = 0;
	return is_changed ? result : text;
}
