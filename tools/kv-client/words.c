/*
 * A line of the prompt, taken apart: see client.h. Pure: works on the caller's line alone. A word
 * only gets shorter by being read, so it is written where it stood.
 */
#include <string.h>

#include "client.h"

static const char blanks[] = " \t\r\n";

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of two hexadecimal digits; -1: they are none. */
static int hex_byte(const char *digits)
{
	int high = hex_digit(digits[0]), low = high < 0 ? -1 : hex_digit(digits[1]);

	return low < 0 ? -1 : high * 16 + low;
}

/* The byte that a backslash and what follows it stand for. *from is behind the backslash.
 * -1: nonsense. */
static int unescape(const char **from)
{
	char c = *(*from)++;
	int byte;

	switch (c) {
	case 'n':
		return '\n';
	case 'r':
		return '\r';
	case 't':
		return '\t';
	case '\\':
	case '"':
		return c;
	case 'x':
		byte = hex_byte(*from);
		*from += byte < 0 ? 0 : 2;
		return byte;
	default:
		return -1;
	}
}

/* Copies up to the closing quote. *from is behind the opening one, and then behind the closing
 * one. False: there is none, or an escape makes no sense. */
static bool take_quoted(char quote, const char **from, char **to, const char **fault)
{
	while (**from != quote) {
		char c = *(*from)++;

		if (!c) {
			*fault = "a quote is not closed";
			return false;
		}
		if (c == '\\' && quote == '"') {
			int byte = unescape(from);

			if (byte < 0) {
				*fault = "write \\n, \\r, \\t, \\\\, \\\" or \\x00 to \\xff";
				return false;
			}
			c = (char)byte;
		}
		*(*to)++ = c;
	}
	(*from)++;
	return true;
}

/* Takes one word, and what follows the blank behind it. *from is at its first character. */
static bool take_word(const char **from, struct word *word, const char **fault)
{
	char *to = word->text;
	bool more;

	word->is_quoted = false;
	while (**from && !strchr(blanks, **from)) {
		char c = *(*from)++;

		if (c != '"' && c != '\'') {
			*to++ = c;
			continue;
		}
		word->is_quoted = true;
		if (!take_quoted(c, from, &to, fault))
			return false;
	}
	more = **from != 0;
	word->length = (size_t)(to - word->text);
	*to = 0;
	*from += more;
	return true;
}

int words_split(char *line, struct word *words, const char **fault)
{
	const char *from = line + strspn(line, blanks);
	int count = 0;

	if (*from == '#')
		return 0;
	for (; *from; from += strspn(from, blanks)) {
		if (count == WORDS_MAX) {
			*fault = "too many words";
			return -1;
		}
		words[count].text = line + (from - line);
		if (!take_word(&from, &words[count++], fault))
			return -1;
	}
	return count;
}

void word_unescape(struct word *word)
{
	const char *from = word->text, *end = from + word->length;
	char *to = word->text;

	if (word->is_quoted)
		return;
	while (from < end) {
		int byte = from[0] == '\\' && from[1] == 'x' ? hex_byte(from + 2) : -1;

		*to++ = byte < 0 ? *from : (char)byte;
		from += byte < 0 ? 1 : 4;
	}
	*to = 0;
	word->length = (size_t)(to - word->text);
}

/* ------------------------------------------------------------------------------------------
 * Guessing
 */

#define GUESS_MAX 16 /* characters of a word that is compared */

/* How many characters must be added, taken away, changed, or swapped with their neighbour to make
 * the one word of the other. Both have at most GUESS_MAX. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[GUESS_MAX + 1][GUESS_MAX + 1], width = strlen(b), height = strlen(a);

	for (size_t i = 0; i <= height; i++) {
		for (size_t j = 0; j <= width; j++) {
			size_t best = i ? j ? SIZE_MAX : i : j;

			if (i && j) {
				best = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
				best = rows[i - 1][j] + 1 < best ? rows[i - 1][j] + 1 : best;
				best = rows[i][j - 1] + 1 < best ? rows[i][j - 1] + 1 : best;
			}
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    rows[i - 2][j - 2] + 1 < best)
				best = rows[i - 2][j - 2] + 1;
			rows[i][j] = best;
		}
	}
	return rows[height][width];
}

const char *word_guess(const char *word, const char *(*name)(size_t n))
{
	/* One slip in a short word, two in a longer one: "gt" is get, "frobnicate" is nothing. */
	size_t least = strlen(word) <= 4 ? 2 : 3;
	const char *candidate, *guess = NULL;

	if (strlen(word) > GUESS_MAX)
		return NULL;
	for (size_t n = 0; (candidate = name(n)); n++) {
		size_t slips = strlen(candidate) > GUESS_MAX ? SIZE_MAX : distance(word, candidate);

		if (slips < least) {
			least = slips;
			guess = candidate;
		}
	}
	return guess;
}
