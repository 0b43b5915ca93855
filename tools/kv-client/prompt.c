/*
 * The prompt: reads lines and runs them until there are no more, or one says "quit". A command that
 * fails does not end it. Lines come from the editor where there is a terminal and libedit, else
 * from stdin as they are.
 *
 * Ctrl-C while a line is typed clears it; while a command runs it ends the command.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

char *prompt_text(const struct session *session)
{
	static char text[320];
	char server[300];

	if (!*text) {
		show_server(session->config, server, sizeof(server));
		snprintf(text, sizeof(text), "kv %s> ", server);
	}
	return text;
}

/* One line. False: it was the last one. */
static bool run_line(struct session *session, char *line)
{
	struct word words[WORDS_MAX];
	const char *fault = "";
	int count = words_split(line, words, &fault);

	if (count < 0) {
		show_error(session, CLIENT_USAGE, "%s", fault);
	} else if (count > 0) {
		if (!strcmp(words[0].text, "quit") || !strcmp(words[0].text, "exit"))
			return false;
		/* Until the next line is read: whoever presses Ctrl-C a moment too late does not
		 * mean the prompt. Where nobody types it ends all. */
		if (isatty(STDIN_FILENO))
			interrupt_hold();
		command_run(session, words, count);
	}
	fflush(stdout);
	return true;
}

static void run_edited(struct session *session, struct editor *editor)
{
	char *line;

	while ((line = editor_line(editor)) && run_line(session, line))
		;
	if (!line)
		putchar('\n');
}

/* The next line of stdin without its end. NULL: there is none. */
static char *read_line(struct session *session, char **line, size_t *room, bool person)
{
	for (;;) {
		ssize_t length;

		if (person) {
			/* Ctrl-C drops the line: the terminal does, and so do we. From before the
			 * prompt on, for it may be pressed as soon as that is seen. */
			interrupt_hold();
			fputs(prompt_text(session), stdout);
			fflush(stdout);
		}
		errno = 0;
		length = person && !interrupt_wait(STDIN_FILENO) ? -1 : getline(line, room, stdin);
		if (person && interrupt_came()) {
			putchar('\n');
			clearerr(stdin);
			continue;
		}
		if (length < 0)
			return NULL;
		if (strlen(*line) == (size_t)length)
			return *line;
		show_error(session, CLIENT_USAGE, "a zero byte in the line");
	}
}

static void run_plain(struct session *session)
{
	bool person = isatty(STDIN_FILENO);
	char *line = NULL;
	size_t room = 0;
	bool more = true;

	while (more && read_line(session, &line, &room, person))
		more = run_line(session, line);
	if (person && more)
		putchar('\n');
	free(line);
}

enum client_exit prompt_run(struct session *session)
{
	struct editor *editor = editor_open(session);

	session->prompt = true;
	if (editor)
		run_edited(session, editor);
	else
		run_plain(session);
	editor_close(editor);
	return CLIENT_OK;
}
