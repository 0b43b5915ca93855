/*
 * A line of the prompt, taken apart: see client.h. Pure: works on the caller's line alone. A word
 * only gets shorter by being read, so it is written where it stood.
 */
#include <string.h>

#include "client.h"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The character that a backslash and what follows it stand for. *from is behind the backslash.
 * 0: nonsense. */
static char unescape(const char **from)
{
	char c = *(*from)++;
	int high, low;

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
		high = hex_digit((*from)[0]);
		low = high < 0 ? -1 : hex_digit((*from)[1]);
		if (low < 0)
			return 0;
		*from += 2;
		return (char)(high * 16 + low);
	default:
		return 0;
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
			c = unescape(from);
			if (!c) {
				*fault = "write \\n, \\r, \\t, \\\\, \\\" or \\x01 to \\xff";
				return false;
			}
		}
		*(*to)++ = c;
	}
	(*from)++;
	return true;
}

int words_split(char *line, char **words, const char **fault)
{
	static const char blanks[] = " \t\r\n";
	const char *from = line;
	int count = 0;

	for (;;) {
		char *to;
		bool more;

		from += strspn(from, blanks);
		if (!*from)
			return count;
		if (count == WORDS_MAX) {
			*fault = "too many words";
			return -1;
		}
		to = words[count++] = line + (from - line);
		while (*from && !strchr(blanks, *from)) {
			char c = *from++;

			if (c != '"' && c != '\'')
				*to++ = c;
			else if (!take_quoted(c, &from, &to, fault))
				return -1;
		}
		more = *from != 0;
		*to = 0;
		from += more;
	}
}
