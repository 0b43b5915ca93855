/*
 * The commands of kv-client, the same from the command line and at the prompt.
 *
 * A command is a row of the table: its name, what its words are, how many there must and may be,
 * its options, and a function. Options stand before the first word or behind the last that must be
 * there; the words between are taken as they are, so that a value may begin with dashes. "--" ends
 * the options that stand first, for keys that do.
 */
#include <string.h>

#include "base/options.h"
#include "client.h"

#define HELP_COLUMN   34
#define NARROW_COLUMN 9

static enum client_exit run_help(struct session *session, const struct command_words *words);

static const struct command {
	const char *name, *arguments, *help;
	const char *more; /* what `help COMMAND` says beyond that; may be NULL */
	int min, max;	  /* words behind the name */
	const char
		*options; /* "--flag --with-value=", beside --json; NULL: takes all words as are */
	command_fn run;
	bool takes_key;
	bool is_alone; /* needs no server */
} commands[] = {
	{"put", "KEY VALUE [--ttl TIME] [--if-absent]", "stores a value",
	 "VALUE is text, @FILE for what a file holds, or - for stdin; @@text is \"@text\".\n"
	 "--ttl TIME    it goes away after 10s, 500ms, 2h; a bare number is seconds\n"
	 "--if-absent   only if the key is not there\n",
	 2, 2, "--ttl= --if-absent", run_put, .takes_key = true},
	{"get", "KEY [--output FILE]", "shows a value, or writes it to a file",
	 "To a pipe or a file the bytes go as they are; on a terminal those that it cannot show\n"
	 "are written as \\xHH.\n"
	 "--output FILE   into a file, which is replaced when all of it has come\n",
	 1, 1, "--output=", run_get, .takes_key = true},
	{"del", "KEY", "removes it", NULL, 1, 1, "", run_del, .takes_key = true},
	{"delete", "KEY", "the same", NULL, 1, 1, "", run_del, .takes_key = true},
	{"cas", "KEY VERSION VALUE", "stores it if the present one has this version",
	 "Every value has a version: put --json, cas and stat tell it.\n", 3, 3, "", run_cas,
	 .takes_key = true},
	{"incr", "KEY [NUMBER]", "adds 1, or NUMBER, and shows the sum",
	 "A key that is not there counts from 0.\n", 1, 2, "", run_incr, .takes_key = true},
	{"ttl", "KEY", "how long it is kept from now on", NULL, 1, 1, "", run_ttl,
	 .takes_key = true},
	{"expire", "KEY TIME", "keeps it for 10s, 500ms ...; 0: for ever", NULL, 2, 2, "",
	 run_expire, .takes_key = true},
	{"exists", "KEY", "1 or 0", NULL, 1, 1, "", run_exists, .takes_key = true},
	{"stat", "KEY", "version, length, and how long it is kept", NULL, 1, 1, "", run_stat,
	 .takes_key = true},
	{"scan", "[COUNT]", "keys, one a line; all, or the first so many",
	 "In no order; a key may be shown twice while others are stored.\n", 0, 1, "", run_scan},
	{"stats", "", "figures of the server", NULL, 0, 0, "", run_stats},
	{"ping", "", "how long the server takes to answer", NULL, 0, 0, "", run_ping},
	{"flush", "", "removes all keys", NULL, 0, 0, "", run_flush},
	{"top", "[--interval TIME] [--once]", "what the server does, on a live screen",
	 "q ends it. Without a terminal, and with --once, it is shown once.\n", 0, 0,
	 "--interval= --once", run_top},
	{"bench", "[OPERATIONS] [--value-size SIZE]", "measures the server: runs kv-bench",
	 "Any option of kv-bench may follow; --ops N is its --operations N. See kv-bench --help.\n",
	 0, WORDS_MAX, NULL, run_bench, .is_alone = true},
	{"doctor", "[OPTION...]", "checks machine and server: runs kv-doctor",
	 "Any option of kv-doctor may follow. See kv-doctor --help.\n", 0, WORDS_MAX, NULL,
	 run_doctor, .is_alone = true},
	{"help", "[COMMAND]", "what a command does, or all of them", NULL, 0, 1, "", run_help,
	 .is_alone = true},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

/* ------------------------------------------------------------------------------------------
 * Finding
 */

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

const char *command_name(size_t n)
{
	if (n < COMMAND_COUNT)
		return commands[n].name;
	return n == COMMAND_COUNT ? "quit" : NULL;
}

const char *command_arguments(const char *name)
{
	const struct command *command = find_command(name);

	return command ? command->arguments : NULL;
}

bool command_takes_key(const char *name)
{
	const struct command *command = find_command(name);

	return command && command->takes_key;
}

bool command_connects(const char *name)
{
	return !find_command(name)->is_alone;
}

/* ------------------------------------------------------------------------------------------
 * Words and options
 */

/* Whether `options` names it, and whether a value follows. */
static bool knows_option(const char *options, const char *word, bool *has_value)
{
	size_t length = strlen(word);

	*has_value = false;
	if (strcmp(word, "--json") == 0)
		return true;
	while ((options = strstr(options, word))) {
		*has_value = options[length] == '=';
		if (*has_value || !options[length] || options[length] == ' ')
			return true;
		options += length;
	}
	return false;
}

/* Takes the option at words[*at]. NULL, or what is wrong. */
static const char *take_option(const struct command *command, char **words, int count, int *at,
			       struct command_words *result)
{
	bool has_value;

	if (!knows_option(command->options, words[*at], &has_value))
		return "unexpected";
	if (has_value && *at + 1 >= count)
		return "a value must follow";
	if (result->option_count == COMMAND_OPTIONS_MAX)
		return "too many options:";
	result->options[result->option_count].name = words[*at];
	result->options[result->option_count++].value = has_value ? words[*at + 1] : "";
	*at += has_value ? 2 : 1;
	return NULL;
}

static bool is_option(const char *word)
{
	return strncmp(word, "--", 2) == 0 && word[2];
}

/* NULL, or what is wrong with words[*at]. Words that are no options are gathered in words[1] and
 * following. */
static const char *take_words(const struct command *command, char **words, int count, int *at,
			      struct command_words *result)
{
	const char *wrong = NULL;
	int begin;

	result->words = words + 1;
	*at = 1;
	if (!command->options) {
		result->count = count - 1;
		return NULL;
	}
	while (*at < count && is_option(words[*at]) && !wrong)
		wrong = take_option(command, words, count, at, result);
	if (*at < count && strcmp(words[*at], "--") == 0)
		(*at)++;
	begin = *at;
	while (*at < count && !wrong) {
		if (*at - begin >= command->min && is_option(words[*at])) {
			wrong = take_option(command, words, count, at, result);
			continue;
		}
		if (result->count == command->max)
			return "unexpected";
		/* Never ahead of where we read: nothing unread is overwritten. */
		result->words[result->count++] = words[(*at)++];
	}
	return wrong;
}

const char *command_option(const struct command_words *words, const char *name)
{
	/* The last one counts. */
	for (int i = words->option_count - 1; i >= 0; i--)
		if (strcmp(words->options[i].name, name) == 0)
			return words->options[i].value;
	return NULL;
}

static bool parse(const struct session *session, char **words, int count,
		  const struct command **command, struct command_words *result)
{
	const char *wrong;
	int at;

	*result = (struct command_words){0};
	*command = find_command(words[0]);
	if (!*command) {
		show_error(session, CLIENT_USAGE, "no command '%s'; %s lists all", words[0],
			   session->prompt ? "help" : "--help");
		return false;
	}
	wrong = take_words(*command, words, count, &at, result);
	if (wrong && is_option(words[at]))
		show_error(session, CLIENT_USAGE, "%s: %s '%s'", words[0], wrong, words[at]);
	else if (wrong || result->count < (*command)->min)
		show_error(session, CLIENT_USAGE, "usage: %s %s", (*command)->name,
			   (*command)->arguments);
	else
		return true;
	return false;
}

bool command_check(const struct session *session, char **words, int count)
{
	char *copy[WORDS_MAX + 1];
	const struct command *command;
	struct command_words result;

	if (count > WORDS_MAX) {
		show_error(session, CLIENT_USAGE, "too many words");
		return false;
	}
	/* Parsing moves them. */
	memcpy(copy, words, (size_t)count * sizeof(*words));
	return parse(session, copy, count, &command, &result);
}

enum client_exit command_run(struct session *session, char **words, int count)
{
	const struct command *command;
	struct command_words result;
	bool json = session->json;
	enum client_exit code;

	if (!parse(session, words, count, &command, &result))
		return CLIENT_USAGE;
	session->json |= command_option(&result, "--json") != NULL;
	ask_begin();
	code = command->run(session, &result);
	session->json = json;
	return code;
}

/* ------------------------------------------------------------------------------------------
 * Help
 */

void command_list(FILE *file, int width)
{
	bool is_narrow = width < HELP_COLUMN + 40;

	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const struct command *command = &commands[i];
		int column = fprintf(file, "  %-*s", *command->arguments ? 7 : 0, command->name);

		/* In a narrow terminal, and behind what is long, in the next line. */
		if (is_narrow) {
			show_wrapped(file, command->arguments, column, NARROW_COLUMN, width);
			fprintf(file, "%*s", NARROW_COLUMN, "");
			show_wrapped(file, command->help, NARROW_COLUMN, NARROW_COLUMN, width);
			continue;
		}
		column += fprintf(file, "%s", command->arguments);
		if (column > HELP_COLUMN - 2) {
			fputc('\n', file);
			column = 0;
		}
		fprintf(file, "%*s%s\n", HELP_COLUMN - column, "", command->help);
	}
}

static void help_json(const struct command *command)
{
	json_begin();
	json_text("command", command->name);
	json_text("arguments", command->arguments);
	json_text("help", command->help);
	if (command->more)
		json_text("more", command->more);
	json_end();
}

static enum client_exit run_help(struct session *session, const struct command_words *words)
{
	const struct command *command;

	if (!words->count && session->json) {
		for (size_t i = 0; i < COMMAND_COUNT; i++)
			help_json(&commands[i]);
		return CLIENT_OK;
	}
	if (!words->count) {
		command_list(stdout, options_terminal_width());
		if (session->prompt)
			puts("  quit, or Ctrl-D");
		return CLIENT_OK;
	}
	command = find_command(words->words[0]);
	if (!command)
		return show_error(session, CLIENT_USAGE, "no command '%s'; help lists all",
				  words->words[0]);
	if (session->json)
		help_json(command);
	else
		printf("%s %s\n%s\n%s", command->name, command->arguments, command->help,
		       command->more ? command->more : "");
	return CLIENT_OK;
}
