/*
 * kv-client: what its files share.
 *
 *	main.c		connects; runs one command, or the prompt
 *	options.c	the command line
 *	commands.c	the commands, the same from the command line and at the prompt
 *	show.c		answers: values, keys, times, errors
 *	value.c		values from an argument, a file or stdin
 *	words.c		a line of the prompt, taken apart
 *
 * One thread. A command gets words and answers with an exit code; only the command line's own
 * mistakes end the program elsewhere than in main().
 */
#ifndef KV_CLIENT_CLIENT_H
#define KV_CLIENT_CLIENT_H

#include <remora/kv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum client_exit {
	CLIENT_OK = 0,
	CLIENT_NOT_FOUND = 1, /* or another version, or another number than expected */
	CLIENT_USAGE = 2,
	CLIENT_FAILED = 3,
};

/* ------------------------------------------------------------------------------------------
 * Command line, options.c
 */

struct client_config {
	conn_mode_t mode;
	kv_client_options_t options;
	const char *server; /* NULL: this host */
	int port;
	bool socket_mode;
	char **words;	/* the command, and what follows it */
	int word_count; /* 0: the prompt */
};

/* Exits on a wrong command line. */
void client_parse(int argc, char **argv, struct client_config *config);

/* ------------------------------------------------------------------------------------------
 * Commands, commands.c
 */

struct session {
	kv_client_t *client;
	bool prompt; /* answers for people who look on */
};

/* words[0] is the command's name. */
enum client_exit command_run(struct session *session, char **words, int count);
/* Whether there is such a command, and so many words make sense; says what is wrong with them. */
bool command_check(const struct session *session, char **words, int count);
void command_help(FILE *file);

/* ------------------------------------------------------------------------------------------
 * Answers, show.c
 */

/* By a status: "OK", "(nil)" or "ERROR: ..." and the exit code that belongs to it. */
enum client_exit show_status(const struct session *session, int status);
/* "ERROR: ..." Returns `code`. */
__attribute__((format(printf, 3, 4))) enum client_exit show_error(const struct session *session,
								  enum client_exit code,
								  const char *format, ...);
/* The bytes as they are; a newline behind them at the prompt and on a terminal. */
enum client_exit show_value(const struct session *session, const void *value, size_t length);
/* A line in which every byte that is no ordinary character is written as \xHH. */
void show_key(const void *key, size_t length);
/* "9.520 s", or "never expires". */
void show_ttl(uint64_t ttl_ms);

/* ------------------------------------------------------------------------------------------
 * Values, value.c
 */

struct value {
	const void *bytes;
	size_t length;
	void *owned; /* what value_free frees */
};

/* From a word: "@FILE" is what the file holds, "@@text" is "@text", and "-" is stdin unless that is
 * where commands come from. False: it could not be read, which has been said. */
bool value_take(const struct session *session, const char *word, struct value *value);
void value_free(struct value *value);

/* ------------------------------------------------------------------------------------------
 * Words, words.c
 */

#define WORDS_MAX 16

/* Takes a line apart, in place. Words are separated by blanks; "..." and '...' keep blanks, and in
 * "..." \n, \t, \\, \" and \xHH mean what they mean in C, but no zero byte. Returns how many words
 * there are; -1 and a text in *fault when it makes no sense. */
int words_split(char *line, char **words, const char **fault);

#endif
