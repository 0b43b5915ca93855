/*
 * kv-client: what its files share.
 *
 *	main.c		connects; runs one command, or the prompt
 *	options.c	the command line
 *	commands.c	the table of commands: their words and options, help
 *	ask.c		the server, by its own protocol or by gRPC
 *	keys.c		commands on a key: put, get, cas ...
 *	service.c	commands on the server: scan, stats, ping, flush
 *	programs.c	commands that are programs of their own: bench, doctor
 *	prompt.c	the prompt
 *	edit.c		its line: history, completion and hints, by libedit
 *	edit_plain.c	in its place where there is no libedit
 *	complete.c	what could follow what was typed
 *	history.c	the file of lines that were typed
 *	words.c		a line of the prompt, taken apart
 *	value.c		values from an argument, a file or stdin
 *	output.c	a value into a file
 *	show.c		answers: values, keys, times, errors
 *	json.c		the same as JSON
 *	utf8.c		which bytes a terminal can show
 *	interrupt.c	Ctrl-C, and other signals that end the program
 *	top.c		the live screen
 *	frame.c		what is on it
 *	figures.c	the server's figures, and their differences
 *
 * One thread. A command gets words and answers with an exit code; only the command line's own
 * mistakes end the program elsewhere than in main().
 */
#ifndef KV_CLIENT_CLIENT_H
#define KV_CLIENT_CLIENT_H

#include <remora/control.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/progress.h"

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
	bool port_given, timeout_given;
	bool socket_mode;
	bool is_grpc;	     /* the server is a URL of its gRPC service */
	const char *ca_file; /* https */
	bool insecure;
	bool json;
	char **words;	/* the command, and what follows it */
	int word_count; /* 0: the prompt */
};

#define WORDS_MAX 32

/* A word of a command. */
struct word {
	char *text;	/* ends with a zero byte, and may hold others */
	size_t length;	/* without the zero byte at its end */
	bool is_quoted; /* stood in quotes at the prompt: is no option, and has no escapes left */
};

/* Exits on a wrong command line. */
void client_parse(int argc, char **argv, struct client_config *config);

/* ------------------------------------------------------------------------------------------
 * Commands, commands.c
 */

struct session {
	const struct client_config *config;
	kv_client_t *client;   /* NULL: not connected, or by gRPC */
	kv_control_t *control; /* NULL: not connected, or by its own protocol */
	bool prompt;	       /* answers for people who look on */
	bool json;	       /* answers for programs */
};

#define COMMAND_OPTIONS_MAX 8

/* What follows a command's name, options apart. */
struct command_words {
	struct word *words;
	int count;
	struct {
		const char *name, *value; /* "" for a flag */
	} options[COMMAND_OPTIONS_MAX];
	int option_count;
};

typedef enum client_exit (*command_fn)(struct session *session, const struct command_words *words);

/* words[0] is the command's name. Changes the words: runs once for each reading of them. */
enum client_exit command_run(struct session *session, struct word *words, int count);
/* Whether there is such a command, and its words make sense; says what is wrong with them. */
bool command_check(const struct session *session, const struct word *words, int count);
/* Whether the command needs a server. It is a right one. */
bool command_connects(const char *name);
/* What an option was given, "" for a flag; NULL: it was not. */
const char *command_option(const struct command_words *words, const char *name);
/* All commands, in lines of at most `width` characters where words permit. */
void command_list(FILE *file, int width);
/* The n-th name, aliases too; NULL behind the last. */
const char *command_name(size_t n);
/* The words that follow a command's name, as its help shows them; NULL: no such command. */
const char *command_arguments(const char *name);
/* Whether the command's first word is a key. */
bool command_takes_key(const char *name);

/* keys.c */
enum client_exit run_put(struct session *session, const struct command_words *words);
enum client_exit run_get(struct session *session, const struct command_words *words);
enum client_exit run_del(struct session *session, const struct command_words *words);
enum client_exit run_cas(struct session *session, const struct command_words *words);
enum client_exit run_incr(struct session *session, const struct command_words *words);
enum client_exit run_ttl(struct session *session, const struct command_words *words);
enum client_exit run_expire(struct session *session, const struct command_words *words);
enum client_exit run_exists(struct session *session, const struct command_words *words);
enum client_exit run_stat(struct session *session, const struct command_words *words);

/* service.c */
enum client_exit run_scan(struct session *session, const struct command_words *words);
enum client_exit run_stats(struct session *session, const struct command_words *words);
enum client_exit run_ping(struct session *session, const struct command_words *words);
enum client_exit run_flush(struct session *session, const struct command_words *words);

/* programs.c */
enum client_exit run_bench(struct session *session, const struct command_words *words);
enum client_exit run_doctor(struct session *session, const struct command_words *words);

/* top.c */
enum client_exit run_top(struct session *session, const struct command_words *words);

/* ------------------------------------------------------------------------------------------
 * Asking the server, ask.c. Statuses are those of kv.h.
 */

int ask_connect(struct session *session);
void ask_close(struct session *session);
/* Before each command: forgets what was said about the last one. */
void ask_begin(void);
/* What happened to the last call that failed. */
const char *ask_error(const struct session *session);
/* How it is connected. */
const char *ask_transport(const struct session *session);
int ask_put(struct session *session, const void *key, size_t key_length, const void *value,
	    size_t length, const kv_put_options_t *options, kv_info_t *info);
/* kv_free() frees the value. */
int ask_get(struct session *session, const void *key, size_t key_length, void **value,
	    size_t *length, kv_info_t *info);
int ask_delete(struct session *session, const void *key, size_t key_length);
int ask_incr(struct session *session, const void *key, size_t key_length, int64_t delta,
	     int64_t *sum);
int ask_stat(struct session *session, const void *key, size_t key_length, kv_info_t *info);
int ask_touch(struct session *session, const void *key, size_t key_length, uint64_t ttl_ms);
/* Keys that begin with the prefix, and by Remora's own protocol others, too: fn has to look. */
int ask_scan(struct session *session, const struct word *prefix, uint64_t *cursor, size_t count,
	     kv_scan_fn fn, void *context);
int ask_flush(struct session *session);
int ask_ping(struct session *session, uint64_t *round_trip_ns);
/* kv_free() frees the text. */
int ask_stats(struct session *session, char **text);

/* ------------------------------------------------------------------------------------------
 * The prompt: prompt.c, edit.c, complete.c, history.c
 */

enum client_exit prompt_run(struct session *session);
/* What the prompt says: "kv HOST:PORT> ". */
char *prompt_text(const struct session *session);

struct editor;
/* NULL: there is no libedit, or no terminal that it could work on; lines are read plainly. */
struct editor *editor_open(struct session *session);
/* The next line, which is the editor's, without its end; NULL: there is none any more. */
char *editor_line(struct editor *editor);
void editor_close(struct editor *editor);

/* Ways to go on with what was typed, each the whole of its last word. */
struct completions {
	char **words;
	size_t count, room;
	size_t typed; /* the last word's characters */
};
void complete(struct session *session, const char *line, size_t length,
	      struct completions *completions);
void completions_free(struct completions *completions);
/* The hint for a line: the words that its command takes. NULL: none. */
const char *complete_hint(const char *line, size_t length);

/* Calls fn for each line of the file, oldest first. */
void history_load(void (*fn)(void *context, const char *line), void *context);
/* Lines that begin with a blank are not kept. */
void history_append(const char *line);

/* Takes a line apart, in place. Words are separated by blanks; "..." and '...' keep blanks, and in
 * "..." \n, \t, \\, \" and \xHH mean what they mean in C. A line that begins with # is a comment.
 * Returns how many words there are, at most WORDS_MAX; -1 and a text in *fault when it makes no
 * sense. */
int words_split(char *line, struct word *words, const char **fault);
/* Puts the byte in the place of each \xHH, as scan writes keys. Does nothing to a quoted word. */
void word_unescape(struct word *word);
/* The name that was probably meant by `word`; NULL: none is like it. name(n) is the n-th name, NULL
 * behind the last. */
const char *word_guess(const char *word, const char *(*name)(size_t n));

/* ------------------------------------------------------------------------------------------
 * Values: value.c, output.c
 */

struct value {
	const void *bytes;
	size_t length;
	void *owned; /* what value_free frees */
};

/* From a word: "@FILE" is what the file holds, "@@text" is "@text", and "-" is stdin unless that is
 * where commands come from. False: it could not be read, which has been said. */
bool value_take(const struct session *session, const struct word *word, struct value *value);
void value_free(struct value *value);

/* Writes a file by way of a temporary one beside it: it is there whole, or as it was before. */
enum client_exit output_write(const struct session *session, const char *path, const void *value,
			      size_t length);

/* The progress of long values, and that Ctrl-C ends them, while something of the client runs. */
struct transfer {
	kv_client_t *client; /* NULL: by gRPC, where nobody is told */
	struct progress progress;
	char title[64];
};
void transfer_begin(struct transfer *transfer, kv_client_t *client, const char *verb,
		    const struct word *key);
void transfer_end(struct transfer *transfer);

/* ------------------------------------------------------------------------------------------
 * Answers: show.c, json.c, utf8.c
 */

/* By a status: "OK", "(nil)" or "ERROR: ..." and the exit code that belongs to it. */
enum client_exit show_status(const struct session *session, int status);
/* "ERROR: ..." Returns `code`. */
__attribute__((format(printf, 3, 4))) enum client_exit show_error(const struct session *session,
								  enum client_exit code,
								  const char *format, ...);
/* That there was no way to the server, and why not by each path. */
enum client_exit show_unconnected(const struct session *session, int status);
/* In lines of at most `width`, each but the first from `begin` on. `column`: where we are. */
void show_wrapped(FILE *file, const char *text, int column, int begin, int width);
/* The bytes as they are; on a terminal those that it cannot show as \xHH. A newline behind them at
 * the prompt and on a terminal. */
enum client_exit show_value(const struct session *session, const void *value, size_t length);
/* A word that commands read back as this key: every byte that is no ordinary character, a quote, a
 * backslash, or a dash or @ at the beginning is written as \xHH. */
void show_key(const void *key, size_t length);
/* Writes the server's name, HOST:PORT or the URL that was given. Returns true if it runs here. */
bool show_server(const struct client_config *config, char *name, size_t size);
/* "9.520 s", or "never expires". */
void show_ttl(uint64_t ttl_ms);

/* One object in a line on stdout. Each is called between the first and the last. */
void json_begin(void);
void json_text(const char *name, const char *text);
/* "name": text; if it is no UTF-8 then "name_base64". */
void json_bytes(const char *name, const void *bytes, size_t length);
void json_number(const char *name, uint64_t number);
void json_signed(const char *name, int64_t number);
void json_real(const char *name, double number);
void json_null(const char *name);
/* null if it is 0. */
void json_ttl(uint64_t ttl_ms);
void json_bool(const char *name, bool value);
/* An array of objects: between the two, json_begin() and json_close() for each. */
void json_array(const char *name);
void json_array_end(void);
/* Ends the object; json_end() ends the line, too. */
void json_close(void);
void json_end(void);

/* How many bytes the character at the beginning has; 0: it is no UTF-8. *code is what it is. */
size_t utf8_decode(const uint8_t *bytes, size_t length, uint32_t *code);
/* Whether a terminal shows it, and does nothing else. */
bool utf8_is_visible(uint32_t code);

/* ------------------------------------------------------------------------------------------
 * Signals, interrupt.c
 */

void interrupt_init(void);
/* From here on Ctrl-C only sets a flag. A second one ends the program all the same. */
void interrupt_hold(void);
void interrupt_let_go(void);
bool interrupt_came(void);
/* Waits until there is something to read, or, while it is held, Ctrl-C: then false. One that came
 * before the wait began counts, too. */
bool interrupt_wait(int fd);
/* None of them comes while something is made that must be undone, and until it is known. */
void interrupt_block(bool is_blocked);
/* What must be undone before a signal ends the program. It runs in the handler. NULL: nothing. */
void interrupt_undo(void (*undo)(void));

/* ------------------------------------------------------------------------------------------
 * The live screen: top.c, frame.c, figures.c
 */

struct figure {
	const char *name;
	uint64_t value;
	const char *word; /* what it is if it is no number; else NULL */
};

struct figures {
	char *text;
	struct figure *all; /* by name */
	size_t count;
	uint64_t taken_ns;
};

/* Asks the server. KV status. */
int figures_take(struct session *session, struct figures *figures);
void figures_free(struct figures *figures);
/* 0 if there is none. */
uint64_t figures_value(const struct figures *figures, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Two looks at a server. */
struct frame {
	const char *title;	  /* which server, and by which way */
	struct figures then, now; /* .text NULL: not taken yet */
	uint64_t ping_ns;
	uint64_t interval_ns;
};

/* How much a figure grows in a second. */
double frame_rate(const struct frame *frame, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* As text, at most so wide and high; 0: no limit. Every line ends with `end`. */
void frame_draw(const struct frame *frame, FILE *file, int width, int height, const char *end);
void frame_json(const struct frame *frame);

#endif
